"""The spec of a TrainSweep: what a user asks for; and its row among the resources.

Layer: api. Rules that CEL can express are here. CEL cannot see the values in the space, so rules
over the whole space are in `checks.py`, and the operator reports their problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from trainrun.sweep.search import Goal, SamplerName, ValueOf
from trainrun_operator.api.base import (
    API_VERSION,
    INT_OR_STRING,
    Hint,
    Model,
    Rule,
    refuse,
    unchangeable,
)
from trainrun_operator.api.duration import Duration, between
from trainrun_operator.api.resources import Column, ObjectMeta, Resource
from trainrun_operator.api.run.spec import (
    NO_LIMIT,
    CheckpointSpec,
    EndpointUrl,
    FailurePolicy,
    Health,
    Region,
    RunName,
    SecretReference,
    StorageUri,
    WorkersSpec,
)
from trainrun_operator.api.sweep import checks
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.api.sweep.stopping import EarlyStoppingSpec
from trainrun_operator.api.sweep.values import ParameterName, SearchedParameter, Value


def _quantity(value: object) -> object:
    """A rough check: the API server checks quantities exactly, when it creates the pod."""
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 32:
        refuse([((), 'must be a quantity such as "500m" or "1Gi"')])
    return value


Quantity = Annotated[Any, AfterValidator(_quantity), WithJsonSchema({INT_OR_STRING: True})]
"""A quantity of Kubernetes: 1, "500m", "1Gi"."""
Quantities = Annotated[dict[Annotated[str, Field(max_length=253)], Quantity], Field(max_length=16)]


class ClerkResources(Model):
    """Resources of the clerk's only container. Entries here replace the defaults of the same name,
    in requests and in limits."""

    requests: Quantities = Field(default_factory=dict)
    """What its node must have free. Default: cpu 50m, memory 128Mi."""
    limits: Quantities = Field(default_factory=dict)
    """The most that it may use. Default: memory 1Gi."""


class ClerkSpec(Model):
    """The pod that writes the log of a sweep in a cluster; `trainrun run` needs none."""

    replicas: Annotated[int, Field(ge=1, le=1)] = 1
    """Always 1: how many clerks a PodDisruptionBudget expects. Default 1."""
    resources: Annotated[ClerkResources, Hint("write resources: {limits: {cpu: 500m}}")] = (
        ClerkResources()
    )
    """Requests and limits of the clerk, for namespaces whose quota or LimitRange does not allow the
    defaults. A change replaces the clerk."""


MAX_SWEEP_NAME = 34
"""Characters: a trial's run is named `<sweep>-<number, 5 digits>-o<opening>`, and may have 48."""
MAX_TRIALS = 99_999
"""Trials of a sweep: numbers have five digits."""
TrialNumber = Annotated[int, Field(ge=0, le=MAX_TRIALS - 1)]


class SweepStorage(Model):
    """Where the log of the sweep and the folders of its trials are kept."""

    uri: StorageUri
    """Folder for sweeps: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or
    file:///path on a file system that every node mounts. The server must support writes that fail
    if the object exists. Cannot be changed."""
    sweep_name: RunName | None = None
    """Name of the sweep's folder below uri. Default: metadata.name. Cannot be changed."""
    endpoint_url: EndpointUrl | None = Field(default=None, alias="endpointURL")
    """Address of the server, such as an S3-compatible one. Default: AWS, Google or Azure. Not used
    for file:// storage."""
    region: Region | None = None
    """S3 region. Default: from the environment. Used for s3:// storage only."""
    credentials_secret_ref: Annotated[
        SecretReference | None, Hint("write credentialsSecretRef: {name: my-secret}")
    ] = None
    """Secret with the keys that a TrainRun's has."""
    on_existing: Literal["Resume", "Fail"] = "Resume"
    """What to do if the sweep's folder already holds a log. Resume: continue it, with all ended
    trials and the same parameters for every open one. Fail: do not start. Default Resume."""


class ObjectiveSpec(Model):
    """The metric to minimize or maximize."""

    metric: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the metric in trainrun.report. Cannot be changed."""
    goal: Goal
    """minimize or maximize; no default, since the wrong one finds the worst. Cannot be changed."""
    value: ValueOf = "last"
    """Which value counts for a trial. last: the value at its last step. best: its best value.
    Default last. Cannot be changed."""
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The sweep ends once a trial has reported a value as good as this. Default: none."""
    stop_on_nan: bool = Field(default=True, alias="stopOnNaN")
    """A trial ends once its value is not a number at two steps. Default true."""


class SamplerSpec(Model):
    """The method that chooses the parameters."""

    name: SamplerName = "Random"
    """Random: at random. Grid: every combination once, in an order drawn with the seed. TPE: near
    good trials. CmaEs: around a point that moves towards good trials, in ever smaller steps, for
    numbers. QMC: evenly spread. TPE and QMC need Optuna, CmaEs needs cmaes. Default Random. Cannot
    be changed."""
    seed: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """The same seed gives the same parameters. Default 0. Cannot be changed."""


class SweepBudget(Model):
    """How much the sweep may spend; raise it at any time, even after the sweep has ended."""

    trials: Annotated[int, Field(ge=1, le=MAX_TRIALS)] | None = None
    """Number of trials. Required except with the sampler Grid, whose default is the whole grid."""
    active_time: Annotated[Duration, between("1s", "87600h")] | None = None
    """Time with trials at work, summed over all sessions; time between them does not count. When it
    is spent, open trials are saved, and the sweep fails if no trial has ended with a value.
    Between 1s and 87600h. Default: no limit."""


class ResumeSpec(Model):
    """What happens to the trials when the sweep is resumed: applied again, on another cluster, or
    with a new token."""

    RULES = (
        Rule(
            cel="!(self.resumeErrored && self.restartErrored)",
            message="must not be true together with resumeErrored",
            holds=lambda flags: not (flags.resume_errored and flags.restart_errored),
            path=("restartErrored",),
        ),
    )

    resume_unfinished: bool = True
    """Open trials resume from their own checkpoints; false: they are skipped. Default true."""
    resume_errored: bool = False
    """Errored trials resume from their newest good checkpoint, with a fresh failure budget. Default
    false."""
    restart_errored: bool = False
    """Errored trials start again from scratch, with the same parameters. Default false."""
    token: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Add 1 to resume the same TrainSweep with these flags. Default 0."""


class SweepRetention(Model):
    """What is kept of ended trials."""

    best_checkpoints: Annotated[int, Field(ge=1, le=MAX_TRIALS)] | None = None
    """Number of trials, the best by the objective, whose checkpoints are kept. Open and errored
    trials, which may resume, also keep theirs. All else in the folders stays. Default: all."""
    failed_runs: Annotated[int, Field(ge=0, le=100)] = 5
    """Newest TrainRuns of errored trials that are kept for their logs, 0 to 100. Default 5."""


class TrialSpec(Model):
    """The TrainRun of every trial; the sweep sets its storage and suspension."""

    workers: WorkersSpec
    """The gang of workers of each trial."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """How checkpoints are read, saved and kept."""
    failure_policy: FailurePolicy = FailurePolicy()
    """How many failures each trial survives."""
    health: Health = Health()
    """When a worker counts as lost, and how long a gang may be placed only in part."""
    active_deadline: Annotated[Duration, between("1s", "87600h")] | None = None
    """A trial fails when it has not succeeded within this time. Default: no deadline."""


_PLACE = "a sweep keeps its storage; create a new one to use another"
_SEARCH = "earlier trials would not be comparable; create a new sweep with another sweepName"


class TrainSweepSpec(Model):
    """What the user asks for."""

    RULES = (
        Rule(
            cel="self.sampler.name == 'Grid' || has(self.budget.trials)",
            message="must be given except with the sampler Grid",
            holds=lambda spec: spec.sampler.name == "Grid" or spec.budget.trials is not None,
            path=("budget", "trials"),
        ),
    )
    CHANGES = (
        unchangeable("storage.uri", _PLACE),
        unchangeable("storage.sweepName", _PLACE),
        unchangeable("objective.metric", _SEARCH),
        unchangeable("objective.goal", _SEARCH),
        unchangeable("objective.value", _SEARCH),
        unchangeable("sampler.name", _SEARCH),
        unchangeable("sampler.seed", _SEARCH),
    )

    suspend: bool = False
    """true: save and stop all trials, and wait. Default false."""
    storage: Annotated[SweepStorage, Hint("write storage: {uri: file:///absolute/path}")]
    """Where the log of the sweep and the folders of its trials are kept."""
    objective: Annotated[
        ObjectiveSpec,
        Hint("write objective: {metric: loss, goal: minimize}, and report a sum for several goals"),
    ]
    """The metric to minimize or maximize."""
    space: Annotated[
        tuple[SearchedParameter, ...],
        Field(min_length=1, max_length=64),
        Hint("write space: [{name: lr, float: {low: 0.001, high: 0.1}}]"),
    ]
    """The parameters to search, in the order in which they are chosen. Cannot be changed."""
    fixed: Annotated[dict[ParameterName, Value], Field(max_length=64)] = Field(default_factory=dict)
    """Parameters with the same value in every trial. Cannot be changed."""
    first_trials: Annotated[tuple[dict[str, Value], ...], Field(max_length=256)] = ()
    """Parameters of the first trials; the sampler chooses what an entry leaves out. Cannot be
    changed."""
    sampler: Annotated[SamplerSpec, Hint("write sampler: {name: TPE}")] = SamplerSpec()
    """The method that chooses the parameters."""
    early_stopping: Annotated[
        EarlyStoppingSpec | None, Hint("write earlyStopping: {name: ASHA}")
    ] = None
    """Which trials end early. Default: none."""
    max_concurrent: Annotated[int, Field(ge=1, le=1000)] = 1
    """Trials at work at the same time. Lowering it stops no trial: the next ones wait. Default
    1."""
    max_unplaced: Annotated[int, Field(ge=1, le=1000)] = 1
    """Trials that may wait for room at the same time, so that their gangs do not starve each other.
    Default 1."""
    budget: Annotated[SweepBudget, Hint("write budget: {trials: 100}")] = SweepBudget()
    """How much the sweep may spend."""
    max_failed_trials: Annotated[int, Field(ge=-1, le=MAX_TRIALS), NO_LIMIT] = -1
    """Errored trials that the sweep survives. 0: the first one fails it. -1: no limit. Stopped and
    diverged trials do not count. Default -1."""
    resume: ResumeSpec = ResumeSpec()
    """What happens to the trials when the sweep is resumed."""
    paused_trials: Annotated[tuple[TrialNumber, ...], Field(max_length=256)] = ()
    """Trials that save and then wait until they are removed from this list."""
    stopped_trials: Annotated[tuple[TrialNumber, ...], Field(max_length=256)] = ()
    """Trials that end for good; they keep the value that they have."""
    retention: SweepRetention = SweepRetention()
    """What is kept of ended trials."""
    clerk: Annotated[ClerkSpec, Hint("write clerk: {resources: {limits: {cpu: 500m}}}")] = (
        ClerkSpec()
    )
    """The pod that writes the log in a cluster."""
    run: TrialSpec
    """The TrainRun of every trial."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self._problems())
        return self

    def _problems(self) -> Iterator[checks.Problem]:
        yield from checks.names_given_once(self.space, self.fixed)
        yield from checks.conditions(self.space)
        yield from checks.first_trials(self.space, self.first_trials)
        yield from checks.size(self.space, self.fixed)
        yield from checks.known_parameters(self.run.workers.template, self.space, self.fixed)
        if self.sampler.name == "Grid":
            yield from checks.grid(self.space)
            if self.first_trials:
                message = "must be absent with the sampler Grid, which tries every combination"
                yield ("firstTrials",), message
        if self.sampler.name == "CmaEs":
            yield from checks.numbers(self.space)
        for number in sorted({*self.paused_trials} & {*self.stopped_trials}):
            yield ("pausedTrials",), f"must not name trial {number}, since stoppedTrials names it"


class TrainSweep(Model):
    """Many trials of one training, each with parameters and a failure budget of its own."""

    api_version: Literal["trainrun.dev/v1alpha1"] = API_VERSION
    """trainrun.dev/v1alpha1."""
    kind: Literal["TrainSweep"] = "TrainSweep"
    """TrainSweep."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    spec: TrainSweepSpec
    """What the user asks for."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.metadata.name) > MAX_SWEEP_NAME:
            refuse([(("metadata", "name"), f"must be at most {MAX_SWEEP_NAME} characters")])
        return self

    @property
    def sweep_name(self) -> str:
        """Name of the sweep's folder: storage.sweepName, by default metadata.name."""
        return self.spec.storage.sweep_name or self.metadata.name


TRAINSWEEP = Resource(
    kind="TrainSweep",
    plural="trainsweeps",
    short_names=("ts",),
    model=TrainSweep,
    status=TrainSweepStatus,
    max_name=MAX_SWEEP_NAME,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Done", "string", ".status.trials.text"),
        Column("Open", "integer", ".status.trials.open"),
        Column("Best", "string", ".status.best.text"),
        Column("Best trial", "integer", ".status.best.trial"),
        Column("Errored", "integer", ".status.trials.errored"),
        Column("Reason", "string", ".status.reason"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    scale={"specReplicasPath": ".spec.clerk.replicas", "statusReplicasPath": ".status.clerks"},
    verbs=("get", "list", "watch"),
)
