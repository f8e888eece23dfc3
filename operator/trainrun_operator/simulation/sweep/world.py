"""What a simulated sweep lives in: the store with its log, the folders of trials, their runs.

Layer: simulation. The judge is asked about every record and every action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from trainrun.sweep.records import Record, SweepSession, TrialReport, written
from trainrun.sweep.targets import EndedRun
from trainrun.sweep.view import SweepView
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.observation import TrialRun, TrialRunPhase
from trainrun_operator.core.sweep.plan import CreateTrial, DeleteTrial, SuspendTrial, TrialAction
from trainrun_operator.simulation.sweep.judge import SweepJudge

LENGTH = 4
"""Steps of every trial."""


class StoreAway(Exception):
    """The store is not reached now."""


@dataclass
class TrialFolder:
    """What a trial's incarnation has stored."""

    attempt: int = 0
    committed: int = 0
    reports: list[TrialReport] = field(default_factory=list)


@dataclass
class SimulatedTrial:
    """The run of an opening: it trains, reports, crashes and is saved."""

    name: str
    uid: str
    trial: int
    opening: int
    folder: TrialFolder
    incarnation: int
    created: int
    phase: TrialRunPhase = "Waiting"
    suspend: bool = False
    restarts: int = 0
    step: int = 0
    seq: int = 0
    attempt: int = 0
    resumed: int = 0
    reports: list[TrialReport] = field(default_factory=list)
    delivered: int = 0
    """Reports that have reached the operators."""

    def start(self) -> None:
        """Another attempt, from what is stored."""
        self.folder.attempt += 1
        self.attempt, self.resumed = self.folder.attempt, self.folder.committed
        self.step, self.seq, self.phase = self.resumed, 0, "Running"

    def train(self, saved: bool) -> None:
        """One step, or the end."""
        if self.step >= LENGTH:
            self.phase = "Succeeded"
            return
        self.step += 1
        self.seq += 1
        self.reports.append(
            TrialReport(
                trial=self.trial,
                incarnation=self.incarnation,
                attempt=self.attempt,
                resumed=self.resumed,
                seq=self.seq,
                step=self.step,
                value=written(loss(self.trial, self.step)),
            )
        )
        self.folder.reports.append(self.reports[-1])
        if saved or self.step == LENGTH:
            self.folder.committed = self.step

    def crash(self, *, most: int) -> None:
        """It starts again, as far as its budget allows."""
        self.restarts += 1
        if self.restarts > most:
            self.phase = "Failed"
        else:
            self.start()

    def seen(self) -> TrialRun:
        """As the operators see it: an end is seen with the last report, as agents tell it."""
        known = self.delivered == len(self.reports)
        ended = self.phase in ("Succeeded", "Failed")
        return TrialRun(
            name=self.name,
            uid=self.uid,
            trial=self.trial,
            opening=self.opening,
            phase=self.phase if known or not ended else "Running",
            suspend=self.suspend,
            reason="AppError" if self.phase == "Failed" else "",
            restarts=self.restarts,
            attempt=self.attempt,
            resumed=self.resumed,
            seq=self.seq,
            reports=tuple(self.reports[: self.delivered]),
            created=self.created,
        )


def loss(trial: int, step: int) -> float:
    """What a trial reports at a step, whoever computes it; one in seven diverges."""
    return math.nan if trial % 7 == 6 and step > 1 else (trial * 37 % 11) + 1 / step


class SweepWorld:
    """Store and runs, as they really are."""

    def __init__(self, config: SweepConfig, random: Random) -> None:
        self.config = config
        self.random = random
        self.log: list[Record] = []
        self.away = False
        self.acted_on = 0
        self.version = 0
        self.leader = 0
        self.runs: dict[str, SimulatedTrial] = {}
        self.folders: dict[tuple[int, int], TrialFolder] = {}
        self.turn = 0
        self.judge = SweepJudge(self.log)

    # ---------------------------------------------------------------------------- the store

    def read(self, position: int) -> Sequence[Record]:
        """What stands after `position`."""
        if self.away:
            raise StoreAway
        return self.log[position:]

    def put(self, position: int, record: Record, session: SweepSession) -> bool:
        """Write it there, if nothing stands there; `session` is the writer's."""
        if self.away:
            raise StoreAway
        if position != len(self.log) + 1:
            return False
        self.judge.record(record, session)
        self.log.append(record)
        return True

    def stored(self, ended: tuple[EndedRun, ...], view: SweepView) -> tuple[TrialReport, ...]:
        """What the folders of these trials hold, whatever became of the runs meanwhile."""
        if self.away:
            raise StoreAway
        trials = [view.trials[it.trial] for it in ended if it.trial in view.trials]
        folders = [self.folders.get((it.number, it.incarnation)) for it in trials]
        return tuple(report for folder in folders if folder for report in folder.reports)

    def write_acted_on(self, position: int, version: int) -> bool:
        """The guarded write of the status."""
        if version != self.version:
            return False
        self.acted_on, self.version = position, self.version + 1
        return True

    # ------------------------------------------------------------------------------ the runs

    def apply(
        self, action: TrialAction, view: SweepView, config: SweepConfig, *, leads: bool
    ) -> None:
        """Carry out an action that follows from `view`; `leads`: the actor leads at this moment."""
        if config.uid != self.config.uid:
            return  # its owner is gone, and the API server knows
        self.judge.action(action, self.runs.get(action.name), config)
        match action:
            case CreateTrial():
                self._create(action, view)
            case SuspendTrial() if (run := self._found(action)) and not _over(run):
                run.suspend = action.suspend
            case DeleteTrial() if run := self._found(action):
                del self.runs[run.name]
            case _:
                pass
        live = sum(run.seen().live for run in self.runs.values())
        self.judge.concurrency(live, config, created=isinstance(action, CreateTrial), leads=leads)

    def _create(self, action: CreateTrial, view: SweepView) -> None:
        if action.name in self.runs:
            return
        incarnation = view.trials[action.trial].incarnation
        folder = self.folders.setdefault((action.trial, incarnation), TrialFolder())
        self.turn += 1
        self.runs[action.name] = SimulatedTrial(
            name=action.name,
            uid=f"{action.name}.{self.turn}",
            trial=action.trial,
            opening=action.opening,
            incarnation=incarnation,
            folder=folder,
            created=self.turn,
        )

    def _found(self, action: SuspendTrial | DeleteTrial) -> SimulatedTrial | None:
        run = self.runs.get(action.name)
        return run if run is not None and run.uid == action.uid else None

    def progress(self, run: SimulatedTrial, *, crash: bool) -> None:
        """Something happens to a run: it is heard, placed, saved, let go on, trains or crashes."""
        if run.delivered < len(run.reports):
            run.delivered = self.random.randint(run.delivered, len(run.reports))
        if _over(run):
            return
        if run.suspend:
            if run.phase == "Running":
                run.folder.committed = max(run.folder.committed, run.step)
            run.phase = "Suspended"
        elif run.phase in ("Waiting", "Suspended"):
            others = (it for it in self.runs.values() if it.folder is run.folder and it is not run)
            if all(it.phase != "Running" for it in others):  # the folder has one owner
                run.start()
        elif crash:
            run.crash(most=1)
        else:
            run.train(saved=self.random.random() < 0.5)
        if _over(run):
            self.judge.ended.add((run.trial, run.opening))

    def applied_again(self, config: SweepConfig) -> None:
        """The TrainSweep is deleted, with its runs, and applied again: the store is the same."""
        self.runs.clear()
        self.acted_on, self.version = 0, self.version + 1
        self.config = replace(config, uid=f"uid-{self.version}", token=0)


def _over(run: SimulatedTrial) -> bool:
    return run.phase in ("Succeeded", "Failed")
