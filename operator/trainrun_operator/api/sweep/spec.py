"""The spec of a TrainSweep: what a user asks for; and its row among the resources.

Layer: api. What CEL can say stands here as rules; what goes over the space as a whole, whose values
CEL cannot see, stands in `checks.py`, and is told by the operator.
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
    """The API server knows best what a quantity is, and says so where it refuses the pod."""
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 32:
        refuse([((), 'must be a quantity, as "500m" or "1Gi"')])
    return value


Quantity = Annotated[Any, AfterValidator(_quantity), WithJsonSchema({INT_OR_STRING: True})]
"""As Kubernetes writes it: 1, "500m", "1Gi"."""
Quantities = Annotated[dict[Annotated[str, Field(max_length=253)], Quantity], Field(max_length=16)]


class ClerkResources(Model):
    """Of the clerk's one container. What is named here takes the place of its default, in both."""

    requests: Quantities = Field(default_factory=dict)
    """What its node must have free. Default cpu 50m, memory 128Mi."""
    limits: Quantities = Field(default_factory=dict)
    """What it may use. Default memory 1Gi."""


class ClerkSpec(Model):
    """The pod that keeps the log of a sweep in a cluster; `trainrun run` needs none."""

    replicas: Annotated[int, Field(ge=1, le=1)] = 1
    """Always 1: how many clerks a PodDisruptionBudget expects. Default 1."""
    resources: Annotated[ClerkResources, Hint("write resources: {limits: {cpu: 500m}}")] = (
        ClerkResources()
    )
    """Its requests and limits, for namespaces whose quota or LimitRange asks for other ones than
    the default. A change makes a new clerk."""


MAX_SWEEP_NAME = 34
"""Characters: a trial's run is called `<sweep>-<number, 5 digits>-o<opening>`, and has 48."""
MAX_TRIALS = 99_999
"""Trials of a sweep: numbers have five digits."""
TrialNumber = Annotated[int, Field(ge=0, le=MAX_TRIALS - 1)]


class SweepStorage(Model):
    """Where the log of the sweep and the folders of its trials are kept."""

    uri: StorageUri
    """Folder for sweeps: s3://bucket/prefix, or file:///path on a file system that every node
    mounts. The server must be able to write an object only where none is. Cannot be changed."""
    sweep_name: RunName | None = None
    """Name of the sweep's own folder below uri. Default: metadata.name. Cannot be changed."""
    endpoint_url: EndpointUrl | None = Field(default=None, alias="endpointURL")
    """Address of an S3-compatible server. Default: AWS. Not used for file:// storage."""
    region: Region | None = None
    """S3 region. Default: that of the environment. Not used for file:// storage."""
    credentials_secret_ref: Annotated[
        SecretReference | None, Hint("write credentialsSecretRef: {name: my-secret}")
    ] = None
    """Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as for a TrainRun."""
    on_existing: Literal["Resume", "Fail"] = "Resume"
    """What to do when the sweep's folder holds a log already. Resume: go on with it, with every
    trial that has ended and the same parameters for every open one. Fail: do not start. Default
    Resume."""


class ObjectiveSpec(Model):
    """What is to be as small, or as great, as possible."""

    metric: Annotated[str, Field(min_length=1, max_length=256)]
    """As trainrun.report names it. Cannot be changed."""
    goal: Goal
    """minimize or maximize; no default, since the wrong one finds the worst. Cannot be changed."""
    value: ValueOf = "last"
    """Which of a trial's values is its own. last: that of its last step. best: its best one.
    Default last. Cannot be changed."""
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The sweep is over once some trial has reported a value as good as this. Default: none."""
    stop_on_nan: bool = Field(default=True, alias="stopOnNaN")
    """A trial whose value is not a number at two steps is ended. Default true."""


class SamplerSpec(Model):
    """Who chooses the parameters."""

    name: SamplerName = "Random"
    """Random: by chance. Grid: every combination, once, in an order drawn by the seed. TPE: near
    the trials that were good. CmaEs: around a point that moves towards them, closer and closer, for
    numbers. QMC: evenly spread. TPE and QMC need Optuna, CmaEs needs cmaes. Default Random. Cannot
    be changed."""
    seed: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """The same seed gives the same parameters. Default 0. Cannot be changed."""


class SweepBudget(Model):
    """How much may be spent; it may be raised at any time, also once the sweep has ended."""

    trials: Annotated[int, Field(ge=1, le=MAX_TRIALS)] | None = None
    """Trials to try. Required, but with the sampler Grid: there the default is the whole grid."""
    active_time: Annotated[Duration, between("1s", "87600h")] | None = None
    """Time with trials at work, summed over all sessions; time between them is not counted. The
    open trials are saved when it is spent, and the sweep has failed where no trial has ended with a
    value by then. Between 1s and 87600h. Default: no limit."""


class ResumeSpec(Model):
    """What becomes of the trials when the sweep is taken up again: applied anew, on another
    cluster, or with a new token."""

    RULES = (
        Rule(
            cel="!(self.resumeErrored && self.restartErrored)",
            message="must not be true together with resumeErrored",
            holds=lambda it: not (it.resume_errored and it.restart_errored),
            path=("restartErrored",),
        ),
    )

    resume_unfinished: bool = True
    """Open trials go on from their own checkpoints; false: they are skipped. Default true."""
    resume_errored: bool = False
    """Errored trials go on from their newest good checkpoint, with a fresh failure budget. Default
    false."""
    restart_errored: bool = False
    """Errored trials begin again from nothing, with the same parameters. Default false."""
    token: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Add 1 to take the same TrainSweep up again with these flags. Default 0."""


class SweepRetention(Model):
    """What is kept of trials that have ended."""

    best_checkpoints: Annotated[int, Field(ge=1, le=MAX_TRIALS)] | None = None
    """Trials whose checkpoints are kept, the best ones by the objective; besides those of open and
    errored trials, which may go on from them. All else in their folders stays. Default: all."""
    failed_runs: Annotated[int, Field(ge=0, le=100)] = 5
    """TrainRuns of errored trials that are kept for their logs, the newest ones, 0 to 100. Default
    5."""


class TrialSpec(Model):
    """What every trial is: a TrainRun whose storage and suspension the sweep decides."""

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


_PLACE = "a sweep stays where it is; create a new one for another place"
_SEARCH = "what was learned would be of something else; create a new sweep with another sweepName"


class TrainSweepSpec(Model):
    """What the user asks for."""

    RULES = (
        Rule(
            cel="self.sampler.name == 'Grid' || has(self.budget.trials)",
            message="must be given, but with the sampler Grid",
            holds=lambda it: it.sampler.name == "Grid" or it.budget.trials is not None,
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
    """What is to be as small, or as great, as possible."""
    space: Annotated[
        tuple[SearchedParameter, ...],
        Field(min_length=1, max_length=64),
        Hint("write space: [{name: lr, float: {low: 0.001, high: 0.1}}]"),
    ]
    """The parameters that are searched, in the order in which they are chosen. Cannot be
    changed."""
    fixed: Annotated[dict[ParameterName, Value], Field(max_length=64)] = Field(default_factory=dict)
    """Parameters that every trial gets as they are. Cannot be changed."""
    first_trials: Annotated[tuple[dict[str, Value], ...], Field(max_length=256)] = ()
    """Parameters to try first; what one of them leaves out is chosen by the sampler. Cannot be
    changed."""
    sampler: Annotated[SamplerSpec, Hint("write sampler: {name: TPE}")] = SamplerSpec()
    """Who chooses the parameters."""
    early_stopping: Annotated[
        EarlyStoppingSpec | None, Hint("write earlyStopping: {name: ASHA}")
    ] = None
    """Which trials are ended before their time. Default: none."""
    max_concurrent: Annotated[int, Field(ge=1, le=1000)] = 1
    """Trials at work at the same time. Lowered, it ends none: the next ones wait. Default 1."""
    max_unplaced: Annotated[int, Field(ge=1, le=1000)] = 1
    """Trials that may wait for room at the same time, so that their gangs do not starve each other.
    Default 1."""
    budget: Annotated[SweepBudget, Hint("write budget: {trials: 100}")] = SweepBudget()
    """How much may be spent."""
    max_failed_trials: Annotated[int, Field(ge=-1, le=MAX_TRIALS), NO_LIMIT] = -1
    """Errored trials that the sweep survives. 0: the first one fails it. -1: no limit. Those that
    were stopped or have diverged do not count. Default -1."""
    resume: ResumeSpec = ResumeSpec()
    """What becomes of the trials when the sweep is taken up again."""
    paused_trials: Annotated[tuple[TrialNumber, ...], Field(max_length=256)] = ()
    """Trials that are saved and wait until they are taken out of this list."""
    stopped_trials: Annotated[tuple[TrialNumber, ...], Field(max_length=256)] = ()
    """Trials that are ended for good; they keep the value that they have."""
    retention: SweepRetention = SweepRetention()
    """What is kept of trials that have ended."""
    clerk: Annotated[ClerkSpec, Hint("write clerk: {resources: {limits: {cpu: 500m}}}")] = (
        ClerkSpec()
    )
    """The pod that keeps the log in a cluster."""
    run: TrialSpec
    """What every trial is."""

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
                message = "must be absent with the sampler Grid, which tries all there is"
                yield ("firstTrials",), message
        if self.sampler.name == "CmaEs":
            yield from checks.numbers(self.space)
        for number in sorted({*self.paused_trials} & {*self.stopped_trials}):
            yield ("pausedTrials",), f"must not name trial {number}, which stoppedTrials names"


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
