"""Probes and Prometheus metrics of the operator, over plain HTTP: /healthz, /readyz, /metrics.

Layer: cluster. Healthy: every watch of this process received something recently. Ready: its caches
are complete, so it can take over at any moment; a list that stays refused does not count, but is
named. Neither depends on leadership: a rollout waits for readiness. Counters follow the statuses
that passes write; gauges of runs are computed at the scrape, so those of a deleted run vanish with
it. A label `run` names a run only where it is one of the WORST: the number of runs is not bounded.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nlargest

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainrun_operator.api.run.status import StartRecord, TrainRunStatus
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.display import RUNS
from trainrun_operator.core.run.incidents.hangs import FACTOR, LONGEST_BUSY, OwedStep
from trainrun_operator.core.run.incidents.ledger import used_of
from trainrun_operator.kube.informer import ListState

Trouble = Callable[[], str]
"""What is wrong, as a sentence; empty: nothing."""
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Buckets in seconds, from a restart in place to a wait for a node."""
QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
"""Buckets in seconds, for one pass or one call."""
WORST = 20
"""Runs that each gauge with a label `run` names at most: those that an alert is nearest to."""
USUAL_UPLOAD = 3600.0
"""Seconds between checkpoints that alerts expect where the spec has no uploadEvery."""
RunState = tuple[str, TrainRunStatus, RunConfig, Callable[[], OwedStep | None]]
"""`namespace/name`, status and configuration of a run, and what tells which step it owes; None: not
known here, since another operator leads it, say."""
RunStates = Callable[[], Iterable[RunState]]


async def serve_health(
    *,
    host: str,
    port: int,
    alive: Trouble,
    ready: Trouble,
    unread: Trouble = str,
    registry: CollectorRegistry,
) -> web.AppRunner:
    """Listen; `cleanup()` of the returned runner ends it. /readyz also shows `unread`, which does
    not change readiness. Raises OSError when the port is taken."""

    async def healthz(_: web.Request) -> web.Response:
        return _answer(alive())

    async def readyz(_: web.Request) -> web.Response:
        return _answer(ready(), unread())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _answer(trouble: str, more: str = "") -> web.Response:
    text = "\n".join(filter(None, (trouble or "ok", more)))
    return web.Response(text=f"{text}\n", status=503 if trouble else 200)


class Metrics:
    """All metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.listings: Callable[[], Iterable[ListState]] = tuple
        """The lists that the operator reads."""
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._incidents = counter(
            "trainrun_incidents", "Incidents that were settled.", ["cause", "counted"]
        )
        self._restarts = counter(
            "trainrun_restarts", "Attempts started after the first, by cause.", ["cause"]
        )
        self._recovery = histogram(
            "trainrun_recovery_seconds",
            "Seconds of a recovery: detect (loss to detection), restart (detection to the next "
            "start), first_step (detection to the first step of the next attempt).",
            ["stage"],
            buckets=SECONDS,
        )
        for stage in ("detect", "restart", "first_step"):
            self._recovery.labels(stage=stage)  # rates count the first recovery, too
        self._stages = histogram(
            "trainrun_recovery_stage_seconds",
            "Seconds of a part of a recovery, from the loss to the first step of the next attempt: "
            "detect, decide, stop, flush, pods, start, import, rendezvous, load, script, "
            "firstStep. They sum to the whole.",
            ["stage"],
            buckets=SECONDS,
        )
        self._lost = counter("trainrun_lost_steps", "Steps that were repeated after an incident.")
        self._time = counter(
            "trainrun_time_seconds",
            "Seconds of the runs' time, by what they were spent on (docs/explain.md); counted when "
            "the next attempt starts or the run ends.",
            ["into"],
        )
        self._reconcile = histogram(
            "trainrun_reconcile_seconds",
            "Seconds of one pass over a run, including its reads and writes.",
            buckets=QUICK,
        )
        self._repeated_errors = counter(
            "trainrun_operator_errors",
            "Errors of the operator itself, which cost no budget: passes that failed, statuses "
            "that were refused.",
            ["reason"],
        )
        self._calls = counter(
            "trainrun_api_requests", "Requests to the API server.", ["verb", "code"]
        )
        self._leader = Gauge(
            "trainrun_leader", "1 while this operator leads.", registry=self.registry
        )

    def follow(self, runs: RunStates) -> None:
        """Export gauges of these runs."""
        self.registry.register(_RunGauges(runs, self))

    def api_call(self, verb: str, code: str) -> None:
        """One request to the API server has ended."""
        self._calls.labels(verb=verb, code=code).inc()

    def passed(self, seconds: float) -> None:
        """One pass has ended."""
        self._reconcile.observe(seconds)

    def operator_error(self, reason: str) -> None:
        """The operator itself made an error."""
        self._repeated_errors.labels(reason=reason).inc()

    def leads(self, *, leading: bool) -> None:
        """Leadership was won or lost."""
        self._leader.set(1 if leading else 0)

    def wrote(self, before: TrainRunStatus, after: TrainRunStatus) -> None:
        """A status was written: count the changes in it."""
        for bucket, seconds in after.spent.items():
            self._time.labels(into=bucket).inc(max(seconds - before.spent.get(bucket, 0.0), 0.0))
        earlier = {incident.attempt: incident for incident in before.incidents}
        for incident in after.incidents:
            self._incident(earlier.get(incident.attempt), incident)
        if after.restarts > before.restarts:
            last = after.incidents[-1] if after.incidents else None
            ended = before.ending
            cause: str = ended.kind if ended is not None else "Unknown"
            if cause == "Incident" and last is not None:
                cause = last.cause
            self._restarts.labels(cause=cause).inc(after.restarts - before.restarts)

    def _incident(self, before: Incident | None, now: Incident) -> None:
        if before is None:
            counted = str(now.counted).lower()
            self._incidents.labels(cause=now.cause, counted=counted).inc()
            self._took("detect", now.detect_seconds)
            self._took("restart", now.restart_seconds)
            self._lost.inc(now.lost_steps or 0)
        if before is None or before.recovery_seconds is None:
            self._took("first_step", now.recovery_seconds)
            if now.recovery_seconds is not None:
                for stage, seconds in now.stages.items():
                    self._stages.labels(stage=stage).observe(seconds)

    def _took(self, stage: str, seconds: float | None) -> None:
        if seconds is not None:
            self._recovery.labels(stage=stage).observe(seconds)


class _RunGauges(Collector):
    """The state of all runs at the moment of the scrape, summed up; and unreadable lists."""

    def __init__(self, runs: RunStates, metrics: Metrics) -> None:
        self._runs = runs
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        runs, now = list(self._runs()), datetime.now(UTC)
        yield _by(
            "trainrun_runs",
            "Runs, by phase.",
            "phase",
            Tally(status.phase for _, status, *_ in runs),
        )
        yield _by(
            "trainrun_unreadable_lists",
            "1 while the API server refuses this list, by its path. The operator does not lead its "
            "objects, and none counts as deleted.",
            "list",
            Tally({listing.path for listing in self._metrics.listings() if listing.trouble}),
        )
        alive = [run for run in runs if not run[1].finished]
        ready = Tally({"ready": 0, "missing": 0})
        for _, status, config, _ in alive:
            ready["ready"] += status.workers.ready
            ready["missing"] += max(config.replicas - status.workers.ready, 0)
        yield _by("trainrun_workers", "Workers of unfinished runs.", "state", ready)
        yield from _limits(alive, now)


def _limits(alive: Iterable[RunState], now: datetime) -> Iterator[Metric]:
    """Facts that alerts compare with limits, of the runs that are nearest to their limit."""
    steps, checkpoints, failures = [], [], []
    for state in alive:
        run, status, config, _ = state
        # Between attempts, while it is queued or suspended, a run owes neither.
        record = status.start_record if status.phase in RUNS else None
        if record is not None and (step := _step(state, record, now)) is not None:
            steps.append(step)
        if record is not None and status.checkpoint is not None:
            at = max(status.checkpoint.time, record.time).timestamp()
            every = config.upload_every.total_seconds() if config.upload_every else USUAL_UPLOAD
            checkpoints.append(_Limited(run, at, every, (now.timestamp() - at) / every))
        limit = config.limits["failures"]
        if limit > 0 and status.phase != "Suspended":  # nothing can fail meanwhile
            used = used_of(status, "failures", config, at=now)
            failures.append(_Limited(run, limit - used, limit, used / limit))
    yield from _worst(
        steps,
        _of_runs(
            "trainrun_step_time_seconds",
            "Unix time of the newest step of a run, or of the start of its attempt if that is "
            "later; none between attempts. Beyond the timeout the leader shows now while a rank is "
            "in a trainrun.long_section(), and then its end.",
        ),
        _of_runs(
            "trainrun_step_timeout_seconds",
            "Seconds without a step that are too long: spec.health.progressTimeout (before the "
            "first step of an attempt: firstStepTimeout), else 900 or three times the slowest "
            "step, whichever is more. Beyond the timeout the leader also counts the steps of the "
            "attempt that runs.",
        ),
    )
    yield from _worst(
        checkpoints,
        _of_runs(
            "trainrun_checkpoint_time_seconds",
            "Unix time of the newest checkpoint of a run, or of the start of its attempt if that "
            "is later.",
        ),
        _of_runs(
            "trainrun_checkpoint_interval_seconds",
            "Seconds between checkpoints: spec.checkpoint.uploadEvery, else 3600.",
        ),
    )
    yield from _worst(
        failures,
        _of_runs(
            "trainrun_failures_remaining",
            "Failures left in the budget of a run; none while it is suspended.",
        ),
        _of_runs(
            "trainrun_failures_limit",
            "spec.failurePolicy.maxFailures of a run; runs without a limit are left out.",
        ),
    )


def _step(state: RunState, record: StartRecord, now: datetime) -> _Limited | None:
    """The newest step of an attempt; None: none is due."""
    run, status, config, owed = state
    stepped = _stepped(status)
    # When it finishes its processes have ended.
    if stepped is None or status.phase == "Finishing" or status.runs_tasks:
        return None
    slowest = status.learned.slowest if status.learned is not None else 0.0
    usual = timedelta(seconds=max(LONGEST_BUSY, FACTOR * slowest))
    given = config.progress_timeout
    if stepped <= record.time:  # the first step of an attempt takes longer
        given = config.first_step_timeout
    at, timeout = max(stepped, record.time).timestamp(), (given or usual).total_seconds()
    nearness = (now.timestamp() - at) / timeout
    if nearness > 1 and (told := owed()) is not None:
        # Other operators do not know it. They rank the run as before, and so do we: alerts take the
        # newest time and the longest timeout.
        at = max(at, now.timestamp() - told.seconds)
        timeout = timeout if given else max(timeout, told.allowed)
    return _Limited(run, at, timeout, nearness)


def _stepped(status: TrainRunStatus) -> datetime | None:
    """When the run made its newest step; None: it made none yet. Posts come as seldom as they like,
    so they show none."""
    shown = (status.progress, status.output)
    return max((part.time for part in shown if part and part.time), default=None)


@dataclass(frozen=True, slots=True)
class _Limited:
    """A fact of a run, its limit, and how near it is to it; 1: there."""

    run: str
    fact: float
    limit: float
    nearness: float


def _worst(
    found: list[_Limited], facts: GaugeMetricFamily, limits: GaugeMetricFamily
) -> Iterator[Metric]:
    for one in nlargest(WORST, found, key=lambda limited: limited.nearness):
        facts.add_metric([one.run], one.fact)
        limits.add_metric([one.run], one.limit)
    yield from (facts, limits)


def _of_runs(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["run"])


def _by(name: str, text: str, label: str, values: Tally[str]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
