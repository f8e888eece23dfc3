"""TrainRun as an object and as a row: whatever differs from one custom resource to the next.

Layer: api. The CRDs (api/crd.py, which has the table of all), the loading of YAML (api/loading.py),
the rights that the chart must grant (tests/chart/test_rights.py) and the operator's watches read
the rows. One more resource is a row, a model and a status. The status is no part of the object
here: users do not write it, and the core gets it on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from trainrun_operator.api.base import API_VERSION, GROUP, VERSION, Model
from trainrun_operator.api.pod_template import OpenModel
from trainrun_operator.api.problems import model_in
from trainrun_operator.api.run.spec import MAX_NAME, RunName, TrainRunSpec
from trainrun_operator.api.run.status import TrainRunStatus

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


M = TypeVar("M", bound=Model)

ColumnType = Literal["string", "integer", "date"]

Verb = Literal["get", "list", "watch", "create", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    type: ColumnType
    path: str
    """JSONPath in the object."""
    wide: bool = False
    """Shown with `--output wide` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[M]):
    """One kind of custom resource."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    model: type[M]
    """The whole object: apiVersion, kind, metadata, spec. Its docstring explains the kind."""
    status: type[object]
    """What the operator writes into `status`."""
    max_name: int
    """Characters of metadata.name."""
    columns: tuple[Column, ...]
    verbs: tuple[Verb, ...]
    """What the operator does with the objects; the status it updates."""
    scale: dict[str, str] | None = None
    """The paths of the subresource from which PodDisruptionBudgets learn how many pods there should
    be, as a CRD names them; None: it has no pods."""

    @property
    def name(self) -> str:
        """Name of the CRD, and of the resource in roles: `trainruns.trainrun.dev`."""
        return f"{self.plural}.{GROUP}"

    @property
    def spec(self) -> type[BaseModel]:
        """The model of `spec`."""
        found = model_in(self.model.model_fields["spec"].annotation)
        assert found is not None, f"{self.kind} has no spec"
        return found

    @property
    def file_name(self) -> str:
        """Name of the CRD's file below crds/."""
        return f"{GROUP}_{self.plural}.yaml"

    def head(self) -> dict[str, Any]:
        """apiVersion and kind of an object."""
        return {"apiVersion": API_VERSION, "kind": self.kind}

    def path(self, namespace: str = "", name: str = "") -> str:
        """Path in the API: of an object, of all in a namespace, or of all that there are."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{GROUP}/{VERSION}{scope}/{self.plural}" + (f"/{name}" if name else "")

    def rights(self) -> set[tuple[str, str]]:
        """(resource, verb) of all that the operator must be allowed to do with the objects."""
        return {
            *((self.name, verb) for verb in self.verbs),
            (f"{self.plural}/status.{GROUP}", "update"),
        }


TRAINRUN = Resource(
    kind="TrainRun",
    plural="trainruns",
    short_names=("tr",),
    model=TrainRun,
    status=TrainRunStatus,
    max_name=MAX_NAME,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Workers", "string", ".status.workers.text"),
        Column("Step", "integer", ".status.progress.step"),
        Column("Posted", "string", ".status.posted.text"),
        Column("Failures", "string", ".status.failures.text"),
        Column("Restarts", "integer", ".status.restarts"),
        Column("Checkpoint", "integer", ".status.checkpoint.step"),
        Column("Saved", "date", ".status.checkpoint.time"),
        Column("Reason", "string", ".status.reason"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Attempt", "integer", ".status.attempt", wide=True),
        Column("Last cause", "string", ".status.incidents[-1:].cause", wide=True),
        Column("Last node", "string", ".status.incidents[-1:].node", wide=True),
    ),
    scale={
        "specReplicasPath": ".spec.workers.replicas",
        "statusReplicasPath": ".status.workers.ready",
        "labelSelectorPath": ".status.workers.selector",
    },
    # Deleted for spec.ttlAfterFinished; created, changed and deleted for sweeps.
    verbs=("get", "list", "watch", "create", "update", "delete"),
)
