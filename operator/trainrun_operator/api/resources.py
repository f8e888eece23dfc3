"""TrainRun as an object and as a row: everything that differs between custom resources.

Layer: api. The CRDs (api/crd.py, which has the table of all rows), the loading of YAML
(api/loading.py), the rights that the chart must grant (tests/chart/test_rights.py) and the
operator's watches read the rows. A new resource needs a row, a model and a status. The object here
has no status: users do not write it, and the core gets it separately.
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
"""Annotation of a TrainRun: each new value restarts the running gang once."""


class ObjectMeta(OpenModel):
    """metadata: the fields that TrainRun reads; all others are kept."""

    name: RunName
    """Name, a DNS label of at most 48 characters; at most 34 for a TrainSweep."""
    namespace: Annotated[str, Field(max_length=63)] = "default"
    """Namespace. Default: default."""
    uid: Annotated[str, Field(max_length=128)] = ""
    """Set by the API server; empty in a file."""
    generation: int = 0
    """Counts changes of the spec; set by the API server."""
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
    """The most characters that metadata.name may have."""
    columns: tuple[Column, ...]
    verbs: tuple[Verb, ...]
    """What the operator does with the objects; in addition it updates their status."""
    scale: dict[str, str] | None = None
    """The paths of the scale subresource, in the CRD's names, which shows PodDisruptionBudgets how
    many pods to expect; None: it has no pods."""

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
        """Path in the API of one object, of all in a namespace, or of all."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{GROUP}/{VERSION}{scope}/{self.plural}" + (f"/{name}" if name else "")

    def rights(self) -> set[tuple[str, str]]:
        """(resource, verb) of every right that the operator needs on the objects."""
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
        Column("Output", "string", ".status.output.text"),
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
    # delete: for spec.ttlAfterFinished; create, update and delete: for sweeps.
    verbs=("get", "list", "watch", "create", "update", "delete"),
)
