"""`trainrun run` of a TrainSweep: creates its parts, handles signals, prints, returns exit codes.

Layer: cli, the composition root of the local world's sweeps. The process is operator and clerk in
one: an order of `runtime/sweep_leader.py` is in the log when it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import click

from trainrun.errors import StoreError
from trainrun.sweep.records import Targets
from trainrun.sweep.view import SweepView, best
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.cli.ctrl_c import on_interrupt
from trainrun_operator.cli.exit_codes import FAILED, INTERRUPTED, SUCCEEDED
from trainrun_operator.cli.leading import RunOptions, lead_alone
from trainrun_operator.cli.local_run import LocalServer
from trainrun_operator.cli.sweeping.preparation import (
    Change,
    SweepPreparation,
    WatchedFile,
    prepare_sweep,
)
from trainrun_operator.cli.sweeping.sweep_events import (
    SweepEventSink,
    SweepJson,
    SweepLines,
    SweepObserved,
    TrialEnded,
)
from trainrun_operator.cli.sweeping.trial_text import summary
from trainrun_operator.cli.sweeping.trials import LocalTrials
from trainrun_operator.core.sweep.boundary import (
    ClerkUnknown,
    CreateTrial,
    SuspendTrial,
    SweepObservation,
    SweepPlan,
    TrialAction,
)
from trainrun_operator.core.sweep.clerking import ClerkOrders
from trainrun_operator.core.sweep.config import displaced, search_of
from trainrun_operator.runtime.clerk_work import ClerkWork
from trainrun_operator.runtime.line_writers import lines_of_stdout
from trainrun_operator.runtime.reconciler import Wakeup
from trainrun_operator.runtime.sweep_leader import SweepLeader, SweepSeen


def run_sweep(options: RunOptions) -> int:
    """Run or continue; returns the exit code."""
    return lead_alone(prepare_sweep, _lead, options)


def _lead(prepared: SweepPreparation, options: RunOptions) -> int:
    prepared.make_places()
    if options.as_json:
        lines = SweepJson(lines_of_stdout())
        status = _run(prepared, options, lines)
        code = _exit_code(status)
        lines.finish(status, exit_code=code)
        return code
    objective = search_of(prepared.sweep.spec).objective
    status = _run_for_people(prepared, options)
    click.echo("")
    for line in summary(prepared.name, status, objective, continue_with=options.command):
        click.echo(line)
    return _exit_code(status)


def _run_for_people(prepared: SweepPreparation, options: RunOptions) -> TrainSweepStatus:
    objective = search_of(prepared.sweep.spec).objective
    if not options.drawn:
        color, verbose = options.colored, options.verbose
        lines = lines_of_stdout()
        sink = SweepLines(lines, objective=objective, color=color, verbose=verbose)
        return _run(prepared, options, sink)
    # Imported only here: it takes 30 ms.
    from trainrun_operator.cli.live import console_to_draw_on  # noqa: PLC0415
    from trainrun_operator.cli.sweeping.table import SweepTable  # noqa: PLC0415

    console = console_to_draw_on(color=options.colored)
    with SweepTable(console, name=prepared.name, objective=objective) as table:
        return _run(prepared, options, table)


def _run(prepared: SweepPreparation, options: RunOptions, sink: SweepEventSink) -> TrainSweepStatus:
    for note in prepared.notes:
        sink.say(note)
    file = WatchedFile(prepared, partial(prepare_sweep, options))
    sweep = LocalSweep(prepared, uid=prepared.uid(), sink=sink, file=file)
    return asyncio.run(sweep.lead())


def _exit_code(status: TrainSweepStatus) -> int:
    # Suspended by the file, or interrupted: unfinished either way.
    return {"Succeeded": SUCCEEDED, "Failed": FAILED}.get(status.phase, INTERRUPTED)


READ_EVERY = 1.0
"""Seconds between two reads of running trials' metrics and of the sweep's file."""


class LocalSweep:
    """One `trainrun run` of a sweep, once its input has been checked; a SweepWorld."""

    def __init__(
        self, prepared: SweepPreparation, *, uid: str, sink: SweepEventSink, file: WatchedFile
    ) -> None:
        self._prepared = prepared
        self._file = file
        self._config = prepared.config(uid)
        self._sink = sink
        self._work = ClerkWork(prepared.folder, sweep_uid=uid)
        self._log: SweepView | ClerkUnknown = ClerkUnknown(message="the log was not read yet")
        self._carried_out: Targets | None = None
        self._reported: SweepView | None = None
        """The log up to which ends were reported; None: nothing was reported."""
        self._wakeup = Wakeup()
        self._server = LocalServer()
        self._trials = LocalTrials(
            prepared=prepared, server=self._server, sink=sink, wake=self._wakeup.now
        )
        self._interrupted = self._abandoned = False
        self._changed = False
        """The current pass changed something, or found the file changed."""
        self._at_work = False
        """Trials ran when the current pass began: a later pass reads their last reports."""
        self._trouble = StorageTrouble()
        self._settled = False
        """The log has reached the newest targets."""
        self.status = TrainSweepStatus()

    async def lead(self) -> TrainSweepStatus:
        """Lead the sweep until it is over or stopped; returns its last status.

        Raises SweepLogDamaged, and TrainRunError if a trial cannot be started.
        """
        on_interrupt(
            self._interrupt,
            self._abandon,
            patience=self._prepared.sweep.spec.run.workers.template.spec.grace,
            hopeless=self._is_hopeless,
        )
        async with self._server:
            try:
                await self._settle()
                await SweepLeader(self, self._wakeup).lead()
            finally:
                self._trials.abandon()
                await self._trials.ended()
        if self._interrupted:
            message = "stopped by the user; open trials continue from their checkpoints"
            self.status = replace(self.status, reason="Interrupted", message=message)
        return self.status

    # ----------------------------------------------------------------- the world of a sweep

    @asynccontextmanager
    async def look(self) -> AsyncIterator[SweepSeen]:
        """The state in the log and in the folders of the runs."""
        self._changed = await self._look_at_file()
        if isinstance(self._log, SweepView):
            self._trials.find(self._log)
        self._trials.check()
        self._at_work = bool(self._trials.working)
        yield SweepSeen(
            name=self._prepared.sweep.metadata.name,
            config=self._config,
            observation=SweepObservation(
                log=self._log,
                acted_on=self.status.position,
                runs=self._trials.seen(),
                carried_out=self._carried_out,
            ),
            before=self.status,
        )

    async def write(self, seen: SweepSeen, status: TrainSweepStatus) -> None:
        """Nothing: in a cluster the status fences off other leaders, here the lock does."""

    def tell(self, seen: SweepSeen, status: TrainSweepStatus) -> None:
        """Emit the status and the table of all trials."""
        self.status = status
        rows = self._trials.rows(self._work.view, seen.config.search.objective)
        self._sink.emit(SweepObserved(status=status, rows=rows))

    async def order(self, _seen: SweepSeen, plan: SweepPlan) -> None:
        """Do the clerk's work here and now."""
        working, spec = bool(self._trials.working), self._prepared.sweep.spec.to_json_object()
        self._work.hear(ClerkOrders(spec=spec, targets=plan.targets, working=working))
        self._changed |= await self._settle()

    async def apply(self, _seen: SweepSeen, action: TrialAction) -> str:
        """Carry out an action; never refuses one. Raises TrainRunError, OSError."""
        match action:
            case CreateTrial() | SuspendTrial(suspend=False) if self._interrupted:
                pass  # the user has interrupted the sweep since this was decided
            case _:
                self._changed |= self._trials.apply(action)
        return ""

    def rest(self, _plan: SweepPlan) -> bool:
        """Whether to leave the sweep: nothing will change until its file does."""
        trials = self._trials
        if self._abandoned and not trials.working:
            return True  # the next `trainrun run` reads their last reports
        if self._changed:
            self._wakeup.now()
            return False
        busy = self._at_work or bool(trials.working)
        if not busy and (self._interrupted or isinstance(self._log, SweepView)):
            return True
        unknown = self._log.message if isinstance(self._log, ClerkUnknown) else ""
        if message := self._trouble.news(unknown, settled=self._settled):
            self._sink.say(message)
        if busy:
            self._wakeup.after(READ_EVERY)
        return False

    def failed(self, error: Exception) -> None:
        """Raise: the user must correct the problem and start the sweep again."""
        raise error

    # --------------------------------------------------------------------------- its parts

    async def _look_at_file(self) -> bool:
        """Apply the file as it is now; returns whether it changed anything."""
        found = await asyncio.to_thread(self._file.look)
        if self._interrupted:
            return False  # the user has asked to stop
        match found:
            case Change(prepared=prepared, fields=fields):
                self._prepared, self._config = prepared, prepared.config(self._config.uid)
                self._trials.prepared = prepared
                self._sink.say(f"{prepared.file} changed; applying {', '.join(fields)}")
                return True
            case str(why):
                self._sink.say(f"the sweep continues unchanged: {why}")
                return False
            case None:
                return False

    async def _settle(self) -> bool:
        """Bring the log to the targets; returns whether that changed anything."""
        before = (self._work.view.position, self._cleared)
        try:
            await asyncio.to_thread(self._work.do)
        except StoreError as error:
            self._log = ClerkUnknown(reason="StorageUnavailable", message=str(error))
            self._settled = False
            return False
        self._log, targets = self._work.view, self._work.orders.targets
        self._settled = targets is not None
        self._carried_out = targets or self._carried_out
        self._report_ended()
        return (self._work.view.position, self._cleared) != before

    @property
    def _cleared(self) -> tuple[int, ...]:
        return () if self._carried_out is None else self._carried_out.cleared

    def _report_ended(self) -> None:
        """Report trials that ended since the last report, and parameters that the sampler did not
        choose."""
        before, self._reported = self._reported, self._work.view
        if before is None:
            return
        for trial in self._work.view.trials.values():
            old = before.trials.get(trial.number)
            if old is None and trial.fallback:
                self._sink.say(
                    f"the parameters of trial {trial.number} are random: {trial.fallback}"
                )
            if old is None and (moved := displaced(trial)):
                self._sink.say(moved)
            if trial.open or (old and not old.open and old.opening == trial.opening):
                continue
            first = best(self._work.view, self._config.search.objective)
            leads = first is not None and first.trial.number == trial.number
            self._sink.emit(TrialEnded(trial=trial, leads=leads))

    def _interrupt(self) -> None:
        self._interrupted = True
        self._config = replace(self._config, suspend=True)
        self._trials.suspend()  # also if the log cannot be read
        self._wakeup.now()
        self._sink.say("saving all trials and stopping; press Ctrl-C again to stop at once")

    def _is_hopeless(self) -> bool:
        unknown = self._log.message if isinstance(self._log, ClerkUnknown) else ""
        if why := unknown or self._trials.storage_trouble:
            self._sink.say(f"stopping without saving: {why}")
        return bool(why)

    def _abandon(self) -> None:
        self._abandoned = True
        self._trials.abandon()
        self._wakeup.now()


class StorageTrouble:
    """Decides when to report a problem of the storage: once, and again after the log was settled.

    Reading the log does not settle it: a full disk can still be read.
    """

    def __init__(self) -> None:
        self._reported = ""

    def news(self, trouble: str, *, settled: bool) -> str:
        """The message to print now, or ""; `trouble` is "" if there is no problem, and `settled`
        says that the log has reached its targets."""
        if not trouble and not settled:
            return ""
        before, self._reported = self._reported, trouble
        if trouble in ("", before):
            return ""
        return f"the sweep is waiting for its storage while trials continue: {trouble}"
