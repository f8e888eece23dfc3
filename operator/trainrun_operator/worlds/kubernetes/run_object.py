"""One TrainRun as the API server holds it: its spec for the core, its status, and their version.

Layer: worlds/kubernetes. The cache of runs decides which version is the newest, whether it arrived
by watch, list, or the answer to our own write.
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
        """metadata.uid."""
        return self.run.metadata.uid

    @property
    def template(self) -> Mapping[str, Any]:
        """The pod template exactly as its user wrote it."""
        template: Mapping[str, Any] = self.raw["spec"]["workers"]["template"]
        return template


def run_version(raw: Raw) -> RunVersion:
    """Read an object. Raises InvalidSpec with every wrong field, including the status's."""
    run = written_spec(raw, TRAINRUN)
    return RunVersion(raw=raw, run=run, config=config_of(run), status=status_of(raw, status_from))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedVersion:
    """The part of one version of a TrainRun that an operator keeps in memory."""

    namespace: str
    name: str
    uid: str
    generation: int
    number: int
    """Its resourceVersion."""
    trimmed: TrimmedObject
    """The object as its user wrote it."""
    config: RunConfig
    status: TrainRunStatus

    @property
    def head(self) -> dict[str, Any]:
        """What identifies the object in this version."""
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
        """The whole version as its user wrote it; None: it must be read from the API server."""
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
    """The version `raw` with the spec of the previous one. Raises InvalidSpec if its status cannot
    be read."""
    generation = number(raw["metadata"], "generation") or 0
    status = status_of(raw, status_from)
    return replace(before, number=number_of(raw), generation=generation, status=status)


def is_managed_elsewhere(raw: Raw) -> bool:
    """Whether the user gave the run to another controller."""
    return bool(mapping(raw, "spec").get("managedBy", MANAGER) != MANAGER)


def holder_of(raw: Raw) -> str:
    """The installation that leads the run, even if the rest is unreadable; "" if none."""
    return text(mapping(mapping(raw, "status"), INTERNAL), "holder")


@dataclass(slots=True)
class RunObject:
    """A run with its newest known version."""

    current: ManagedVersion
    deleted: bool = field(default=False)
    """It is gone, or being deleted."""
    refusal: InvalidSpec | None = None
    """Why the previous spec is used instead of the newest."""
    written: TrainRunStatus | None = None
    """The status that we wrote last, or are writing: reading it back is not news."""

    def learn(self, raw: Raw) -> bool:
        """Take the newest version; returns whether it differs from what we wrote. Raises
        InvalidSpec if its status cannot be read: then the previous version stays."""
        before = self.current
        if raw["metadata"]["uid"] != before.uid:
            return False
        refusal = str(self.refusal)
        try:
            same = trimmed(raw).digest == before.trimmed.digest
            self.current = _with_spec_of(before, raw) if same else managed_version(raw)
            self.refusal = None
        except InvalidSpec as error:
            # Its status is known nevertheless, and can be overwritten.
            self.current, self.refusal = _with_spec_of(before, raw), without_traceback(error)
        same = self.current.trimmed is before.trimmed and str(self.refusal) == refusal
        if same and self.current.status == self.written:
            return False
        self.written = None
        return True

    @property
    def too_large(self) -> str:
        """Why the newest version was not read, if the reason is its size; else ""."""
        return str(self.refusal) if isinstance(self.refusal, TooLarge) else ""

    @property
    def invalid(self) -> str:
        """Why the newest spec cannot be used, although it was read; else ""."""
        return "" if self.too_large else str(self.refusal or "")

    @property
    def path(self) -> str:
        """The object's path in the API."""
        return TRAINRUN.path(self.current.namespace, self.current.name)


def number_of(raw: Raw) -> int:
    """The resourceVersion of an object, or a list.

    Those of one resource compare as numbers: true for every API server so far, and documented from
    Kubernetes 1.35 on (KEP-5504).
    """
    return int(raw["metadata"]["resourceVersion"])
