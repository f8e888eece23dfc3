"""The runs of a local sweep's trials: starts, saves and ends them, and reports their state.

Layer: cli.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from trainrun.errors import InvalidSpec
from trainrun.sweep.search import Objective
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.cli.local_run import LocalRun, LocalServer
from trainrun_operator.cli.preparation import Preparation, open_run
from trainrun_operator.cli.sweeping.preparation import SweepPreparation
from trainrun_operator.cli.sweeping.sweep_events import SweepEventSink, TrialEvent, TrialStarted
from trainrun_operator.cli.sweeping.trial_text import Row, trial_row
from trainrun_operator.core.sweep.boundary import (
    CreateTrial,
    DeleteTrial,
    SuspendTrial,
    TrialAction,
    TrialRun,
    TrialRunPhase,
)
from trainrun_operator.core.sweep.config import in_sweep, run_name
from trainrun_operator.core.sweep.rules import creation
from trainrun_operator.runtime.run_events import PassEnded, RunEvent, RunNews
from trainrun_operator.worlds.local.place import StatusFile
from trainrun_operator.worlds.local.program import gpus_here, split_gpus

LONGEST = 2000
"""Characters of a condition's message."""


@dataclass(slots=True, kw_only=True)
class LocalTrial:
    """The run of one opening."""

    action: CreateTrial
    prepared: Preparation
    number: int
    """Counts runs in the order in which they were created."""
    status: TrainRunStatus
    """The last one observed."""
    suspend: bool = False
    ending: bool = False
    """It was asked to end, to be deleted afterwards."""
    run: LocalRun | None = None
    task: asyncio.Task[TrainRunStatus] | None = None

    @property
    def phase(self) -> TrialRunPhase:
        """Its phase for decisions."""
        if self.task is not None:
            return "Running"
        if self.status.finished:
            return "Succeeded" if self.status.is_true("Complete") else "Failed"
        return "Suspended"

    def row(self, log: Row) -> Row:
        """Its row for display, from `log`, its row in the log."""
        step = self.status.progress.step
        row = log if step is None else replace(log, step=step)
        if row.state != "Open":
            return row
        state = "Ending" if self.status.finished else "Saved"
        if self.task is not None:
            state = "Saving" if self.suspend else "Running"
        return replace(row, state=state, restarts=self.status.restarts)

    def seen(self) -> TrialRun:
        """Its facts for decisions."""
        failed = self.status.condition("Failed") if self.phase == "Failed" else None
        return TrialRun(
            name=self.action.name,
            uid=self.action.name,
            trial=self.action.trial.number,
            opening=self.action.trial.opening,
            phase=self.phase,
            suspend=self.suspend,
            reason="" if failed is None else failed.reason,
            message="" if failed is None else failed.message,
            restarts=self.status.restarts,
            attempt=self.status.attempt,
            created=self.number,
        )


def impossible(status: TrainRunStatus, why: str) -> TrainRunStatus:
    """The failed status of a run that its parameters make impossible, for the reason `why`."""
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
    """Forwards news of a trial's run to the sweep's sink."""

    trial: LocalTrial
    sink: SweepEventSink

    def emit(self, news: RunNews) -> None:
        """Update the trial's status, and forward the news in the sweep's field names."""
        if isinstance(news, PassEnded):
            self.trial.status = news.plan.status
        if isinstance(news, RunEvent):
            event = replace(news.event, message=in_sweep(news.event.message))
            news = replace(news, event=event)
        self.sink.emit(TrialEvent(trial=self.trial.action.trial.number, news=news))


@dataclass(kw_only=True, eq=False, repr=False)
class LocalTrials:
    """The runs of all openings on this machine."""

    prepared: SweepPreparation
    """Trials created from now on follow this."""
    server: LocalServer
    sink: SweepEventSink
    wake: Callable[[], None]
    """Called when a run has ended or was saved."""

    def __post_init__(self) -> None:
        self._trials: dict[str, LocalTrial] = {}
        self._count = itertools.count(1)
        self._broken: BaseException | None = None

    @property
    def working(self) -> list[LocalTrial]:
        """The trials that have processes."""
        return [trial for trial in self._trials.values() if trial.task is not None]

    def of(self, trial: TrialView) -> LocalTrial | None:
        """The run of this trial's current opening; None if this machine has none."""
        return self._trials.get(run_name(self.prepared.sweep.metadata.name, trial))

    def find(self, view: SweepView) -> None:
        """Load the runs that an earlier process left of open trials, as suspended: they start again
        when a decision resumes them."""
        for trial in view.trials.values():
            if not trial.open or self.of(trial) is not None:
                continue
            action = creation(trial, self.prepared.sweep.metadata.name)
            stored = StatusFile(self.prepared.place_of(action.name).status).read()
            if stored is not None:
                found = self._add(action, stored.status)
                found.suspend = not found.status.finished

    def check(self) -> None:
        """Raise the error that stopped the leading of a run, if any. It is no verdict about the
        trial, and restarting the run would only raise it repeatedly."""
        if self._broken is not None:
            raise self._broken

    def seen(self) -> tuple[TrialRun, ...]:
        """Facts about all runs, for decisions."""
        return tuple(trial.seen() for trial in self._trials.values())

    def rows(self, view: SweepView, objective: Objective) -> tuple[Row, ...]:
        """Rows of all trials by number; open ones with this machine's state of them."""
        trials = ((self.of(trial), trial_row(trial, objective)) for trial in view.trials.values())
        return tuple(log if run is None else run.row(log) for run, log in trials)

    # ---------------------------------------------------------------------------- actions

    def apply(self, action: TrialAction) -> bool:
        """Carry out an action; False: it was ordered before and waits for a run's end. Raises
        TrainRunError, OSError."""
        match action:
            case CreateTrial():
                if action.name not in self._trials:
                    trial = self._add(action, TrainRunStatus())
                    if not trial.status.finished:
                        self._start(trial, again=False)
            case SuspendTrial(suspend=True):
                self._suspend(self._trials[action.name])
            case SuspendTrial():
                self._start(self._trials[action.name], again=True)
            case DeleteTrial():
                return self._delete(self._trials[action.name])
        return True

    @property
    def storage_trouble(self) -> str:
        """Why some of them cannot save now; empty while no problem is known."""
        runs = (trial.run for trial in self.working if trial.run is not None)
        return next((run.storage_trouble for run in runs if run.storage_trouble), "")

    def suspend(self) -> None:
        """Save and stop all running trials."""
        for trial in self.working:
            self._suspend(trial)

    def abandon(self) -> None:
        """Kill all processes; what is not stored yet is lost."""
        for trial in self.working:
            if trial.run is not None:
                trial.run.abandon()

    async def ended(self) -> None:
        """Wait until no trial has processes."""
        tasks = [trial.task for trial in self._trials.values() if trial.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, action: CreateTrial, status: TrainRunStatus) -> LocalTrial:
        """Add a run. Raises InvalidSpec for what is wrong with every trial; if only this trial's
        parameters are wrong, such as a missing script, the run is added as failed."""
        try:
            prepared = self.prepared.trial(action)
        except InvalidSpec as error:
            prepared = self.prepared.trial(action, of_all=True)
            status = status if status.finished else impossible(status, str(error))
        trial = self._trials[action.name] = LocalTrial(
            action=action, prepared=prepared, number=next(self._count), status=status
        )
        return trial

    def _start(self, trial: LocalTrial, *, again: bool) -> None:
        trial.suspend = False
        if trial.task is not None:
            return  # still being saved; a later decision resumes it
        trial.prepared = replace(trial.prepared, gpus=self._gpus(trial))
        stored = open_run(trial.prepared).stored
        trial.status = stored.status
        if stored.status.finished:
            self.wake()
            return
        trial.run = LocalRun(
            prepared=trial.prepared, stored=stored, events=TrialSink(trial, self.sink)
        )
        opened = trial.action.trial
        self.sink.emit(TrialStarted(trial=opened.number, params=opened.params, again=again))
        trial.task = asyncio.create_task(
            trial.run.lead_with(self.server, say=lambda text: self._say(trial, text))
        )
        trial.task.add_done_callback(lambda task: self._over(trial, task))

    def _over(self, trial: LocalTrial, task: asyncio.Task[TrainRunStatus]) -> None:
        trial.task, trial.run = None, None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broken = self._broken or error
        elif not task.cancelled():
            trial.status = task.result()
        # Saved, or abandoned: it continues when a slot is free.
        trial.suspend = not trial.status.finished
        self.wake()

    def _suspend(self, trial: LocalTrial) -> None:
        trial.suspend = True
        if trial.run is not None:
            trial.run.suspend()

    def _delete(self, trial: LocalTrial) -> bool:
        if trial.run is not None:
            ordered, trial.ending = trial.ending, True
            trial.run.end()  # deleted once it has ended
            return not ordered
        shutil.rmtree(trial.prepared.place.folder, ignore_errors=True)
        del self._trials[trial.action.name]
        return True

    def _gpus(self, trial: LocalTrial) -> tuple[tuple[int, ...], ...]:
        taken = {gpu for other in self.working for share in other.prepared.gpus for gpu in share}
        shares = split_gpus(
            [gpu for gpu in gpus_here(os.environ) if gpu not in taken],
            workers=trial.prepared.run.spec.workers.replicas,
            per_worker=trial.prepared.program.gpus_per_worker,
        )
        return tuple(tuple(share) for share in shares)

    def _say(self, trial: LocalTrial, text: str) -> None:
        self.sink.say(f"trial {trial.action.trial.number}: {in_sweep(text)}")
