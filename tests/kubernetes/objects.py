"""Small objects to play with."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Raw:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def pod(name: str, **spec: object) -> Raw:
    containers = [{"name": "worker", "image": "none"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def config_maps(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return f"{path}/{name}" if name else path
