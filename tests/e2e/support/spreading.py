"""Where workers are placed."""

from __future__ import annotations

from typing import Any


def on_different_nodes(run: str) -> dict[str, Any]:
    """For the pod of a template: no two workers of this run on one node."""
    return _apart({"requiredDuringSchedulingIgnoredDuringExecution": [_workers_of(run)]})


def rather_on_different_nodes(run: str) -> dict[str, Any]:
    """The same, as long as there are nodes enough."""
    wish = {"weight": 100, "podAffinityTerm": _workers_of(run)}
    return _apart({"preferredDuringSchedulingIgnoredDuringExecution": [wish]})


def _apart(rule: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": rule}}


def _workers_of(run: str) -> dict[str, Any]:
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"trainrun.dev/run": run}},
    }
