"""One TrainRun as the API server holds it: its spec for the core, its status, and their version.

Layer: worlds/kubernetes. Which version is the newest, whichever way it comes (watch, list,
the answer to our own write), the cache of runs decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.resources import TRAINRUN, TrainRun
from trainrun_operator.api.run.spec import MANAGER
from trainrun_operator.api.run.status import INTERNAL, TrainRunStatus, status_from
from trainrun_operator.core.run.config import RunConfig, config_of
from trainrun_operator.kube.raw import mapping, number, text
from trainrun_operator.worlds.kubernetes.trimmed_objects import (
    TooLarge,
    TrimmedObject,
    status_of,
    trimmed,
    without_traceback,
    written_spec,
)

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVersion:
    """A TrainRun in one of its versions."""

    raw: Raw
    run: TrainRun
    config: RunConfig
    status: TrainRunStatus

    @property
    def uid(self) -> str:
        """Of the object."""
        return self.run.metadata.uid

    @property
    def template(self) -> Mapping[str, Any]:
        """The pod template exactly as its user wrote it."""
        template: Mapping[str, Any] = self.raw["spec"]["workers"]["template"]
        return template


def run_version(raw: Raw) -> RunVersion:
    """Read an object. Raises InvalidSpec with every field that is wrong, the status's included."""
    run = written_spec(raw, TRAINRUN)
    return RunVersion(raw=raw, run=run, config=config_of(run), status=status_of(raw, status_from))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedVersion:
    """A TrainRun in one of its versions, as far as an operator keeps it."""

    namespace: str
    name: str
    uid: str
    generation: int
    number: int
    """Its resourceVersion."""
    trimmed: TrimmedObject
    """What its user has written."""
    config: RunConfig
    status: TrainRunStatus

    @property
    def head(self) -> dict[str, Any]:
        """What names the object in this version."""
        return {
            **TRAINRUN.head(),
            "metadata": {
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid,
                "resourceVersion": str(self.number),
                "generation": self.generation,
            },
        }

    def written(self) -> RunVersion | None:
        """With all that its user has written; None: the API server has to be asked for it."""
        raw = self.trimmed.raw
        return None if raw is None else run_version(raw)


def managed_version(raw: Raw) -> ManagedVersion:
    """Read an object to lead it. Raises InvalidSpec, and TooLarge."""
    whole = trimmed(raw)
    whole.check_size()
    version = run_version(raw)
    metadata = version.run.metadata
    return ManagedVersion(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        number=number_of(raw),
        trimmed=whole,
        config=version.config,
        status=version.status,
    )


def _with_spec_of(before: ManagedVersion, raw: Raw) -> ManagedVersion:
    """The version `raw` under the spec of the one before. Raises InvalidSpec where its status
    cannot be read."""
    generation = number(raw["metadata"], "generation") or 0
    status = status_of(raw, status_from)
    return replace(before, number=number_of(raw), generation=generation, status=status)


def is_managed_elsewhere(raw: Raw) -> bool:
    """Its user has given the run to another controller."""
    return bool(mapping(raw, "spec").get("managedBy", MANAGER) != MANAGER)


def holder_of(raw: Raw) -> str:
    """The installation that leads it, whether or not this version can read the rest; "" if none."""
    return text(mapping(mapping(raw, "status"), INTERNAL), "holder")


@dataclass(slots=True)
class RunObject:
    """The newest version that we know."""

    current: ManagedVersion
    deleted: bool = field(default=False)
    """It is gone, or about to go."""
    refusal: InvalidSpec | None = None
    """Why the newest spec is not gone by, but the one before."""
    written: TrainRunStatus | None = None
    """The status that we have written last, or are writing: seeing it is no news."""

    def learn(self, raw: Raw) -> bool:
        """Take the newest version; says whether it tells more than what we have written. Raises
        InvalidSpec where its status cannot be read: then the one before stays."""
        before = self.current
        if raw["metadata"]["uid"] != before.uid:
            return False
        refusal = str(self.refusal)
        try:
            same = trimmed(raw).digest == before.trimmed.digest
            self.current = _with_spec_of(before, raw) if same else managed_version(raw)
            self.refusal = None
        except InvalidSpec as error:
            # Its status is known all the same, and can be written over.
            self.current, self.refusal = _with_spec_of(before, raw), without_traceback(error)
        same = self.current.trimmed is before.trimmed and str(self.refusal) == refusal
        if same and self.current.status == self.written:
            return False
        self.written = None
        return True

    @property
    def too_large(self) -> str:
        """Why the newest version was not read, where that is its size; else ""."""
        return str(self.refusal) if isinstance(self.refusal, TooLarge) else ""

    @property
    def invalid(self) -> str:
        """Why the newest spec cannot be used, where it was read; else ""."""
        return "" if self.too_large else str(self.refusal or "")

    @property
    def path(self) -> str:
        """Of the object in the API."""
        return TRAINRUN.path(self.current.namespace, self.current.name)


def number_of(raw: Raw) -> int:
    """The resourceVersion of an object, or a list.

    Those of one resource are comparable as numbers: true for every API server so far, and a
    documented promise from Kubernetes 1.35 on (KEP-5504).
    """
    return int(raw["metadata"]["resourceVersion"])
