"""What must hold in every moment of a sweep's life.

Layer: simulation. It is asked about every record before it is written, every action before it is
done, every order before it is given, and every checkpoint before it is deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

from tests.simulation.world.sweep.ledger import SweepLedger, TrialEntry
from trainrun.contract import layout
from trainrun.sweep.records import Ask, End, Record, Reports, SweepSession, Targets, Tell
from trainrun_operator.core.sweep.boundary import (
    CreateTrial,
    DeleteTrial,
    SuspendTrial,
    TrialAction,
)
from trainrun_operator.core.sweep.config import SweepConfig

LARGEST_STATUS = 16 * 1024
"""Bytes, whatever the number of trials."""


class BrokenPromise(AssertionError):
    """Something happened that must never happen."""


class JudgedRun(Protocol):
    """A run, as far as it is judged."""

    trial: int
    opening: int


class SweepJudge:
    """Of one sweep, wherever it is led."""

    def __init__(self) -> None:
        self.ledger = SweepLedger()
        self.ended: set[tuple[int, int]] = set()
        """Trial and opening of every run that has really ended."""
        self.reported: dict[tuple[int, int, int], str] = {}
        """By trial, incarnation and step: what was really reported."""
        self.askings: dict[int, int] = {}
        """By trial its place among all Asks ever written, also those that the log has lost."""
        self._most_asked = 0
        """Trials that some operator has asked for."""
        self.fewest_kept = 10**6
        """Trials whose checkpoints were kept while others were deleted."""
        self._asked = 0
        self._heard: set[tuple[int, int, int, int]] = set()

    # --------------------------------------------------------------------------- the log

    def record(self, position: int, record: Record, writer: SweepSession | None) -> None:
        """A clerk of this session is about to write this, and nobody was faster."""
        ledger = self.ledger
        _must(position == len(ledger.log) + 1, f"record {position} leaves a hole: {record}")
        newest = ledger.newest
        if isinstance(record, SweepSession):
            twice = any(_same(it, record) for it in ledger.sessions.now)
            _must(not twice, f"{record} is recorded twice")
        else:
            _must(newest is not None, f"{record} before any session")
            leads = newest is not None and writer is not None and _same(newest, writer)
            _must(leads, f"a clerk of a session that does not lead wrote {record}")
        match record:
            case Ask():
                self._ask(record)
            case Tell():
                self._tell(record)
            case Reports():
                self._reports(record)
            case End():
                _must(ledger.ends.now is None, f"ended twice: {record}")
            case _:
                pass
        ledger.enter(record)

    def lose(self, kept: int) -> None:
        """Somebody puts back the log as it was when it had so many records."""
        records, self.ledger, self._heard = self.ledger.log[:kept], SweepLedger(), set()
        for record in records:
            self.ledger.enter(record)
            if isinstance(record, Reports):
                self._heard |= {
                    (it.trial, it.incarnation, it.attempt, it.seq) for it in record.reports
                }

    def _ask(self, ask: Ask) -> None:
        ledger = self.ledger
        _must(ask.trial == len(ledger.params), f"trial {ask.trial} was asked out of turn")
        _must(ledger.ends.now is None, f"trial {ask.trial} was asked after the end")
        _must(ask.trial < self._most_asked, f"nobody has wanted trial {ask.trial}")
        self._asked += 1
        self.askings[ask.trial] = self._asked

    def _tell(self, tell: Tell) -> None:
        entry = self.ledger.entry(tell.trial)
        _must(entry.open and entry.opening == tell.opening, f"told twice: {tell}")
        of_a_run = tell.state in ("Succeeded", "Errored")
        ran = not of_a_run or (tell.trial, tell.opening) in self.ended
        _must(ran, f"no run has ended so: {tell}")
        _must(tell.reason != "NoObjective", f"it has reported: {tell}")

    def _reports(self, record: Reports) -> None:
        for it in record.reports:
            key = (it.trial, it.incarnation, it.attempt, it.seq)
            entry = self.ledger.entry(it.trial)
            late = not entry.open or entry.incarnation != it.incarnation
            _must(not late, f"a report of a trial that is closed: {it}")
            _must(key not in self._heard, f"counted twice: {it}")
            self._heard.add(key)
            real = self.reported.get((it.trial, it.incarnation, it.step))
            _must(real == it.value, f"{it} was never reported: it was {real}")

    # --------------------------------------------------------------------------- the orders

    def orders(self, targets: Targets, config: SweepConfig, position: int) -> None:
        """An operator that knows the log up to `position` is about to want this."""
        known = sum(bool(it.at(position).state) for it in self.ledger.trials.values())
        more = targets.asked - known
        _must(more <= config.max_concurrent, f"{more} trials are asked for ahead")
        if more > 0:
            _must(targets.asked <= config.trials, f"{targets.asked} trials of {config.trials}")
            _must(not self._spent(config, position), "more is asked for than the budget allows")
            _must(not config.suspend, "a suspended sweep asks for trials")
        self._most_asked = max(self._most_asked, targets.asked)

    def _spent(self, config: SweepConfig, position: int) -> bool:
        most = config.active_time
        return most is not None and self.ledger.active.at(position) >= most

    # -------------------------------------------------------------------------- the actions

    def action(
        self,
        action: TrialAction,
        run: JudgedRun | None,
        config: SweepConfig,
        *,
        position: int,
        acted_on: int,
        leads: bool,
    ) -> None:
        """An operator is about to do this to that run, since the log says so up to `position`;
        `acted_on` is what the status says of it, `leads` whether it leads at this moment."""
        # One that was deposed while it did this may be late, but not more than that.
        first = position == acted_on or (not leads and position < acted_on)
        _must(first, f"{action} follows from {position}, and the status says {acted_on}")
        match action:
            case CreateTrial():
                asked = self.ledger.params.get(action.trial.number)
                _must(asked == action.trial.params, f"no record justifies {action}")
                self._begins(action.trial.number, action.trial.opening, action, config, position)
            case DeleteTrial() if run is not None:
                entry = self.ledger.entry(run.trial)
                needed = entry.open and entry.opening == run.opening
                _must(not needed, f"{action.name} is open, and was deleted")
            case SuspendTrial(suspend=True) if run is not None:
                justified = config.suspend or run.trial in config.paused or self.ledger.ever_ended
                _must(justified or self._taken_over(config), f"nothing justifies {action}")
            case SuspendTrial(suspend=False) if run is not None:
                self._begins(run.trial, run.opening, action, config, position)
            case _:
                pass

    def _begins(
        self, trial: int, opening: int, action: TrialAction, config: SweepConfig, position: int
    ) -> None:
        entry = self.ledger.entry(trial, position)
        _must(entry.open and entry.opening == opening, f"trial {trial} is closed: {action}")
        _must(self.ledger.ends.at(position) is None, f"the sweep is over: {action}")
        _must(not self._spent(config, position), f"the budget is spent: {action}")
        held = config.suspend or trial in config.paused | config.stopped
        _must(not held, f"trial {trial} is to wait: {action}")

    def _taken_over(self, config: SweepConfig) -> bool:
        newest = self.ledger.newest
        return newest is not None and newest.uid != config.uid

    def room(self, live: int, unplaced: int, config: SweepConfig) -> None:
        """So many runs work, or wait for room, now that another was begun; those that a deposed
        leader has begun as its last act are not counted."""
        most = config.max_concurrent
        _must(live <= most, f"{live} trials work at once, {most} may")
        most = config.max_unplaced
        _must(unplaced <= most, f"{unplaced} trials wait for room at once, {most} may")

    # ------------------------------------------------------------------- what is shown and kept

    def status(self, status: dict[str, Any], goal: str) -> None:
        """An operator is about to write this."""
        size = len(json.dumps(status, ensure_ascii=False).encode())
        _must(size < LARGEST_STATUS, f"the status has {size} bytes")
        position = status.get("position", 0)
        entries = {number: it.at(position) for number, it in self.ledger.trials.items()}
        self._counts(status, entries.values())
        values = {
            number: float(it.value)
            for number, it in entries.items()
            if it.value and it.state in ("Succeeded", "Stopped")
        }
        if not values:
            return
        least = min(values.values()) if goal == "minimize" else max(values.values())
        found = status.get("best", {"trial": -1, "value": "nan"})
        _must("best" in status, f"no best one, and trials have ended with {values}")
        shown, open_one = float(found["value"]), entries[found["trial"]].open
        ahead = shown <= least if goal == "minimize" else shown >= least
        _must(ahead, f"the best is {found}, and the table has {least}")
        of_table = open_one or shown == values.get(found["trial"])
        _must(of_table, f"the best is {found}, and trials have {values}")

    def _counts(self, status: dict[str, Any], entries: Iterable[TrialEntry]) -> None:
        counts = Counter(it.state.lower() for it in entries if it.state)
        shown = {key: it for key, it in status.get("trials", {}).items() if key != "text" and it}
        _must(shown == counts, f"the status counts {shown}, and the log {dict(counts)}")

    def deleted(self, key: str, best: int | None) -> None:
        """A clerk has deleted this object, of all but the `best` trials'."""
        _, _, folder, what = key.split("/", 3)
        number, _, incarnation = folder.partition("-i")
        _must(what.startswith(layout.CHECKPOINTS), f"{key} was deleted")
        entry = self.ledger.entry(int(number))
        current = entry.incarnation == int(incarnation or 1)
        needed = entry.state in ("Open", "Errored") and current
        _must(not needed, f"{key} was deleted, and the trial is {entry.state}")
        self.fewest_kept = min(self.fewest_kept, best or 0)
        kept = best is None or int(number) in self.best(best)
        _must(not kept, f"{key} was deleted, and the trial is one of the best {best}")

    def best(self, most: int) -> list[int]:
        """The best of the trials that have ended, least value first."""
        ended = {number: it.now for number, it in self.ledger.trials.items() if it.now.value}
        counted = [n for n, it in ended.items() if it.state in ("Succeeded", "Stopped")]
        return sorted(counted, key=lambda n: (float(ended[n].value), n))[:most]


def _same(one: SweepSession, other: SweepSession) -> bool:
    return (one.uid, one.token) == (other.uid, other.token)


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenPromise(what)
