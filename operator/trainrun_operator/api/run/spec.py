"""The spec of a TrainRun: what a user asks for.

Layer: api. The docstrings of the fields become the descriptions in the CRD (`kubectl explain`), so
each gives unit, default and meaning. Invariants: optional means absent, never null; every list and
string is bounded; every default of the resource is here and nowhere else.
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
from trainrun_operator.api.run.folder import FolderSpec
from trainrun_operator.api.run.output import ProgressSpec
from trainrun_operator.api.run.rules import FailureRule

MAX_NAME = 48
"""Characters of a run name: pods are named `<run>-<slot>-<attempt>`, and a hostname may have 63."""
MANAGER = "trainrun.dev/operator"
"""This operator, in managedBy."""
MAX_IN_WINDOW = 64
"""Upper bound of the failure budgets with a window: the status keeps so many times of incidents."""
NO_LIMIT = Hint("use -1 for no limit")
MAX_FAILURES = 1_000_000
"""Upper bound of the failure budgets; far beyond what a run survives, and safe in any int."""

StorageUri = Annotated[
    str,
    Field(max_length=1024),
    matches(
        r"^(file:///[^?#]*[^?#/][^?#]*|"
        r"((s3|az)://[a-z0-9][a-z0-9.-]{1,61}|gs://[a-z0-9][a-z0-9._-]{1,61})[a-z0-9](/[^?#]*)?)$",
        "must be file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or "
        "az://container/prefix; a bucket has 3 to 63 characters (a-z, 0-9, . and -)",
    ),
]
"""The address of a folder in object storage or on a file system."""

EndpointUrl = Annotated[
    str,
    Field(max_length=1024),
    matches(r"^https?://[^/?#][^?#]*$", "must be http://host:port or https://host:port"),
]
"""Address of a store's server."""

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
    """A standby interpreter for each training process: it has done the slow imports, and takes over
    when the process must be started again."""

    preload: Annotated[tuple[ModuleName, ...], Field(min_length=1, max_length=16)] = ("torch",)
    """Modules that a standby imports, 1 to 16. torch means torch and what DDP, FSDP2, the
    optimizers and distributed checkpoints import in their first steps. Default torch."""


class WorkersSpec(Model):
    """The gang: identical workers that start, work and restart together."""

    replicas: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of workers, 1 to 1024. Default 1. Cannot be changed."""
    processes_per_worker: Annotated[int, Field(ge=1, le=64)] | None = None
    """Training processes per worker, 1 to 64; usually the number of its GPUs. The world size is
    replicas times this. Default: --nproc-per-node if the command begins with torchrun, else 1.
    Cannot be changed."""
    independent_ranks: Annotated[bool, Field(exclude_if=not_)] = False
    """true: the processes work separately on purpose, such as inference on one part of the data
    each. false: if several processes never connect to each other, the run gets the condition
    SeparateTrainings, and fails or succeeds with the reason NeverMet. Default false."""
    template: PodTemplate
    """Template of the worker pods. The container named "worker", or the only one, trains: each
    worker starts its command processesPerWorker times."""
    agent: Literal["Inject", "InImage"] = "Inject"
    """How the agent gets into the container that trains. Inject: the container fetches it from the
    operator; the image needs only Python 3.10 or newer. InImage: the image has the package trainrun
    installed. Not used by `trainrun run`. Default Inject."""
    warm_start: WarmStart | None = None
    """Keeps a standby interpreter for each training process, so that restarts in place take less
    than a second; new workers load theirs while the gang gathers. Each standby takes the memory of
    its imports, about 450 MB for torch, from the limit of the container, and is stopped if that
    runs short. Only for commands that run torchrun, or Python with a script or module. Default:
    none."""


class SecretReference(Model):
    """Names a Secret in the run's namespace."""

    name: SecretName
    """Name of the Secret, at most 253 characters."""


class StorageSpec(Model):
    """Where checkpoints and the records of the run are kept. (uri, runName) identifies the run."""

    uri: StorageUri
    """Folder for runs: s3://bucket/prefix, gs://bucket/prefix (Google Cloud Storage),
    az://container/prefix (Azure), or file:///path on a file system that every node mounts. gs and
    az need trainrun[stores] in the image. The server must support writes that fail if the object
    exists. Cannot be changed."""
    run_name: RunName | None = None
    """Name of the run's folder below uri, at most 48 characters. Default: metadata.name. Cannot be
    changed."""
    endpoint_url: EndpointUrl | None = Field(default=None, alias="endpointURL")
    """Address of the server, such as an S3-compatible one. Default: AWS, Google or Azure. Not used
    for file:// storage."""
    region: Region | None = None
    """S3 region. Default: from the worker's environment. Used for s3:// storage only."""
    credentials_secret_ref: Annotated[
        SecretReference | None, Hint("write credentialsSecretRef: {name: my-secret}")
    ] = None
    """Secret in the run's namespace whose keys become environment variables of the container that
    trains. s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if present, AWS_SESSION_TOKEN. gs:
    GOOGLE_SERVICE_ACCOUNT_KEY (JSON). az: AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY
    or AZURE_STORAGE_SAS_TOKEN. Default: the credentials of the template and its service account.
    Not used by `trainrun run`."""
    on_existing: Literal["Resume", "Fail", "StartFresh"] = "Resume"
    """What to do if the run's folder exists when this TrainRun first starts. Resume: continue from
    the newest good checkpoint of its newest generation. Fail: do not start. StartFresh: begin a new
    generation from scratch; the folder keeps its content. A TrainRun stays in its generation until
    it is deleted. Default Resume."""


class CheckpointSpec(Model):
    """How checkpoints are read, saved and kept."""

    # scoreOrder has no default: the wrong order would delete the best checkpoints.
    RULES = (
        Rule(
            cel="!has(self.scoreMetric) || has(self.scoreOrder)",
            message="must be given with scoreMetric: Max or Min, whichever value is the best",
            holds=lambda spec: spec.score_metric is None or spec.score_order is not None,
            path=("scoreOrder",),
        ),
        Rule(
            cel="!has(self.scoreOrder) || has(self.scoreMetric)",
            message="must name the metric where scoreOrder is given",
            holds=lambda spec: spec.score_order is None or spec.score_metric is not None,
            path=("scoreMetric",),
        ),
        Rule(
            cel="!self.buddy || has(self.uploadEvery)",
            message="must be given with buddy: without it every checkpoint is uploaded at once",
            holds=lambda spec: not spec.buddy or spec.upload_every is not None,
            path=("uploadEvery",),
        ),
    )

    on_notice: OnNotice = "Auto"
    """How a training stops on a notice, a suspension or an edit of the template. AskScript: its
    should_save() returns a save request; a script that never called it in this attempt is stopped
    at once. Signal: all processes of the run get SIGTERM at once, and SIGKILL when the grace is
    over (three quarters of the remaining time after a notice, else terminationGracePeriodSeconds of
    the template). Stop: they are killed at once. Auto: AskScript if any process has called
    should_save() in this attempt, else Signal. Default Auto."""
    initial_from: StorageUri | None = None
    """Folder with initial weights, which the script reads with get_initial_checkpoint(). Never
    used to resume. Default: none. Cannot be changed."""
    flush_timeout: Annotated[Duration, between("0s", "1h")] = Duration("30s")
    """How long a restart waits for uploads of steps that every rank has staged. The clock pauses
    while the store is unavailable, for at most an hour. With uploadEvery it is at least that long,
    up to 10 minutes, since repeating the steps may take as long. Between 0s, which waits for
    nothing, and 1h, default 30s."""
    max_pending: Annotated[int, Field(ge=1, le=16)] = 2
    """Checkpoints per worker that may wait for upload, 1 to 16; beyond that, a report with a
    checkpoint blocks. Each takes its size on the worker's disk. Default 2."""
    upload_every: Annotated[Duration, between("1s", "24h")] | None = None
    """Uploads the newest checkpoint that every rank has saved, this long after the last commit of
    the attempt, and at every end of an attempt. The others stay on the workers' disks, at most
    maxPending + 3 in all, until newer ones replace them. Between 1s and 24h. Default: every
    checkpoint is uploaded."""
    buddy: bool = False
    """true: copies each worker's part of the newest checkpoint to the disk of a worker on another
    node. If a worker is lost, its part is uploaded from there. Takes room for three checkpoints
    more. For runs with uploadEvery and two workers or more. Default false."""
    keep: Annotated[int, Field(ge=2, le=1000)] = 3
    """Newest checkpoints to keep in storage, 2 to 1000. The two newest and those that the last two
    attempts resumed from are never deleted. Default 3."""
    score_metric: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Keeps the best checkpoints by this metric instead of the newest. The name is that in
    trainrun.report, in the report with the checkpoint. Checkpoints without a number for it are the
    worst; of equal ones the newer is better. The checkpoints that keep never deletes stay in
    addition. Resuming still uses the newest. Default: none."""
    score_order: Literal["Max", "Min"] | None = None
    """Which value of scoreMetric is the best. Max: the greatest. Min: the least. Required with
    scoreMetric; no default."""
    folder: FolderSpec | None = None
    """The folder into which a script saves that nobody changes: its complete saves are stored, and
    put back before an attempt. An edit applies from the next attempt on. Default: none."""


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
    """Wait before the second restart in a row without a new step between them; the first restart
    does not wait. Between 0s and 1h, default 1s."""
    factor: Annotated[float, Field(ge=1, le=10)] = 2.0
    """Each further wait is this many times as long as the previous one, 1 to 10. Default 2."""
    max: Annotated[Duration, between("0s", "24h")] = Duration("60s")
    """Longest wait. Between 0s and 24h and not shorter than initial, default 60s."""


def _bounded(name: str, field: str, *, optional: bool) -> Rule:
    """With a window the status keeps the times of incidents, and it must stay small."""
    given = f"!has(self.{field}) || " if optional else ""
    return Rule(
        cel=f"!has(self.window) || {given}self.{field} <= {MAX_IN_WINDOW}",
        message=f"must be at most {MAX_IN_WINDOW}, or -1 for no limit, where window is given",
        holds=lambda policy: policy.window is None or (getattr(policy, name) or 0) <= MAX_IN_WINDOW,
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
    """Restarts that failures may cost. 0: the first failure fails the run. N: failure N+1 fails it.
    -1: no limit. All losses within one attempt are one failure. Default 0."""
    max_preemptions: Annotated[int | None, Field(ge=-1, le=MAX_FAILURES), NO_LIMIT] = None
    """Restarts that preemptions may cost. Absent: preemptions count against maxFailures. N or -1:
    they have a budget of their own, of this size. Default: absent."""
    max_start_failures: Annotated[int | None, Field(ge=-1, le=MAX_FAILURES), NO_LIMIT] = None
    """Restarts that failed starts may cost: a worker, or its command, never started. Absent: they
    count against maxFailures. N or -1: they have a budget of their own, of this size. Default:
    absent."""
    window: Annotated[Duration, between("1m", "87600h")] | None = None
    """Only incidents within this time count towards maxFailures, maxPreemptions and
    maxStartFailures: the run survives N of them within it. The counters in the status stay. With a
    window each of the three is at most 64, or -1. noProgressLimit ignores it. Between 1m and
    87600h. Default: incidents never expire."""
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
    """Failures of the script (AppError, OutOfMemory, Hung) in a row that fail the run if none of
    their attempts made progress: a step above any before, or, while the script has never reported a
    step, a minute of training. N: failure N fails the run. -1: no limit. Default: 5 if maxFailures
    is -1, else no limit, since maxFailures is a limit itself."""
    max_avoided_nodes: Annotated[int, Field(ge=0, le=32)] = 4
    """The most nodes that new workers avoid while other nodes have room, the worst first: nodes on
    which this run, or several runs of its namespace, recently lost workers, and nodes that a rule
    avoids. 0: none. 0 to 32, default 4. Not used by `trainrun run`, where each worker counts as a
    node."""
    backoff: BackoffSpec = BackoffSpec()
    """How long to wait before a restart."""
    rules: Annotated[tuple[FailureRule, ...], Field(max_length=20, exclude_if=not_)] = ()
    """What happens to the run after incidents of certain kinds: the first rule that matches
    decides. Rules see the incident with the loss that best explains the attempt's end. If none
    matches, the budget of its cause decides. At most 20. Default: none."""


class Health(Model):
    """When a worker counts as lost, and how long a gang may be placed only in part."""

    heartbeat_timeout: Annotated[Duration, between("3s", "1h")] = Duration("30s")
    """A worker is lost after this time without a heartbeat from its agent. Between 3s and 1h,
    default 30s."""
    start_timeout: Annotated[Duration, between("1s", "24h")] = Duration("5m")
    """A worker has failed to start if its agent sends no heartbeat within this time after its
    containers started, or if its image or configuration is missing for this long. Between 1s and
    24h, default 5m."""
    placement_timeout: Annotated[Duration, between("10s", "24h")] = Duration("10m")
    """If only a part of a gang finds room within this time, its pods are deleted and created again
    later, so that two gangs cannot block each other forever. Waiting for room is never a failure.
    Between 10s and 24h, default 10m."""
    progress_timeout: Annotated[Duration, between("5s", "24h")] | None = None
    """The attempt ends as Hung, charged to maxFailures, when no rank has reported a step for this
    long. Choose several times the slowest step, checkpoint included. It applies from the first step
    of an attempt on, but not while a rank is in a `trainrun.long_section()`, waits for the store,
    or saves on request. Between 5s and 24h. Default: no timeout."""
    first_step_timeout: Annotated[Duration, between("5s", "24h")] | None = None
    """The attempt ends as Hung when no rank has reported a first step this long after the last
    process started, or after the last process read its checkpoint. Only for scripts that call
    `trainrun.report()`. Between 5s and 24h. Default: no timeout."""
    hang_policy: Literal["Observe", "Restart"] = "Observe"
    """What happens to an attempt that makes no progress, if the timeout is not set but learned from
    the steps of the run. Observe: the run gets the condition Hung, and continues. Restart: the
    attempt ends as Hung, charged to maxFailures, also if a `trainrun.long_section()` exceeds its
    limit. Ranks that never reported a step are only observed. Default Observe."""
    force_delete_pods: bool = True
    """true: pods on lost nodes are deleted by force, since no kubelet can confirm their end;
    processes still running there cannot commit. false: they are deleted without force, and hold
    quota and volumes until the node is back or a user deletes them; the condition PodsKept names
    them. New pods replace them at once in both cases. Default true. Not used by `trainrun run`."""


class TrainRunSpec(Model):
    """What the user asks for."""

    RULES = (
        Rule(
            cel="!self.checkpoint.buddy || self.workers.replicas > 1",
            message="must be false where workers.replicas is 1: no worker is on another node",
            holds=lambda spec: not spec.checkpoint.buddy or spec.workers.replicas > 1,
            path=("checkpoint", "buddy"),
        ),
    )
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
    """The controller that leads the run, as in a Job. If it is not trainrun.dev/operator, the
    operator leaves the run to that other controller. Cannot be changed. Default:
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
    progress: ProgressSpec = ProgressSpec()
    """Where steps and metrics come from if the script does not call `trainrun.report()`."""
    health: Health = Health()
    """When a worker counts as lost, and how long a gang may be placed only in part."""
    active_deadline: Annotated[Duration, between("1s", "87600h")] | None = None
    """The run fails when it has not succeeded within this time after its start, or after it was
    last resumed from suspension. Between 1s and 87600h. Default: no deadline."""
    ttl_after_finished: Annotated[Duration, between("0s", "87600h")] | None = None
    """The TrainRun and its pods are deleted this long after the end, but not before the workers
    have ended, which takes at most a minute; the storage is not touched. Between 0s and 87600h.
    Default: never deleted."""
    retain_failed_workers: Annotated[int, Field(ge=0, le=100)] = 1
    """Ended workers of earlier attempts whose pods are kept for their logs while the run continues,
    0 to 100; older ones are deleted. Those of the last attempt are always kept, unless a
    quota on count/pods refuses other workers. Default 1. Not used by `trainrun run`, which keeps
    all output."""
