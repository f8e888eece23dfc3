"""The TrainRun of a trial in a cluster: how it is made, and what is looked at of one.

Layer: worlds/kubernetes; pure. What it says of itself is believed only where the TrainSweep is its
controller: labels can be written by anybody, and an owner's uid is checked by nobody, so a name
that another object has taken is told and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.core.sweep.observation import TrialRun, TrialRunPhase
from trainrun_operator.core.sweep.plan import CreateTrial
from trainrun_operator.core.sweep.trial import trial_run
from trainrun_operator.kube.raw import mapping, moment, number, objects, text
from trainrun_operator.worlds.kubernetes import names

Raw = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrialObject:
    """The TrainRun of a trial."""

    namespace: str
    sweep_uid: str
    run: TrialRun


def trial_manifest(sweep: TrainSweep, action: CreateTrial) -> dict[str, Any]:
    """The TrainRun of an opening, ready to be created."""
    run = trial_run(sweep, action)
    return {
        **TRAINRUN.head(),
        "metadata": {
            "name": action.name,
            "namespace": sweep.metadata.namespace,
            "labels": {
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
                names.SWEEP_LABEL: sweep.metadata.name,
                names.SWEEP_UID_LABEL: sweep.metadata.uid,
                names.TRIAL_LABEL: str(action.trial.number),
                names.OPENING_LABEL: str(action.trial.opening),
            },
            "ownerReferences": [owner_reference(sweep)],
        },
        "spec": run.spec.to_json_object(),
    }


def owner_reference(sweep: TrainSweep) -> dict[str, Any]:
    """What makes an object go with its sweep."""
    return {
        **TRAINSWEEP.head(),
        "name": sweep.metadata.name,
        "uid": sweep.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def trial_object(raw: Raw) -> TrialObject | None:
    """The trial's run that the API server describes so; None where it is none."""
    metadata = mapping(raw, "metadata")
    labels = mapping(metadata, "labels")
    sweep_uid = text(labels, names.SWEEP_UID_LABEL)
    trial, opening = _count(labels, names.TRIAL_LABEL), _count(labels, names.OPENING_LABEL)
    if not sweep_uid or _controller(metadata) != sweep_uid or trial is None or opening is None:
        return None
    if "deletionTimestamp" in metadata:
        return None  # its pods go with it: nothing is left to wait for
    status, created = mapping(raw, "status"), moment(metadata, "creationTimestamp")
    suspend = mapping(raw, "spec").get("suspend") is True
    failed = _condition(status, "Failed")
    run = TrialRun(
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        trial=trial,
        opening=opening,
        phase=_phase(status),
        suspend=suspend,
        reason=text(failed, "reason"),
        message=text(failed, "message"),
        restarts=number(status, "restarts") or 0,
        attempt=number(status, "attempt") or 0,
        created=created.timestamp() if created is not None else 0.0,
    )
    return TrialObject(namespace=text(metadata, "namespace"), sweep_uid=sweep_uid, run=run)


def _phase(status: Raw) -> TrialRunPhase:
    if number(mapping(status, "workers"), "leaving"):
        return "Running"  # it is over, and its last reports are still on their way to the store
    if _condition(status, "Complete"):
        return "Succeeded"
    if _condition(status, "Failed"):
        return "Failed"
    if _condition(status, "Suspended"):
        return "Suspended"
    # Between two attempts it may have lost its place, and compete for room with new trials.
    works = number(status, "attempt") and not mapping(mapping(status, "internal"), "ending")
    return "Running" if works or _has_room(status) else "Waiting"


def _has_room(status: Raw) -> bool:
    """All its workers are there, whatever else it waits for: the storage, say."""
    workers = mapping(status, "workers")
    total = number(workers, "total") or 0
    return 0 < total <= (number(workers, "ready") or 0)


def _condition(status: Raw, kind: str) -> Raw:
    """The condition where it is True, else nothing."""
    found = (it for it in objects(status, "conditions") if it.get("type") == kind)
    return next((it for it in found if it.get("status") == "True"), {})


def _controller(metadata: Raw) -> str:
    owners = objects(metadata, "ownerReferences")
    return next((text(owner, "uid") for owner in owners if owner.get("controller") is True), "")


def _count(labels: Raw, key: str) -> int | None:
    found = text(labels, key)
    return int(found) if found.isascii() and found.isdecimal() and len(found) < 10 else None
