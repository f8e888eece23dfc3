"""The TrainRuns of simulated trials: they find room, train, store, crash, are saved and let go on.

Layer: simulation. What they store is what agents store, written by the code of agents where that
is theirs alone; what the operator sees of them is what the API server shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.world.sweep.judge import BrokenPromise
from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.records import AttemptRecord
from trainrun.checkpoint.run_store import RunStore
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import StoreError
from trainrun_operator.core.sweep.boundary import TrialRun, TrialRunPhase

LENGTH = 4
"""Steps of every trial."""
GANG = 2
"""Workers of every trial."""
MAX_FAILURES = 1
"""Of every run."""
METRIC = "loss"


def loss(trial: int, step: int) -> float:
    """What a trial reports at a step, whoever computes it; one in seven diverges."""
    return math.nan if trial % 7 == 6 and step > 1 else (trial * 37 % 11) + 1 / step


@dataclass
class SimulatedFolder:
    """What a trial's incarnation has stored: as it really is."""

    run: RunStore
    needed: Callable[[], bool]
    """Whether its trial may still go on, as the log says: it is open, or has errored."""
    attempts: int = 0
    newest: CheckpointId | None = None
    """The newest checkpoint that no later attempt has left behind."""
    finished: bool = False
    asking: int = 0
    """That of the trial which has used it; 0: none has."""
    owner: str = ""
    """The uid of the run that works in it."""

    def commit(self, checkpoint: CheckpointId) -> None:
        """Store a checkpoint. Raises StoreError."""
        folder = layout.folder(checkpoint)
        for name in (layout.file_name(0, "model"), layout.marker_name(0), layout.MANIFEST):
            self.run.store.put(self.run.key(folder + name), b"{}")
        self.newest = checkpoint

    def begin(self, uid: str) -> int:
        """Claim the next attempt; returns the step that it goes on from. Raises StoreError."""
        attempt, resume = self.attempts + 1, self.newest
        if resume is not None:
            manifest = layout.folder(resume) + layout.MANIFEST
            if self.run.store.size(self.run.key(manifest)) is None:
                # A cluster that was taken over may be late: of a trial that is closed nobody needs
                # anything.
                if self.needed():
                    name = self.run.run_name
                    raise BrokenPromise(f"{name} goes on from {resume}, which was deleted")
                resume = None
        record = AttemptRecord(attempt=attempt, uid=uid, resume=resume)
        self.run.write_once(layout.attempt_key(attempt), record)
        self.attempts = attempt
        return 0 if resume is None else resume.step


@dataclass
class SimulatedTrial:
    """The run of an opening."""

    name: str
    uid: str
    trial: int
    opening: int
    incarnation: int
    asking: int
    """As in `SweepJudge.askings`."""
    folder: SimulatedFolder
    random: Random
    created: float
    suspend: bool = False
    phase: TrialRunPhase = "Waiting"
    placed: int = 0
    """Workers that have a place."""
    lost_place: bool = False
    """Of one of its workers, after it had trained: no leader could know of that."""
    waits_since: float = 0.0
    attempt: int = 0
    step: int = 0
    restarts: int = 0
    reason: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)
    """Those that the agent has not stored."""
    metrics: MetricsLog | None = None
    on_report: Callable[[SimulatedTrial], None] = lambda _run: None
    """Is told of each step that it reports."""

    @property
    def ended(self) -> bool:
        """Nothing of it will work again."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def working(self) -> bool:
        """Its script runs."""
        return self.phase == "Running"

    def seen(self) -> TrialRun:
        """As the API server shows it."""
        phase = self.phase
        if phase == "Waiting" and self.placed == GANG:
            phase = "Running"
        return TrialRun(
            name=self.name,
            uid=self.uid,
            trial=self.trial,
            opening=self.opening,
            phase=phase,
            suspend=self.suspend,
            reason=self.reason,
            message="what the script said" if self.reason else "",
            restarts=self.restarts,
            attempt=self.attempt,
            created=self.created,
        )

    def progress(self, *, crash: bool) -> None:
        """Something happens to it; where the store is away, it waits for it."""
        try:
            self._progress(crash=crash)
        except StoreError:
            pass

    def leave(self) -> None:
        """Give up room and folder."""
        self.placed, self.lost_place = 0, False
        if self.folder.owner == self.uid:
            self.folder.owner = ""

    def _progress(self, *, crash: bool) -> None:
        if self.suspend:
            self._save_and_stop()
        elif self.phase == "Suspended":
            self.phase = "Waiting"
        elif self.phase == "Waiting":
            if self.placed == GANG and self.folder.owner in ("", self.uid):
                self._start()
        elif crash:
            self._crash()
        elif self.step < LENGTH:
            self._train()
        else:
            self._end()

    def _start(self) -> None:
        self.folder.owner, self.lost_place = self.uid, False
        if self.folder.asking not in (0, self.asking):
            raise BrokenPromise(f"{self.name} goes on in the folder of another trial")
        if self.folder.finished:
            self.attempt = max(self.attempt, self.folder.attempts)
            self._over("Succeeded")
            return
        self.step = self.folder.begin(self.uid)
        self.folder.asking = self.asking
        self.attempt = self.folder.attempts
        self.metrics, self.reports = MetricsLog(self.attempt), []
        self.phase = "Running"

    def _train(self) -> None:
        self.step += 1
        value: Any = loss(self.trial, self.step)
        told = value if math.isfinite(value) else {"float": "NaN"}
        self.reports.append({"step": self.step, "rank": 0, "metrics": {METRIC: told}})
        self.on_report(self)
        saves = self.random.random() < 0.5
        if saves or self.random.random() < 0.3:
            self._store_reports()
        if saves:
            self.folder.commit(CheckpointId(attempt=self.attempt, step=self.step))

    def _store_reports(self) -> None:
        assert self.metrics is not None, "it runs"
        self.metrics.write(self.folder.run, self.reports)
        if self.random.random() > 0.05:  # else the agent has not heard of it, and does it again
            self.reports = []

    def _crash(self) -> None:
        """The script alone, or its agent, with what it had not stored."""
        if self.random.random() < 0.5:
            self._store_reports()
        if self.restarts == MAX_FAILURES:
            self.reason = "AppError"
            self._over("Failed")
            return
        self.restarts += 1
        self.phase = "Waiting"
        if self.random.random() < 0.3:
            self.placed -= 1  # a worker is lost, with its place
            self.lost_place = True

    def _end(self) -> None:
        if self.reports:
            self._store_reports()
            self.reports = []
        self.folder.finished = True
        self._over("Succeeded")

    def _save_and_stop(self) -> None:
        if self.phase == "Running":
            self._store_reports()
            saved = 0 if self.folder.newest is None else self.folder.newest.step
            if self.step > saved:
                self.folder.commit(CheckpointId(attempt=self.attempt, step=self.step))
        self.phase = "Suspended"
        self.leave()

    def _over(self, phase: TrialRunPhase) -> None:
        self.phase = phase
        self.leave()
