"""One TrainRun as the API server holds it: its spec for the core, its status, and their version.

Layer: worlds/kubernetes. Invariant: an older version never replaces a newer one, whichever way it
comes (watch, relist, the answer to our own write).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainrun_operator.api.loading import trainrun_from
from trainrun_operator.api.resource import API_VERSION, PLURAL, TrainRun
from trainrun_operator.api.status import TrainRunStatus
from trainrun_operator.core.config import RunConfig
from trainrun_operator.core.render import config_of

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
    """Read an object. Raises InvalidSpec with every field that is wrong."""
    document = {key: value for key, value in raw.items() if key != "status"}
    metadata = raw.get("metadata", {})
    run = trainrun_from(document, source=f"{metadata.get('namespace')}/{metadata.get('name')}")
    return RunVersion(
        raw=raw,
        run=run,
        config=config_of(run),
        status=TrainRunStatus.model_validate(raw.get("status") or {}),
    )


@dataclass(slots=True)
class RunObject:
    """The newest version that we know."""

    current: RunVersion
    deleted: bool = field(default=False)
    """It is gone, or about to go."""

    def learn(self, raw: Raw) -> bool:
        """Take a version that is newer; says whether it was. Raises InvalidSpec."""
        if raw["metadata"]["uid"] != self.current.uid or not newer(raw, self.current.raw):
            return False
        self.current = run_version(raw)
        return True

    @property
    def path(self) -> str:
        """Of the object in the API."""
        metadata = self.current.run.metadata
        return f"/apis/{API_VERSION}/namespaces/{metadata.namespace}/{PLURAL}/{metadata.name}"


def newer(one: Raw, other: Raw) -> bool:
    """Whether `one` is a later version of the same object.

    resourceVersions of one resource are comparable as numbers: true for every API server so far,
    and a documented promise from Kubernetes 1.35 on (KEP-5504).
    """
    return int(one["metadata"]["resourceVersion"]) > int(other["metadata"]["resourceVersion"])
