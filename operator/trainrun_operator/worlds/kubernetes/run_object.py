"""One TrainRun as the API server holds it: its spec for the core, its status, and their version.

Layer: worlds/kubernetes. Invariant: an older version never replaces a newer one, whichever way it
comes (watch, relist, the answer to our own write); unless a backup was restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.loading import read
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run import former
from trainrun_operator.api.run.resource import TrainRun
from trainrun_operator.api.run.spec import MANAGER
from trainrun_operator.api.run.status import INTERNAL, TrainRunStatus
from trainrun_operator.api.run.status_json import status_from
from trainrun_operator.core.run.config import RunConfig, config_of
from trainrun_operator.kube.raw import mapping, text

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


def run_version(raw: Raw, *, before: RunVersion | None = None) -> RunVersion:
    """Read an object; of the version `before` what has stayed is not read again.

    Raises InvalidSpec with every field that is wrong, the status's included.
    """
    metadata = raw.get("metadata", {})
    source = f"{metadata.get('namespace')}/{metadata.get('name')}"
    if before is not None and _without_status(raw) == _without_status(before.raw):
        run, config = before.run, before.config
    else:
        document = {key: value for key, value in raw.items() if key != "status"}
        run = read(former.with_new_names(document), TRAINRUN, source=source, stored=True)
        config = config_of(run)
    return RunVersion(raw=raw, run=run, config=config, status=_status(raw))


def _status(raw: Raw) -> TrainRunStatus:
    try:
        return status_from(raw.get("status") or {})
    except ValueError as error:
        metadata = raw["metadata"]
        raise InvalidSpec(
            f"{metadata.get('namespace')}/{metadata.get('name')}: the status cannot be read; a "
            f"newer operator may have written it: {error}"
        ) from error


def _with_spec_of(before: RunVersion, raw: Raw) -> RunVersion:
    """The version `raw`, whose spec cannot be read, under the spec that was valid before. So its
    status is known, and can be written over. Raises InvalidSpec where that cannot be read."""
    changes = {"metadata": raw["metadata"], "status": raw.get("status")}
    return replace(before, raw={**before.raw, **changes}, status=_status(raw))


def _without_status(raw: Raw) -> Raw:
    """What a write of the status leaves as it is: all but the version and who wrote what."""
    metadata = {
        key: value
        for key, value in raw["metadata"].items()
        if key not in ("resourceVersion", "managedFields")
    }
    return {**raw, "status": None, "metadata": metadata}


def is_managed_elsewhere(raw: Raw) -> bool:
    """Its user has given the run to another controller."""
    return bool(mapping(raw, "spec").get("managedBy", MANAGER) != MANAGER)


def holder_of(raw: Raw) -> str:
    """The installation that leads it, whether or not this version can read the rest; "" if none."""
    return text(mapping(mapping(raw, "status"), INTERNAL), "holder")


@dataclass(slots=True)
class RunObject:
    """The newest version that we know."""

    current: RunVersion
    deleted: bool = field(default=False)
    """It is gone, or about to go."""
    refusal: str = ""
    """Why the newest spec is not gone by, but the one before: it cannot be read. "" where it is."""
    written: TrainRunStatus | None = None
    """The status that we have written last, or are writing: seeing it is no news."""

    def learn(self, raw: Raw, *, restored: bool = False) -> bool:
        """Take a version that is newer; says whether it was and tells more than what we have
        written. Raises InvalidSpec where its status cannot be read: then the one before stays.
        `restored`: a backup was, so an older one is the newest."""
        if raw["metadata"]["uid"] != self.current.uid:
            return False
        if not (restored or newer(raw, self.current.raw)):
            return False
        before = self.current
        try:
            self.current, self.refusal = run_version(raw, before=before), ""
        except InvalidSpec as error:
            self.current, self.refusal = _with_spec_of(before, raw), str(error)
        if self.current.run is before.run and self.current.status == self.written:
            return False
        self.written = None
        return True

    @property
    def path(self) -> str:
        """Of the object in the API."""
        metadata = self.current.run.metadata
        return TRAINRUN.path(metadata.namespace, metadata.name)


def newer(one: Raw, other: Raw) -> bool:
    """Whether `one` is a later version of the same object."""
    return number_of(one) > number_of(other)


def number_of(raw: Raw) -> int:
    """The resourceVersion of an object, or a list.

    Those of one resource are comparable as numbers: true for every API server so far, and a
    documented promise from Kubernetes 1.35 on (KEP-5504).
    """
    return int(raw["metadata"]["resourceVersion"])
