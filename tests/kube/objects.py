"""Small objects to play with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Raw = dict[str, Any]

Colored = tuple[str, str]
"""Name and color: the projection that tests follow."""


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Raw:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def pod(name: str, **spec: object) -> Raw:
    containers = [{"name": "worker", "image": "none"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def config_maps(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return f"{path}/{name}" if name else path


def colors_told(changes: Iterable[tuple[Colored | None, Colored | None]]) -> dict[str, str]:
    """Color by name, as somebody knows them who was told these changes."""
    known: dict[str, str] = {}
    for before, after in changes:
        if before is not None:
            assert known.pop(before[0]) == before[1], "each change begins where the last one ended"
        if after is not None:
            known[after[0]] = after[1]
    return known
