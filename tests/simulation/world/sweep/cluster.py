"""A simulated cluster with a sweep: its API server, its room, who leads and who keeps the log.

Layer: simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from tests.simulation.world.sweep.judge import SweepJudge
from tests.simulation.world.sweep.storage import SWEEP, SimulatedStorage, StoreLine
from tests.simulation.world.sweep.sweep_object import Spec, SweepObject, applied_anew
from tests.simulation.world.sweep.trials import (
    GANG,
    SimulatedFolder,
    SimulatedTrial,
    loss,
)
from trainrun.checkpoint.run_store import RunStore
from trainrun.sweep.records import written
from trainrun_operator.core.sweep.boundary import (
    CreateTrial,
    DeleteTrial,
    SuspendTrial,
    TrialAction,
)
from trainrun_operator.core.sweep.config import TRIALS, folder_name

PLACEMENT_TIMEOUT = 60.0
"""Seconds after which a gang that is placed in part gives its places back."""


@dataclass
class SweepFolders:
    """The folders of all trials, for whichever cluster."""

    storage: SimulatedStorage
    _folders: dict[str, SimulatedFolder] = field(default_factory=dict)

    def of(self, name: str) -> SimulatedFolder:
        """That of this name."""
        if name not in self._folders:
            line = StoreLine(self.storage, lambda _moment: None)
            run = RunStore(line, f"{SWEEP}/{TRIALS}/{name}")
            self._folders[name] = SimulatedFolder(run, partial(self._needed, name))
        return self._folders[name]

    def _needed(self, name: str) -> bool:
        number, _, incarnation = name.partition("-i")
        entry = self.storage.judge.ledger.entry(int(number))
        current = entry.incarnation == int(incarnation or 1)
        return current and entry.state in ("Open", "Errored")


@dataclass
class SweepTime:
    """Virtual seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now


class SweepCluster:
    """Rows of its API server; every write is one effect."""

    def __init__(
        self,
        spec: Spec,
        *,
        number: int,
        folders: SweepFolders,
        judge: SweepJudge,
        clock: SweepTime,
        random: Random,
    ) -> None:
        self.number = number
        self.clock = clock
        self.random = random
        self.judge = judge
        self.leader = 0
        """Number of the operator that holds the Lease."""
        self.term = 0
        """How often it has gone to another."""
        self.room = 100
        """Workers that find a place."""
        self._folders = folders
        self._made = 0
        self._too_many: set[str] = set()
        """Runs that a deposed leader has begun as its last act, by uid."""
        self.runs: dict[str, SimulatedTrial] = {}
        self.sweep = SweepObject.made(spec, uid=f"uid-{number}.0", version=1)
        self.most_runs = 0
        """Objects that there were at once."""

    def pass_lease(self) -> None:
        """To the other operator; the first one does not know yet."""
        self.leader, self.term = 1 - self.leader, self.term + 1

    # ------------------------------------------------------------------------ the TrainSweep

    def write_status(self, seen: SweepObject, status: Mapping[str, Any]) -> bool:
        """The guarded write: False where the object has changed since it was `seen`."""
        if (seen.uid, seen.version) != (self.sweep.uid, self.sweep.version):
            return False
        self.judge.status(dict(status), self.sweep.spec["objective"]["goal"])
        self.sweep = replace(self.sweep, status=dict(status), version=self.sweep.version + 1)
        return True

    def edit(self, spec: Spec) -> None:
        """By its user."""
        self.sweep = self.sweep.edited(spec)

    def apply_again(self, spec: Spec) -> None:
        """It is deleted, with its runs, and applied again: the store is the same."""
        for name in tuple(self.runs):
            self.delete_by_hand(name)
        self._made += 1
        uid = f"uid-{self.number}.{self._made}"
        version = self.sweep.version + 1
        self.sweep = SweepObject.made(applied_anew(spec), uid=uid, version=version)

    def delete_by_hand(self, name: str) -> None:
        """A run."""
        self.runs.pop(name).leave()

    # --------------------------------------------------------------------------- the TrainRuns

    def act(self, action: TrialAction, by: SweepObject, *, position: int, leads: bool) -> None:
        """Carry out what follows from the log up to `position`, and from the sweep as it was seen;
        `leads`: who acts leads at this moment."""
        if by.uid != self.sweep.uid:
            return  # its owner is gone: the API server refuses it, or takes it away at once
        self.judge.action(
            action,
            self.runs.get(action.name),
            by.config,
            position=position,
            acted_on=self.sweep.status.get("position", 0),
            leads=leads,
        )
        match action:
            case CreateTrial():
                if action.name not in self.runs:
                    self._create(action)
                    self._judge_room(action.name, by, leads=leads)
            case SuspendTrial():
                run = self.runs.get(action.name)
                if run is not None and run.uid == action.uid and not run.ended:
                    run.suspend = action.suspend
                    if not action.suspend:
                        self._judge_room(action.name, by, leads=leads)
            case DeleteTrial():
                run = self.runs.get(action.name)
                if run is not None and run.uid == action.uid:
                    self.delete_by_hand(action.name)

    def _create(self, action: CreateTrial) -> None:
        self._made += 1
        trial = action.trial
        self.runs[action.name] = SimulatedTrial(
            name=action.name,
            uid=f"{action.name}.{self.number}.{self._made}",
            trial=trial.number,
            opening=trial.opening,
            incarnation=trial.incarnation,
            asking=self.judge.askings[trial.number],
            folder=self._folders.of(folder_name(trial)),
            random=self.random,
            created=float(self._made),
            waits_since=self.clock.now,
            on_report=self._reported,
        )
        self.most_runs = max(self.most_runs, len(self.runs))

    def _reported(self, run: SimulatedTrial) -> None:
        key = (run.trial, run.incarnation, run.step)
        self.judge.reported[key] = written(loss(run.trial, run.step))

    def _judge_room(self, begun: str, by: SweepObject, *, leads: bool) -> None:
        if not leads:
            self._too_many.add(self.runs[begun].uid)
            return
        counted = [it for it in self.runs.values() if it.uid not in self._too_many]
        live = [it for it in counted if it.seen().live]
        waiting = [it for it in live if it.seen().phase in ("Waiting", "Suspended")]
        unplaced = sum(not it.lost_place for it in waiting)
        self.judge.room(len(live), unplaced, by.config)

    # --------------------------------------------------------------------------------- its room

    def progress(self, run: SimulatedTrial, *, crash: bool) -> None:
        """Something happens to a run: it is placed, trains, crashes, is saved, is let go on."""
        if run.ended:
            return
        if run.phase == "Waiting" and not run.suspend and run.placed < GANG:
            self._place(run)
            return
        run.waits_since = self.clock.now
        run.progress(crash=crash)
        if run.seen().ended:
            self.judge.ended.add((run.trial, run.opening))

    def _place(self, run: SimulatedTrial) -> None:
        if sum(it.placed for it in self.runs.values()) < self.room:
            run.placed += 1
        elif run.placed and self.clock.now - run.waits_since > PLACEMENT_TIMEOUT:
            run.placed, run.waits_since = 0, self.clock.now
