"""One TrainSweep as the API server holds it.

Layer: worlds/kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.loading import read
from trainrun_operator.api.places import without_unknown
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.api.sweep.status import TrainSweepStatus, status_from
from trainrun_operator.kube.raw import named
from trainrun_operator.worlds.kubernetes.kept import kept

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepVersion:
    """A TrainSweep in one of its versions, for whoever does not lead it."""

    raw: Raw
    sweep: TrainSweep
    status: TrainSweepStatus

    @property
    def where(self) -> str:
        """`NAMESPACE/NAME`, as the command line takes it."""
        metadata = self.sweep.metadata
        return f"{metadata.namespace}/{metadata.name}"

    def changed(self, fields: Mapping[str, object]) -> TrainSweep:
        """The same with these fields below `spec`. Raises InvalidSpec."""
        return described({**self.raw, "spec": {**self.raw["spec"], **fields}})


def sweep_version(raw: Raw) -> SweepVersion:
    """Read an object. Raises InvalidSpec with every field that is wrong, the status's included."""
    sweep = described(raw)
    try:
        status = status_from(raw.get("status") or {})
    except ValueError as error:
        raise InvalidSpec(
            f"{_name(raw)}: the status cannot be read; a newer operator may have written it: "
            f"{error}"
        ) from error
    return SweepVersion(raw=raw, sweep=sweep, status=status)


def light(raw: Raw) -> dict[str, Any]:
    """Of the object what an operator keeps: its name in this version, its status, and `kept`."""
    whole = kept({**TRAINSWEEP.head(), **raw})  # as it is read alone: a list may leave the kind out
    return {**TRAINSWEEP.head(), **named(raw), "status": raw.get("status"), "kept": whole}


def described(raw: Raw) -> TrainSweep:
    """What its user has written. Raises InvalidSpec."""
    document = {key: value for key, value in raw.items() if key != "status"}
    return read(document, TRAINSWEEP, source=_name(raw), stored=True)


def known_spec(raw: Raw) -> dict[str, Any]:
    """The spec for a clerk, which refuses fields that it does not know: those that we know."""
    spec: dict[str, Any] = without_unknown(raw["spec"], TRAINSWEEP.spec)
    return spec


def _name(raw: Raw) -> str:
    metadata = raw.get("metadata", {})
    return f"{metadata.get('namespace')}/{metadata.get('name')}"
