"""How kstatus reads a custom resource: Flux, and `helm --wait` from Helm 4 on.

Its rules (sigs.k8s.io/cli-utils, pkg/kstatus/status: checkGenericProperties), in its order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORDS = {"Reconciling": "InProgress", "Stalled": "Failed"}


def kstatus(raw: Mapping[str, Any]) -> tuple[str, str]:
    """InProgress, Failed, Terminating or Current, and the message that is shown with it."""
    metadata, status = raw["metadata"], raw.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating", ""
    observed = status.get("observedGeneration")
    if observed not in (None, metadata["generation"]):
        return "InProgress", f"generation is {metadata['generation']}, observed is {observed}"
    for condition in status.get("conditions", []):
        if condition["type"] in WORDS and condition["status"] == "True":
            return WORDS[condition["type"]], condition["message"]
    return "Current", ""
