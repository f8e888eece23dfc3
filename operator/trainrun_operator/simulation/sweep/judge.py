"""What must hold in every moment of a sweep's life; reads the log by itself, not with the fold.

Layer: simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainrun.sweep.records import Ask, End, Record, SweepSession, Tell
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.plan import CreateTrial, DeleteTrial, SuspendTrial, TrialAction


class BrokenPromise(AssertionError):
    """Something happened that must never happen."""


class JudgedRun(Protocol):
    """A run, as far as it is judged."""

    trial: int
    opening: int


class SweepJudge:
    """Asked about every record before it is written, and every action before it is done."""

    def __init__(self, log: Sequence[Record]) -> None:
        self._log = log
        self.ended: set[tuple[int, int]] = set()
        """Trial and opening of every run that has really ended."""
        self._overshoot = 0
        """Trials that leaders which were deposed may have created."""

    def record(self, record: Record, writer: SweepSession) -> None:
        """A clerk of this session is about to write this, and nobody was faster."""
        sessions = [it for it in self._log if isinstance(it, SweepSession)]
        if isinstance(record, SweepSession):
            _must(record not in sessions, f"{record} is recorded twice")
            return
        _must(sessions[-1:] == [writer], f"a clerk of a session that does not lead wrote {record}")
        if isinstance(record, Ask):
            numbers = [it.trial for it in self._log if isinstance(it, Ask)]
            _must(record.trial == len(numbers), f"trial {record.trial} was asked out of turn")
            _must(not self.over, f"trial {record.trial} was asked after the end")
        if isinstance(record, Tell):
            told = [(it.trial, it.opening) for it in self._log if isinstance(it, Tell)]
            _must((record.trial, record.opening) not in told, f"told twice: {record}")
            of_a_run = record.state in ("Succeeded", "Errored")
            ran = not of_a_run or (record.trial, record.opening) in self.ended
            _must(ran, f"no run has ended so: {record}")
            _must(record.reason != "NoObjective", f"it has reported: {record}")

    def action(self, action: TrialAction, run: JudgedRun | None, config: SweepConfig) -> None:
        """An operator is about to do this to that run."""
        match action:
            case CreateTrial():
                asked = {it.trial: it.params for it in self._log if isinstance(it, Ask)}
                _must(asked.get(action.trial) == action.params, f"no record justifies {action}")
            case DeleteTrial() if run is not None:
                needed = self.opening(run.trial) == run.opening and not self._told(run)
                _must(not needed, f"{action.name} is open, and was deleted")
            case SuspendTrial(suspend=True) if run is not None:
                justified = config.suspend or run.trial in config.paused or self._ever_ended
                _must(justified or self._taken_over(config), f"nothing justifies {action}")
            case _:
                pass

    def concurrency(self, live: int, config: SweepConfig, *, created: bool, leads: bool) -> None:
        """So many runs work now; a deposed leader may finish the one action it was at."""
        self._overshoot += created and not leads
        most = config.max_concurrent + self._overshoot
        _must(not created or live <= most, f"{live} trials work at once, {most} may")

    def opening(self, trial: int) -> int:
        """How many times it was opened, by the sessions alone."""
        state, opening, skipped = "", 0, False
        for it in self._log:
            if isinstance(it, Ask) and it.trial == trial:
                state, opening = "Open", 1
            elif isinstance(it, Tell) and (it.trial, it.opening) == (trial, opening):
                state = it.state
            elif isinstance(it, SweepSession) and not skipped:
                skipped = state == "Open" and not it.resume_unfinished
                if state == "Errored" and (it.resume_errored or it.restart_errored):
                    state, opening = "Open", opening + 1
        return 0 if skipped else opening

    @property
    def over(self) -> bool:
        """An End stands there that nothing has lifted."""
        last = [it.kind for it in self._log if it.kind in ("End", "Amend", "Session")]
        return last[-1:] == ["End"]

    @property
    def _ever_ended(self) -> bool:
        return any(isinstance(it, End) for it in self._log)

    def _told(self, run: JudgedRun) -> bool:
        told = ((it.trial, it.opening) for it in self._log if isinstance(it, Tell))
        return (run.trial, run.opening) in told

    def _taken_over(self, config: SweepConfig) -> bool:
        sessions = [it for it in self._log if isinstance(it, SweepSession)]
        return bool(sessions) and sessions[-1].uid != config.uid


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenPromise(what)
