"""A TrainSweep and the TrainRuns of its trials, as the API server holds them.

Layer: worlds/kubernetes; pure. A TrainRun counts as a trial only if the TrainSweep is its
controller: any client can write labels, and Kubernetes does not check an owner's uid, so a name
that another object has taken is reported and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainrun_operator.api.problems import without_unknown
from trainrun_operator.api.resources import TRAINRUN, ObjectMeta, Resource
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.api.sweep.status import TrainSweepStatus, status_from
from trainrun_operator.core.sweep.boundary import CreateTrial, TrialRun, TrialRunPhase
from trainrun_operator.core.sweep.config import trial_run
from trainrun_operator.kube.raw import (
    controller,
    count,
    mapping,
    moment,
    named,
    number,
    objects,
    text,
)
from trainrun_operator.worlds.kubernetes import names
from trainrun_operator.worlds.kubernetes.trimmed_objects import status_of, trimmed, written_spec

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepVersion:
    """A TrainSweep in one of its versions, for readers that do not lead it."""

    raw: Raw
    sweep: TrainSweep
    status: TrainSweepStatus

    @property
    def where(self) -> str:
        """`NAMESPACE/NAME`, as the command line takes it."""
        metadata = self.sweep.metadata
        return f"{metadata.namespace}/{metadata.name}"

    def changed(self, fields: Mapping[str, object]) -> TrainSweep:
        """The sweep with these fields below `spec` replaced. Raises InvalidSpec."""
        return described({**self.raw, "spec": {**self.raw["spec"], **fields}})


def sweep_version(raw: Raw) -> SweepVersion:
    """Read an object. Raises InvalidSpec with every wrong field, including the status's."""
    sweep = described(raw)
    return SweepVersion(raw=raw, sweep=sweep, status=status_of(raw, status_from))


def light(raw: Raw) -> dict[str, Any]:
    """The part of the object that an operator keeps: its identity, its status, and `trimmed`."""
    whole = trimmed(
        {**TRAINSWEEP.head(), **raw}
    )  # as it is read alone: a list may leave the kind out
    return {**TRAINSWEEP.head(), **named(raw), "status": raw.get("status"), "trimmed": whole}


def described(raw: Raw) -> TrainSweep:
    """The sweep as its user wrote it. Raises InvalidSpec."""
    return written_spec(raw, TRAINSWEEP)


def known_spec(raw: Raw) -> dict[str, Any]:
    """The spec for a clerk without fields that we do not know: a clerk refuses those."""
    spec: dict[str, Any] = without_unknown(raw["spec"], TRAINSWEEP.spec)
    return spec


@dataclass(frozen=True, kw_only=True)
class TrialObject:
    """The TrainRun of a trial."""

    sweep_uid: str
    run: TrialRun


def trial_manifest(sweep: TrainSweep, action: CreateTrial) -> dict[str, Any]:
    """The TrainRun of an opening, ready to create."""
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
            "ownerReferences": [owner_reference(TRAINSWEEP, sweep.metadata)],
        },
        "spec": run.spec.to_json_object(),
    }


def owner_reference(kind: Resource[Any], owner: ObjectMeta) -> dict[str, Any]:
    """The owner reference that makes Kubernetes delete an object with this owner."""
    return {
        **kind.head(),
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        # A deleted owner disappears at once, whether or not its pods have ended.
        "blockOwnerDeletion": False,
    }


def trial_object(raw: Raw) -> TrialObject | None:
    """The trial's run in this object; None: it is not a trial's run."""
    metadata = mapping(raw, "metadata")
    labels = mapping(metadata, "labels")
    sweep_uid = text(labels, names.SWEEP_UID_LABEL)
    trial, opening = count(labels, names.TRIAL_LABEL), count(labels, names.OPENING_LABEL)
    if not sweep_uid or controller(metadata) != sweep_uid or trial is None or opening is None:
        return None
    if "deletionTimestamp" in metadata:
        return None  # its pods are deleted with it: nothing is left to wait for
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
    return TrialObject(sweep_uid=sweep_uid, run=run)


def _phase(status: Raw) -> TrialRunPhase:
    if number(mapping(status, "workers"), "leaving"):
        return "Running"  # it has ended, but its last reports are still being stored
    if _condition(status, "Complete"):
        return "Succeeded"
    if _condition(status, "Failed"):
        return "Failed"
    if _condition(status, "Suspended"):
        return "Suspended"
    # Between two attempts it may have lost its nodes and compete for room with new trials.
    works = number(status, "attempt") and not mapping(mapping(status, "internal"), "ending")
    return "Running" if works or _has_room(status) else "Waiting"


def _has_room(status: Raw) -> bool:
    """Whether all its workers exist, even if it waits for something else, e.g. the storage."""
    workers = mapping(status, "workers")
    total = number(workers, "total") or 0
    return 0 < total <= (number(workers, "ready") or 0)


def _condition(status: Raw, kind: str) -> Raw:
    """The condition if it is True, else an empty mapping."""
    found = (item for item in objects(status, "conditions") if item.get("type") == kind)
    return next((item for item in found if item.get("status") == "True"), {})
