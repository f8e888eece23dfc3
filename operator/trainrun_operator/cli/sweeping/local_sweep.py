"""A local sweep put together: log, decisions, trials; started, interrupted, ended.

Layer: cli, the composition root of the local world's sweeps. The process is operator and clerk in
one: it decides, and what it decides stands in the log before anything is done about it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import StoreError
from trainrun.sweep.results import best
from trainrun.sweep.targets import Targets
from trainrun.sweep.view import SweepView
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.cli.ctrl_c import on_interrupt
from trainrun_operator.cli.local_run import LocalServer
from trainrun_operator.cli.sweeping.news import SweepLooked, SweepSink, TrialEnded
from trainrun_operator.cli.sweeping.preparation import SweepPreparation
from trainrun_operator.cli.sweeping.rows import rows_of
from trainrun_operator.cli.sweeping.storage_trouble import StorageTrouble
from trainrun_operator.cli.sweeping.trials import LocalTrials
from trainrun_operator.cli.sweeping.watched_file import Change, Complaint, WatchedFile
from trainrun_operator.core.sweep.display import sweep_status
from trainrun_operator.core.sweep.names import displaced
from trainrun_operator.core.sweep.observation import ClerkUnknown, SweepObservation
from trainrun_operator.core.sweep.plan import SweepPlan
from trainrun_operator.core.sweep.planner import decide_sweep
from trainrun_operator.runtime.stopwatch import Stopwatch
from trainrun_operator.runtime.trial_folders import RetiredFolders

READ_EVERY = 1.0
"""Seconds between two looks at what trials at work have stored, and at the sweep's file."""


class LocalSweep:
    """One `trainrun run` of a sweep from the moment everything is known to be in order."""

    def __init__(
        self, prepared: SweepPreparation, *, uid: str, sink: SweepSink, file: WatchedFile
    ) -> None:
        self._prepared = prepared
        self._file = file
        self._config = prepared.config(uid)
        self._sink = sink
        self._log = SweepLog(prepared.folder, suggest=prepared.suggest)
        self._retired = RetiredFolders(prepared.folder)
        self._known: SweepView | ClerkUnknown = ClerkUnknown(message="the log was not read yet")
        self._acted_on = 0
        self._carried_out: Targets | None = None
        self._told: SweepView | None = None
        """What was told of so far; None: nothing."""
        self._news = asyncio.Event()
        self._server = LocalServer()
        self._trials = LocalTrials(prepared, self._server, sink=sink, wake=self._news.set)
        self._interrupted = self._abandoned = False
        self._trouble = StorageTrouble()
        self._settled = False
        """The log was brought to what was wanted last."""
        self._worked = Stopwatch()
        self.status = TrainSweepStatus()

    @property
    def view(self) -> SweepView:
        """What the log says, as far as it is known."""
        return self._log.view

    async def lead(self) -> TrainSweepStatus:
        """Lead the sweep until it is over or stopped; returns its last status.

        Raises SweepLogDamaged, and TrainRunError where a trial cannot be started.
        """
        on_interrupt(
            self._interrupt,
            self._abandon,
            patience=self._prepared.sweep.spec.run.workers.template.spec.grace,
            hopeless=self._is_hopeless,
        )
        async with self._server:
            try:
                await self._until_over()
            finally:
                self._trials.abandon()
                await self._trials.ended()
        if self._interrupted:
            message = "stopped by its user; open trials go on from what they have saved"
            self.status = replace(self.status, reason="Interrupted", message=message)
        return self.status

    async def _until_over(self) -> None:
        trials = self._trials
        await self._settle(None)
        while True:
            if isinstance(self._known, SweepView):
                trials.find(self._known)
            trials.check()
            trouble = await trials.read_on()
            plan = self._decide()
            acted = self._act(plan)
            moved = await self._settle(plan.targets)
            changed = await self._look_at_file()
            if self._abandoned and not trials.working:
                return  # what they have reported last is read by whoever goes on
            if moved or changed or acted:
                continue
            if not trials.busy and (self._interrupted or isinstance(self._known, SweepView)):
                return  # nothing will change until the file does
            self._complain(trouble)
            await self._wait(plan)

    async def _look_at_file(self) -> bool:
        """Go by what the file says now; whether that is something else."""
        found = await asyncio.to_thread(self._file.look)
        if self._interrupted:
            return False  # what its user wants now is to stop
        match found:
            case Change(prepared=prepared, fields=fields):
                self._prepared, self._config = prepared, prepared.config(self._config.uid)
                self._trials.go_by(prepared)
                self._sink.say(f"{prepared.file} was changed and is taken up: {', '.join(fields)}")
                return True
            case Complaint(why=why):
                self._sink.say(f"the sweep goes on as before: {why}")
                return False
            case None:
                return False

    def _complain(self, trouble: str) -> None:
        unknown = self._known.message if isinstance(self._known, ClerkUnknown) else ""
        said = self._trouble.news(unknown or trouble, settled=self._settled)
        if said:
            self._sink.say(said)

    def _decide(self) -> SweepPlan:
        observation = SweepObservation(
            log=self._known,
            acted_on=self._acted_on,
            runs=self._trials.seen(self.view),
            carried_out=self._carried_out,
        )
        plan = decide_sweep(observation, self._config, name=self._prepared.sweep.metadata.name)
        self.status = sweep_status(observation, self._config, plan, before=self.status)
        rows = rows_of(self.view, self._trials, self._config.search.objective)
        self._sink.emit(SweepLooked(status=self.status, rows=rows))
        return plan

    def _act(self, plan: SweepPlan) -> bool:
        """Whether that has changed anything."""
        if plan.guarded:
            # We hold the lock, so that nobody else acts: what a status is for in a cluster.
            self._acted_on = self.view.position
        changed = [self._trials.apply(action, self.view) for action in plan.actions]
        return any(changed)

    async def _settle(self, targets: Targets | None) -> bool:
        """Bring the log to what is wanted; whether anything has come of it."""
        before, counted = (self.view.position, self._cleared), self.view.counted_at
        active = self._worked.seconds(running=bool(self._trials.working))
        try:
            if targets is None:
                self._known = await asyncio.to_thread(self._log.read_on)
            else:
                self._known = await asyncio.to_thread(self._write, targets, active)
                self._carried_out = targets
        except StoreError as error:
            self._known = ClerkUnknown(reason="StorageUnavailable", message=str(error))
            self._settled = False
            return False
        self._settled = targets is not None
        if self.view.counted_at != counted:
            self._worked.less(active)
        self._tell()
        return (self.view.position, self._cleared) != before

    @property
    def _cleared(self) -> tuple[int, ...]:
        return () if self._carried_out is None else self._carried_out.cleared

    def _write(self, targets: Targets, active: float) -> SweepView:
        view = self._log.settle(targets, self._config.search, active=active)
        self._retired.clear(targets, view)
        return view

    def _tell(self) -> None:
        """Tell of trials that have ended, but for those that had before, and of parameters that
        the sampler did not choose."""
        before, self._told = self._told, self.view
        if before is None:
            return
        for trial in self.view.trials.values():
            known = before.trials.get(trial.number)
            if known is None and trial.fallback:
                self._sink.say(f"trial {trial.number} was drawn by chance: {trial.fallback}")
            if known is None and (moved := displaced(trial)):
                self._sink.say(moved)
            if trial.open or (known and not known.open and known.opening == trial.opening):
                continue
            first = best(self.view, self._config.search.objective)
            leads = first is not None and first.trial.number == trial.number
            self._sink.emit(TrialEnded(trial=trial, leads=leads))

    async def _wait(self, plan: SweepPlan) -> None:
        reading = READ_EVERY if self._trials.busy else None
        limits = [it for it in (plan.wake_after, reading) if it is not None]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    def _interrupt(self) -> None:
        self._interrupted = True
        self._config = replace(self._config, suspend=True)
        self._trials.suspend()  # also where nobody knows what stands in the log
        self._news.set()
        self._sink.say("saving all trials and stopping; press Ctrl-C again to stop at once")

    def _is_hopeless(self) -> bool:
        unknown = self._known.message if isinstance(self._known, ClerkUnknown) else ""
        if why := unknown or self._trials.storage_trouble:
            self._sink.say(f"stopping without saving: {why}")
        return bool(why)

    def _abandon(self) -> None:
        self._abandoned = True
        self._trials.abandon()
        self._news.set()
