"""The configuration of a run, for decisions and for its agents, made from the spec of the TrainRun.

Layer: core. Nothing here sets a default: those of the resource are in `api/run/spec.py`. Worlds
fill in the identity and place of each agent.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from trainrun.contract import layout
from trainrun.contract.agent_config import AgentConfig, StorageConfig
from trainrun.contract.answer import FolderRule, OnNotice, OutputPattern, RunSettings
from trainrun_operator.api.duration import Duration
from trainrun_operator.api.resources import RESTART, TrainRun
from trainrun_operator.api.run.folder import FolderSpec
from trainrun_operator.api.run.launching import folder_problem, launching_of
from trainrun_operator.api.run.rules import FailureRule
from trainrun_operator.api.run.spec import CheckpointSpec, FailurePolicy, StorageSpec, WorkersSpec
from trainrun_operator.api.sweep.spec import SweepStorage
from trainrun_operator.core.run.causes import BUDGETS, Limits, limits_of

MAX_FACT = 120
"""Characters of one value of the spec in the story."""


def facts_of(run: TrainRun, template: str) -> tuple[tuple[str, str], ...]:
    """Values for the story, named as in the spec; the hash shows every edit of the template."""
    spec = run.spec
    facts = {
        "image": _image(spec.workers),
        "template": template,
        "replicas": str(spec.workers.replicas),
        "keep": str(spec.checkpoint.keep),
    }
    limits = limits_of(spec.failure_policy)
    facts |= {BUDGETS[name].field: str(limit) for name, limit in limits.items()}
    return tuple((name, value[:MAX_FACT]) for name, value in facts.items() if value)


def _image(workers: WorkersSpec) -> str:
    """The image of the container that trains."""
    training = workers.template.spec.training
    return str(training.model_dump(mode="json", by_alias=True).get("image") or "")


NO_PROGRESS_LIMIT = 5
"""failurePolicy.noProgressLimit where maxFailures is -1 and the spec says nothing."""

LONG_FLUSH = timedelta(minutes=10)
"""How far uploadEvery extends checkpoint.flushTimeout at most: the store may never take a step."""

HASH_DIGITS = 12
"""Hexadecimal digits of a template hash: it also becomes a label value (at most 63 characters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What decide() needs of a run's spec and identity."""

    name: str
    uid: str
    replicas: int
    keeps_standbys: bool = False
    """workers.warmStart is given."""
    processes_per_worker: int
    independent_ranks: bool = False
    """Its ranks work independently on purpose."""
    container: str
    """Name of the container that trains."""
    launch_problem: str
    """Why the command of the workers cannot be run; "": it can."""
    template_hash: str
    facts: tuple[tuple[str, str], ...] = ()
    """What an attempt is started with, for people: `explain` shows what has changed."""
    storage: StorageConfig
    """Where workers find their storage."""
    checkpoints_uri: str
    """`<uri>/<runName>/checkpoints`, for display; those of a later generation are below."""
    suspend: bool
    restart: str
    """Hash of the annotation that asks for a restart; "": there is none."""
    on_existing: Literal["Resume", "Fail", "StartFresh"]
    limits: Limits
    """Of the budgets in the spec; -1: no limit."""
    window: timedelta | None
    """Only incidents within this time count towards a limit; None: all do."""
    no_progress_limit: int
    """Incidents in a row without progress that end the run; 0: no number does."""
    max_avoided_nodes: int
    """How many nodes the run avoids at most; 0: none, and workers also stay where they are."""
    rules: tuple[FailureRule, ...]
    """Of the failure policy: the first that matches an incident decides."""
    backoff_initial: timedelta
    backoff_factor: float
    backoff_max: timedelta
    heartbeat_timeout: timedelta
    start_timeout: timedelta
    placement_timeout: timedelta
    progress_timeout: timedelta | None
    """None: no check for hangs after the first step."""
    first_step_timeout: timedelta | None
    """None: no check for hangs before the first step."""
    hang_policy: Literal["Observe", "Restart"]
    """What happens to an attempt that stands still for longer than a learned timeout."""
    on_notice: OnNotice
    """How a training that has to stop is stopped; see the field of the spec."""
    grace: timedelta
    """Between SIGTERM and SIGKILL for a pod of the template, wherever workers live."""
    flush_timeout: timedelta
    max_pending: int
    upload_every: timedelta | None
    """None: every checkpoint is uploaded."""
    buddy: bool = False
    """What each worker has staged is copied to another node."""
    keep: int
    score_metric: str
    """"": none; the newest checkpoints are kept."""
    score_order: Literal["Max", "Min"]
    output_forms: bool = False
    """Steps are looked for in output, in the known forms."""
    output_patterns: tuple[OutputPattern, ...] = ()
    """Likewise in these."""
    folder: FolderRule | None = None
    """None: the script reports its checkpoints."""
    active_deadline: timedelta | None
    ttl_after_finished: timedelta | None
    retain_failed_workers: int
    force_delete_pods: bool
    """Pods on lost nodes are deleted by force."""

    @property
    def world_size(self) -> int:
        """Processes over all workers."""
        return self.replicas * self.processes_per_worker

    @property
    def settings(self) -> RunSettings:
        """The settings of the agents."""
        return RunSettings(
            max_pending=self.max_pending,
            upload_every=self.upload_every.total_seconds() if self.upload_every else 0.0,
            buddy=self.buddy,
            keep=self.keep,
            score_metric=self.score_metric,
            score_order=self.score_order,
            on_notice=self.on_notice,
            heartbeat_timeout=self.heartbeat_timeout.total_seconds(),
            flush_timeout=self.flush_timeout.total_seconds(),
            output_forms=self.output_forms,
            output_patterns=self.output_patterns,
            folder=self.folder,
        )

    @property
    def reaches(self) -> str:
        """Hash of everything that decides how workers reach their storage; an edit changes it."""
        how = self.storage
        parts = self.template_hash, how.endpoint_url, how.region, how.credentials
        return _digest(json.dumps(parts))


def config_of(run: TrainRun) -> RunConfig:
    """The part of the spec, and of the identity, that decisions are based on."""
    spec = run.spec
    policy, health = spec.failure_policy, spec.health
    launching = launching_of(spec.workers)
    return RunConfig(
        name=run.metadata.name,
        uid=run.metadata.uid,
        replicas=spec.workers.replicas,
        keeps_standbys=spec.workers.warm_start is not None,
        processes_per_worker=launching.processes,
        independent_ranks=spec.workers.independent_ranks,
        container=spec.workers.template.spec.training.name,
        launch_problem=launching.problem or folder_problem(spec.checkpoint.folder, spec.workers),
        template_hash=template_hash(spec.workers),
        facts=facts_of(run, template_hash(spec.workers)),
        storage=storage_config(spec.storage, run.run_name),
        checkpoints_uri=layout.checkpoints_uri(layout.run_uri(spec.storage.uri, run.run_name)),
        suspend=spec.suspend,
        restart=_digest(run.metadata.annotations.get(RESTART, "")),
        on_existing=spec.storage.on_existing,
        limits=limits_of(policy),
        window=_length(policy.window),
        no_progress_limit=no_progress_limit(policy),
        max_avoided_nodes=policy.max_avoided_nodes,
        rules=policy.rules,
        backoff_initial=policy.backoff.initial.timedelta,
        backoff_factor=policy.backoff.factor,
        backoff_max=policy.backoff.max.timedelta,
        heartbeat_timeout=health.heartbeat_timeout.timedelta,
        start_timeout=health.start_timeout.timedelta,
        placement_timeout=health.placement_timeout.timedelta,
        progress_timeout=_length(health.progress_timeout),
        first_step_timeout=_length(health.first_step_timeout),
        hang_policy=health.hang_policy,
        on_notice=spec.checkpoint.on_notice,
        grace=timedelta(seconds=spec.workers.template.spec.grace),
        flush_timeout=_flush_timeout(spec.checkpoint),
        max_pending=spec.checkpoint.max_pending,
        upload_every=_length(spec.checkpoint.upload_every),
        buddy=spec.checkpoint.buddy,
        keep=spec.checkpoint.keep,
        score_metric=spec.checkpoint.score_metric or "",
        score_order=spec.checkpoint.score_order or "Max",
        output_forms=spec.progress.output == "Auto",
        output_patterns=tuple(
            OutputPattern(pattern=p.pattern, rank=p.rank) for p in spec.progress.patterns
        ),
        folder=_folder_rule(spec.checkpoint.folder),
        active_deadline=_length(spec.active_deadline),
        ttl_after_finished=_length(spec.ttl_after_finished),
        retain_failed_workers=spec.retain_failed_workers,
        force_delete_pods=health.force_delete_pods,
    )


def _folder_rule(folder: FolderSpec | None) -> FolderRule | None:
    if folder is None:
        return None
    return FolderRule(
        path=folder.path,
        newest=folder.newest or "",
        complete=folder.complete,
        settle=folder.settle.seconds,
        resume_args=folder.resume_args,
        from_second_attempt=folder.resume_args_from == "SecondAttempt",
        carry=folder.carry,
    )


def _length(duration: Duration | None) -> timedelta | None:
    return duration.timedelta if duration is not None else None


def _flush_timeout(checkpoint: CheckpointSpec) -> timedelta:
    """How long a restart waits for uploads; with uploadEvery the steps since the last one may take
    as long again."""
    given, every = checkpoint.flush_timeout.timedelta, checkpoint.upload_every
    if not given or every is None:
        return given
    return max(given, min(every.timedelta, LONG_FLUSH))


def no_progress_limit(policy: FailurePolicy) -> int:
    """The limit; 0: none. With a finite maxFailures, itself a bound, only if the spec sets it."""
    limit = policy.no_progress_limit
    if limit is None:
        return NO_PROGRESS_LIMIT if policy.max_failures == -1 else 0
    return max(limit, 0)


def storage_config(storage: StorageSpec | SweepStorage, folder: str) -> StorageConfig:
    """How to reach this folder of the storage."""
    secret = storage.credentials_secret_ref
    return StorageConfig(
        uri=storage.uri,
        run_name=folder,
        endpoint_url=storage.endpoint_url,
        region=storage.region,
        credentials=secret.name if secret is not None else "",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS] if text else ""


def template_hash(workers: WorkersSpec) -> str:
    """Differs whenever the pods would differ: a gang never mixes two of them."""
    template = workers.template.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if workers.agent == "InImage":  # the default is left out: hashes must survive upgrades
        template["agent"] = workers.agent
    if workers.warm_start is not None:
        template["warmStart"] = list(workers.warm_start.preload)
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def agent_config(run: TrainRun, config: RunConfig) -> AgentConfig:
    """The part that all workers of the run share; the rest is left empty."""
    warm = run.spec.workers.warm_start
    return AgentConfig(
        run=config.name,
        run_uid=config.uid,
        namespace=run.metadata.namespace,
        slot=0,
        worker="",
        operator_url="",
        directory="",
        cache="",
        storage=config.storage,
        initial_from=run.spec.checkpoint.initial_from,
        workers=config.replicas,
        processes_per_worker=config.processes_per_worker,
        preload=warm.preload if warm is not None else (),
        settings=config.settings,
    )
