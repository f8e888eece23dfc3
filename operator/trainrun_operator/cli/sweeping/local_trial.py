"""The run of one trial of a local sweep: what is known of it, and how decisions see it.

Layer: cli.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from trainrun.checkpoint.trial_reports import TrialReports
from trainrun.sweep.records import TrialReport
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.cli.local_run import LocalRun
from trainrun_operator.cli.preparation import Preparation
from trainrun_operator.cli.sweeping.news import OfTrial, SweepSink
from trainrun_operator.core.sweep.observation import TrialRun, TrialRunPhase
from trainrun_operator.core.sweep.plan import CreateTrial
from trainrun_operator.core.sweep.trial import in_sweep
from trainrun_operator.runtime.news import Happened, Passed, RunNews

LONGEST = 2000
"""Characters of a condition's message."""


@dataclass(slots=True, kw_only=True)
class LocalTrial:
    """The run of one opening."""

    action: CreateTrial
    prepared: Preparation
    reports: TrialReports
    number: int
    """Counts runs in the order in which they were created."""
    status: TrainRunStatus
    """As it was seen last."""
    unread: bool = True
    """It may have reported what was not read yet."""
    suspend: bool = False
    ending: bool = False
    """It was told to end, so that it can be deleted."""
    run: LocalRun | None = None
    task: asyncio.Task[TrainRunStatus] | None = None
    unheard: list[TrialReport] = field(default_factory=list)
    """Reports that the log may not have."""

    def emit(self, news: RunNews) -> None:
        """Take note of how far it is."""
        if isinstance(news, Passed):
            self.status = news.plan.status

    @property
    def phase(self) -> TrialRunPhase:
        """As decisions know it."""
        if self.task is not None or self.unread:
            return "Running"
        if self.status.finished:
            return "Succeeded" if self.status.is_true("Complete") else "Failed"
        return "Suspended"

    def seen(self) -> TrialRun:
        """As decisions see it."""
        failed = self.status.condition("Failed") if self.phase == "Failed" else None
        attempt = self.status.attempt
        return TrialRun(
            name=self.action.name,
            uid=self.action.name,
            trial=self.action.trial,
            opening=self.action.opening,
            phase=self.phase,
            suspend=self.suspend,
            reason="" if failed is None else failed.reason,
            message="" if failed is None else failed.message,
            restarts=self.status.restarts,
            attempt=attempt,
            resumed=self.reports.resumed(attempt) if self.phase != "Running" and attempt else 0,
            seq=self.reports.heard(attempt),
            metrics=tuple(self.reports.others),
            reports=tuple(self.unheard),
            created=self.number,
        )

    def read_on(self, *, ended: bool) -> None:
        """Read what it has reported. Raises StoreError."""
        self.unheard += self.reports.read_on()
        if ended:
            if self.status.attempt:
                self.reports.resumed(self.status.attempt)
            self.unread = False


def impossible(status: TrainRunStatus, why: str) -> TrainRunStatus:
    """The status of a run that its parameters alone make impossible."""
    failed = Condition(
        type="Failed",
        status="True",
        reason="InvalidSpec",
        message=why[:LONGEST],
        last_transition_time=datetime.now(UTC).replace(microsecond=0),
    )
    return replace(status, conditions=(failed,))


@dataclass(frozen=True, slots=True)
class TrialSink:
    """Passes on what happens to the run of a trial."""

    trial: LocalTrial
    sink: SweepSink

    def emit(self, news: RunNews) -> None:
        """Of its trial, and to whoever is told of the sweep."""
        self.trial.emit(news)
        if isinstance(news, Happened):
            event = replace(news.event, message=in_sweep(news.event.message))
            news = replace(news, event=event)
        self.sink.emit(OfTrial(trial=self.trial.action.trial, news=news))
