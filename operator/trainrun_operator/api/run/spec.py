"""The spec of a TrainRun: what a user asks for.

Layer: api. The docstrings of the fields become the descriptions in the CRD (`kubectl explain`), so
each gives unit, default and meaning. Invariants: optional means absent, never null; every list and
string is bounded; every default of the resource stands here and nowhere else.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from trainrun.contract.answer import OnNotice
from trainrun_operator.api.base import Hint, Model, Rule, matches, unchangeable
from trainrun_operator.api.duration import Duration, between
from trainrun_operator.api.pod_template import PodTemplate
from trainrun_operator.api.run.edits import REFUSED
from trainrun_operator.api.run.rules import FailureRule

MAX_NAME = 48
"""Characters of a run name: pods are named `<run>-<slot>-<attempt>` and a hostname has 63."""
MANAGER = "trainrun.dev/operator"
"""This operator, in managedBy."""
MAX_IN_WINDOW = 64
"""Upper bound of the failure budgets with a window: of so many incidents the time is remembered."""
NO_LIMIT = Hint("use -1 for no limit")
MAX_FAILURES = 1_000_000
"""Upper bound of the failure budgets; far beyond what a run survives, and safe in any int."""

StorageUri = Annotated[
    str,
    Field(max_length=1024),
    matches(
        r"^(file:///[^?#]*[^?#/][^?#]*|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^?#]*)?)$",
        "must be file:///absolute/path or s3://bucket/prefix; a bucket has 3 to 63 characters "
        "(a-z, 0-9, . and -)",
    ),
]
"""The address of a folder in object storage or on a file system."""

EndpointUrl = Annotated[
    str,
    Field(max_length=1024),
    matches(r"^https?://[^/?#][^?#]*$", "must be http://host:port or https://host:port"),
]
"""Address of an S3-compatible server."""

Region = Annotated[
    str,
    Field(max_length=64),
    matches(r"^[a-z0-9-]+$", "must be the name of a region such as eu-central-1"),
]
"""A region of S3."""

RunName = Annotated[
    str,
    Field(max_length=MAX_NAME),
    matches(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "must consist of lower case letters, digits and dashes, and begin and end with a letter "
        "or digit",
    ),
]
"""A DNS label."""


SecretName = Annotated[
    str,
    Field(max_length=253),
    matches(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "must be the name of a Secret: lower case letters, digits, dashes and dots, and begin and "
        "end with a letter or digit",
    ),
]
"""A DNS subdomain."""


ModuleName = Annotated[
    str,
    Field(max_length=128),
    matches(
        r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
        "must be the name of a Python module such as torch or transformers",
    ),
]
"""As `import` takes it."""


class WarmStart(Model):
    """A standby interpreter beside each training process: it has imported what takes long, and
    takes over when the process has to be started again."""

    preload: Annotated[tuple[ModuleName, ...], Field(min_length=1, max_length=16)] = ("torch",)
    """Modules that a standby imports, 1 to 16. torch stands for itself and what DDP, FSDP2, the
    optimizers and distributed checkpoints import in their first steps. Default torch."""


class WorkersSpec(Model):
    """The gang: identical workers that start, work and restart together."""

    replicas: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of workers, 1 to 1024. Default 1. Cannot be changed."""
    processes_per_worker: Annotated[int, Field(ge=1, le=64)] | None = None
    """Training processes per worker, 1 to 64; usually the GPUs of a worker. Default: what the
    command says, if it begins with torchrun (--nproc-per-node), else 1. The world size is replicas
    times this. Cannot be changed."""
    independent_ranks: Annotated[bool, Field(exclude_if=not_)] = False
    """true: the processes work apart on purpose, such as inference on a part of the data each.
    false: where several processes never meet, the condition SeparateTrainings says so, and the run
    fails or succeeds with the reason NeverMet. Default false."""
    template: PodTemplate
    """Template of the worker pods. The container named "worker", or the only one, trains: its
    command is started processesPerWorker times in each worker."""
    agent: Literal["Inject", "InImage"] = "Inject"
    """How the agent gets into the container that trains. Inject: the container fetches it from the
    operator; the image needs Python 3.10 or newer and nothing else. InImage: the image has the
    package trainrun installed. Not used by `trainrun run`. Default Inject."""
    warm_start: WarmStart | None = None
    """Keeps a standby interpreter beside each training process, for restarts in place within a
    second; new workers load theirs while the gang gathers. Each takes the memory of its imports,
    about 450 MB for torch, within the limit of the container, and is given up where that runs
    short. Only for commands that are a Python and a script or module, or torchrun. Default:
    none."""


class SecretReference(Model):
    """Names a Secret in the run's namespace."""

    name: SecretName
    """Name of the Secret, at most 253 characters."""


class StorageSpec(Model):
    """Where checkpoints and the records of the run are kept. (uri, runName) identifies it."""

    uri: StorageUri
    """Folder for runs: s3://bucket/prefix, or file:///path on a file system that every node
    mounts. The server must be able to write an object only where none is. Cannot be changed."""
    run_name: RunName | None = None
    """Name of the run's own folder below uri, at most 48 characters. Default: metadata.name. Cannot
    be changed."""
    endpoint_url: EndpointUrl | None = Field(default=None, alias="endpointURL")
    """Address of an S3-compatible server. Default: AWS. Not used for file:// storage."""
    region: Region | None = None
    """S3 region. Default: that of the worker's environment. Not used for file:// storage."""
    credentials_secret_ref: Annotated[
        SecretReference | None, Hint("write credentialsSecretRef: {name: my-secret}")
    ] = None
    """Secret in the run's namespace whose keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, where
    it is there, AWS_SESSION_TOKEN become environment variables of the container that trains.
    Default: what the template and its service account give. Not used by `trainrun run`."""
    on_existing: Literal["Resume", "Fail", "StartFresh"] = "Resume"
    """What to do when the run's folder is there already at this TrainRun's first start. Resume:
    continue from the newest good checkpoint of its newest generation. Fail: do not start.
    StartFresh: begin a new generation, from nothing; the folder keeps what it holds. A TrainRun
    stays in its generation until it is deleted. Default Resume."""


class CheckpointSpec(Model):
    """How checkpoints are read, saved and kept."""

    # No default of the order: by the wrong one the best checkpoints would be deleted.
    RULES = (
        Rule(
            cel="!has(self.scoreMetric) || has(self.scoreOrder)",
            message="must say, where scoreMetric is given, which value is the best: Max or Min",
            holds=lambda it: it.score_metric is None or it.score_order is not None,
            path=("scoreOrder",),
        ),
        Rule(
            cel="!has(self.scoreOrder) || has(self.scoreMetric)",
            message="must name the metric where scoreOrder is given",
            holds=lambda it: it.score_order is None or it.score_metric is not None,
            path=("scoreMetric",),
        ),
    )

    on_notice: OnNotice = "Auto"
    """What becomes of a training that has to stop: on a notice, a suspension, an edit of the
    template. AskScript: its should_save() says so; a script that never called it in this attempt is
    stopped at once. Signal: all processes of the run get SIGTERM at once, and are killed when the
    grace is over (after a notice three quarters of the time that is left, else
    terminationGracePeriodSeconds of the template). Stop: they are killed at once. Auto: AskScript
    where some process has called should_save() in this attempt, else Signal. Default Auto."""
    initial_from: StorageUri | None = None
    """Folder with initial weights, which the script reads with get_initial_checkpoint(). Never
    used to resume. Default: none. Cannot be changed."""
    flush_timeout: Annotated[Duration, between("0s", "1h")] = Duration("30s")
    """How long a restart waits for uploads of steps that every rank has staged. While the store is
    away this time stands still, for an hour at most. Between 0s and 1h, default 30s."""
    max_pending: Annotated[int, Field(ge=1, le=16)] = 2
    """Checkpoints per worker that may wait for their upload, 1 to 16; when it is full, a report
    with a checkpoint waits. Default 2. Each takes its size on the worker's disk."""
    keep: Annotated[int, Field(ge=2, le=1000)] = 3
    """Newest checkpoints to keep in storage, 2 to 1000. Default 3. The two newest and those that
    the last two attempts resumed from are never deleted."""
    score_metric: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Metric by which the best checkpoints are kept instead of the newest, as trainrun.report names
    it, in the report that brings the checkpoint. Checkpoints without a number for it are the worst;
    of equal ones the newer is better. What keep says is never deleted stays besides. Resuming goes
    by the newest all the same. Default: none."""
    score_order: Literal["Max", "Min"] | None = None
    """Which value of scoreMetric is the best. Max: the greatest. Min: the least. To be given with
    scoreMetric, without a default."""


class BackoffSpec(Model):
    """How long to wait before a restart."""

    RULES = (
        Rule(
            cel="duration(self.max) >= duration(self.initial)",
            message="must not be shorter than backoff.initial",
            holds=lambda backoff: backoff.max.timedelta >= backoff.initial.timedelta,
            path=("max",),
        ),
    )

    initial: Annotated[Duration, between("0s", "1h")] = Duration("1s")
    """Wait before the second restart in a row without a new step between them; the first is at
    once. Between 0s and 1h, default 1s."""
    factor: Annotated[float, Field(ge=1, le=10)] = 2.0
    """Each further wait is this many times the previous one, 1 to 10. Default 2."""
    max: Annotated[Duration, between("0s", "24h")] = Duration("60s")
    """Longest wait. Between 0s and 24h and not shorter than initial, default 60s."""


def _bounded(name: str, field: str, *, optional: bool) -> Rule:
    """With a window the times of incidents are remembered, and a status is small."""
    given = f"!has(self.{field}) || " if optional else ""
    return Rule(
        cel=f"!has(self.window) || {given}self.{field} <= {MAX_IN_WINDOW}",
        message=f"must be at most {MAX_IN_WINDOW}, or -1 for no limit, where window is given",
        holds=lambda it: it.window is None or (getattr(it, name) or 0) <= MAX_IN_WINDOW,
        path=(field,),
    )


class FailurePolicy(Model):
    """How many failures a run survives."""

    RULES = (
        _bounded("max_failures", "maxFailures", optional=False),
        _bounded("max_preemptions", "maxPreemptions", optional=True),
        _bounded("max_start_failures", "maxStartFailures", optional=True),
    )

    max_failures: Annotated[int, Field(ge=-1, le=MAX_FAILURES), NO_LIMIT] = 0
    """Restarts that failures may cost. 0: the first failure fails the run. N: N restarts, and the
    N+1st failure fails it. -1: no limit. All losses within one attempt are one failure. Default
    0."""
    max_preemptions: Annotated[int | None, Field(ge=-1, le=MAX_FAILURES), NO_LIMIT] = None
    """Restarts that preemptions may cost. Absent: preemptions count against maxFailures. N or -1:
    they have this budget of their own. Default: absent."""
    max_start_failures: Annotated[int | None, Field(ge=-1, le=MAX_FAILURES), NO_LIMIT] = None
    """Restarts that failed starts may cost: a worker, or its command, that never came to run.
    Absent: they count against maxFailures. N or -1: they have this budget of their own. Default:
    absent."""
    window: Annotated[Duration, between("1m", "87600h")] | None = None
    """Only incidents of the last so long count towards maxFailures, maxPreemptions and
    maxStartFailures: N of them within this time are survived. The counters in the status stay.
    With it each of the three is at most 64, or -1. noProgressLimit does not depend on it. Between
    1m and 87600h. Default: incidents count for ever."""
    no_progress_limit: (
        Annotated[
            int,
            Field(ge=-1, le=MAX_FAILURES),
            NO_LIMIT,
            Rule(
                cel="self != 0",
                message="must be at least 1, or -1 for no limit",
                holds=lambda value: value != 0,
            ),
        ]
        | None
    ) = None
    """Failures of the script (AppError, OutOfMemory, Hung) in a row that fail the run, where none
    of their attempts got further: to a step above any before, or, while the script has never
    reported a step, to a minute of training. N: the Nth fails it. -1: no limit. Default: 5 where
    maxFailures is -1, else no limit, since maxFailures is a bound of its own."""
    max_avoided_nodes: Annotated[int, Field(ge=0, le=32)] = 4
    """Nodes that new workers are put on only where no other has room, at most, the worst first:
    those on which this run, or several runs of its namespace, have lost workers lately, and those
    that a rule keeps it away from. 0: none. 0 to 32, default 4. Not used by `trainrun run`, where
    each worker is a node of its own."""
    backoff: BackoffSpec = BackoffSpec()
    """How long to wait before a restart."""
    rules: Annotated[tuple[FailureRule, ...], Field(max_length=20, exclude_if=not_)] = ()
    """What becomes of the run after incidents of certain kinds: the first rule that matches
    decides. They see the incident with the best explanation of all losses of the attempt. Where
    none matches, the budget of its cause decides. At most 20. Default: none."""


class Health(Model):
    """When a worker counts as lost, and how long a gang may be placed only in part."""

    heartbeat_timeout: Annotated[Duration, between("3s", "1h")] = Duration("30s")
    """A worker is lost after this time without a heartbeat of its agent. Between 3s and 1h, default
    30s."""
    start_timeout: Annotated[Duration, between("1s", "24h")] = Duration("5m")
    """A worker has failed to start when its agent has not called within this time after its
    containers started, or when its image or its configuration is missing for this long. Between
    1s and 24h, default 5m."""
    placement_timeout: Annotated[Duration, between("10s", "24h")] = Duration("10m")
    """When only a part of a gang has found room within this time, its pods are deleted and created
    again later, so two gangs never block each other for ever. Waiting for room is never a failure.
    Between 10s and 24h, default 10m."""
    progress_timeout: Annotated[Duration, between("5s", "24h")] | None = None
    """The attempt ends as Hung, charged to maxFailures, when no rank has reported a step for this
    long. Choose several times what the slowest step takes, checkpoint included. It holds from the
    first step of an attempt on, and not while a rank is in a `trainrun.long_section()`, waits for
    the store, or saves on request. Between 5s and 24h. Default: hangs are not looked for."""
    first_step_timeout: Annotated[Duration, between("5s", "24h")] | None = None
    """The attempt ends as Hung when no rank has reported a first step this long after the last
    process was started, or after the last of them had read its checkpoint. Only for scripts that
    call `trainrun.report()`. Between 5s and 24h. Default: waited for without end."""
    hang_policy: Literal["Observe", "Restart"] = "Observe"
    """What becomes of an attempt that stands still, where the timeout for that is not set and was
    learned from the steps of the run. Observe: the condition Hung tells of it, and nothing is
    ended. Restart: the attempt ends as Hung, charged to maxFailures; so it does where a
    `trainrun.long_section()` takes longer than it may. Ranks that never reported are only ever
    observed. Default Observe."""
    force_delete_pods: bool = True
    """Pods on lost nodes are deleted by force, since no kubelet can confirm their end; what still
    runs there cannot commit. false: they are deleted without force, and hold quota and volumes
    until the node is back or somebody deletes them; the condition PodsKept names them. Others take
    their place at once all the same. Default true. Not used by `trainrun run`."""


class TrainRunSpec(Model):
    """What the user asks for."""

    CHANGES = tuple(unchangeable(edit.path, edit.note) for edit in REFUSED)

    managed_by: (
        Annotated[
            str,
            Field(max_length=63),
            matches(
                r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/"
                r"[A-Za-z0-9/._~-]+$",
                "must be a domain and a path such as example.com/controller",
            ),
        ]
        | None
    ) = None
    """The controller that leads the run, as in a Job: where it is not trainrun.dev/operator, the
    operator does nothing about the run, and another controller does. Cannot be changed. Default:
    trainrun.dev/operator. Not used by `trainrun run`."""
    suspend: bool = False
    """true: save a checkpoint, stop all workers, and wait. false: run, or continue. Never counts as
    a failure. Default false."""
    workers: WorkersSpec
    """The gang of workers."""
    storage: StorageSpec
    """Where checkpoints and the records of the run are kept."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """How checkpoints are read, saved and kept."""
    failure_policy: FailurePolicy = FailurePolicy()
    """How many failures the run survives."""
    health: Health = Health()
    """When a worker counts as lost, and how long a gang may be placed only in part."""
    active_deadline: Annotated[Duration, between("1s", "87600h")] | None = None
    """The run fails when it has not succeeded within this time after its start, or after it was
    last resumed from suspension. Between 1s and 87600h. Default: no deadline."""
    ttl_after_finished: Annotated[Duration, between("0s", "87600h")] | None = None
    """The TrainRun and its pods are deleted this long after the end, and not before the workers
    have left, which takes at most a minute; the storage is not touched. Between 0s and 87600h.
    Default: kept until somebody deletes it."""
    retain_failed_workers: Annotated[int, Field(ge=0, le=100)] = 1
    """Ended workers of earlier attempts whose pods are kept for their logs while the run goes on,
    0 to 100; older ones are deleted. Those of the last attempt are always kept, unless a
    quota on count/pods refuses other workers. Default 1. Not used by `trainrun run`, which keeps
    all output."""
