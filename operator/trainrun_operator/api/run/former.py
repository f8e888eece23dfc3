"""What version 0.1.0 wrote into a TrainRun: an upgrade forgets nothing, counts nothing twice.

Layer: api. An upgrade meets runs that train: their objects hold a status with the operator's memory
at the top level, and a spec with two names that have changed. Both are read here and nowhere else;
nothing is written at the old places. To be deleted with version 0.3.0, together with its uses in
`status_json`, `spec`, `run_object`, `cluster/schema.py` and `cluster/watch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STORAGE_NAMES = {"endpointUrl": "endpointURL", "credentialsSecret": "credentialsSecretRef"}
"""Fields of spec.storage: old name and new name."""

STORAGE_PROPERTIES = {
    old: {
        "type": "string",
        "maxLength": 1024,
        "description": f"The name of {new} in version 0.1.0; read where it stands already.",
    }
    for old, new in STORAGE_NAMES.items()
}
"""For the schema: what is not in it would be taken out of runs that train."""

STORAGE_RULES = tuple(
    {
        "rule": f"!has(self.{old}) || (oldSelf.hasValue() && has(oldSelf.value().{old}))",
        "message": f"is called {new} now",
        "fieldPath": f".{old}",
        # So the rule is asked about new objects too, which have no oldSelf.
        "optionalOldSelf": True,
    }
    for old, new in STORAGE_NAMES.items()
)
"""CEL entries for spec.storage: the old names stay where they are, and come nowhere else."""


def with_internal(status: Mapping[str, Any], *, names: frozenset[str]) -> Mapping[str, Any]:
    """A status with what the operator remembers, the fields `names`, in `internal`."""
    if "internal" in status:
        return status
    return {**status, "internal": {name: status[name] for name in names & status.keys()}}


def is_stripped(status: Mapping[str, Any], *, names: frozenset[str]) -> bool:
    """Whether a status is shown without what the operator remembers: the fields `names`, or
    `internal`. Every version has written some of them, but the CRD of 0.1.0 hides `internal`."""
    return bool(status) and status.keys().isdisjoint({"internal", *names})


def with_new_names(document: dict[str, Any]) -> dict[str, Any]:
    """A TrainRun with the storage's fields under their new names, which win where both stand."""
    spec: Any = document.get("spec")
    storage = spec.get("storage") if isinstance(spec, dict) else None
    if not isinstance(storage, dict) or STORAGE_NAMES.keys().isdisjoint(storage):
        return document
    renamed = {key: value for key, value in storage.items() if key not in STORAGE_NAMES}
    if "endpointUrl" in storage:
        renamed.setdefault("endpointURL", storage["endpointUrl"])
    if "credentialsSecret" in storage:
        renamed.setdefault("credentialsSecretRef", {"name": storage["credentialsSecret"]})
    return {**document, "spec": {**spec, "storage": renamed}}
