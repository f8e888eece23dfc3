"""TrainRun as an object: apiVersion, kind, metadata, spec.

Layer: api. The status is not part of it: users do not write it, and the core gets it on its own.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainrun_operator.api.base import API_VERSION, Model
from trainrun_operator.api.pod_template import OpenModel
from trainrun_operator.api.run.spec import RunName, TrainRunSpec

RESTART = "trainrun.dev/restart"
"""Annotation of a TrainRun: each new value restarts the gang that runs, once."""


class ObjectMeta(OpenModel):
    """metadata: the fields that TrainRun reads; all others are kept."""

    name: RunName
    """Name, a DNS label of at most 48 characters; that of a TrainSweep has at most 34."""
    namespace: Annotated[str, Field(max_length=63)] = "default"
    """Namespace. Default: default."""
    uid: Annotated[str, Field(max_length=128)] = ""
    """Given by the API server; empty in a file."""
    generation: int = 0
    """Counts changes of the spec; given by the API server."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations."""


class TrainRun(Model):
    """A long training run that survives failures and preemptions."""

    api_version: Literal["trainrun.dev/v1alpha1"] = API_VERSION
    """trainrun.dev/v1alpha1."""
    kind: Literal["TrainRun"] = "TrainRun"
    """TrainRun."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    spec: TrainRunSpec
    """What the user asks for."""

    @property
    def run_name(self) -> str:
        """Name of the run's folder in the storage: storage.runName, by default metadata.name."""
        return self.spec.storage.run_name or self.metadata.name
