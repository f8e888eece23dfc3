"""Where workers are placed."""

from __future__ import annotations

from typing import Any


def on_different_nodes(run: str) -> dict[str, Any]:
    """For the pod of a template: no two workers of this run on one node."""
    return {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"trainrun.dev/run": run}},
                    }
                ]
            }
        }
    }
