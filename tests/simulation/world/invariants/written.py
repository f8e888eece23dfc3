"""The written status: counted once, never forgotten, bounded, one start record an attempt.

Layer: simulation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainrun_operator.api.run.status import json_size
from trainrun_operator.core.run.causes import BUDGETS

if TYPE_CHECKING:
    from tests.simulation.world.invariants.case import Case
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.api.run.status_parts import BudgetName

MAX_STATUS = 20 * 1024
"""Bytes that a status may have."""

MOST_WRITES = 15
"""Writes in a second that say what is to be done: more than that is a circle."""

AN_EDIT_AGO = 30.0
"""Seconds for which an operator may decide by a spec that its user has edited since."""


class Written:
    """Judges every write that was accepted, in order."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._transitions: list[float] = []
        self._used_before: Counter[BudgetName] = Counter()
        """Budgets of a status that was set back, beyond the incidents that it tells of."""
        self._is_whole = True

    def status(self, old: TrainRunStatus, new: TrainRunStatus, *, transition: bool) -> None:
        """A write was accepted; `transition`: it says what is to be done."""
        self._counters_only_grow(old, new)
        self._start_record(new)
        self._incidents(old, new)
        self._verdict_stays(old, new)
        if json_size(new) >= MAX_STATUS:
            self._case.wrong(f"a status of {json_size(new)} bytes was written")
        if not transition and _durable(old) != _durable(new):
            self._case.wrong("a write for display changed what decisions are based on")
        if transition:
            self._comes_to_rest(old, new)

    def _comes_to_rest(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        if old == new:
            self._case.wrong("what was written is written again: this run does not come to rest")
        if self._case.heartbeats_lost:
            return  # leaders who each hear a part of the gang contradict each other
        now = self._case.now
        self._transitions = [at for at in self._transitions if at > now - 1.0]
        self._transitions.append(now)
        if len(self._transitions) == MOST_WRITES:
            self._case.wrong(f"{MOST_WRITES} decisions were written within a second: {new.reason}")

    def _counters_only_grow(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        pairs = (
            *(
                (name, budget.used(old.failures), budget.used(new.failures))
                for name, budget in BUDGETS.items()
            ),
            ("attempt", old.attempt, new.attempt),
            ("restarts", old.restarts, new.restarts),
        )
        for name, before, after in pairs:
            if after < before:
                self._case.wrong(f"{name} went down from {before} to {after}")

    def _start_record(self, new: TrainRunStatus) -> None:
        record = new.start_record
        if record is None:
            return
        known = self._case.records.setdefault(record.attempt, record)
        self._case.started_at.setdefault(record.attempt, self._case.now)
        if known != record:
            self._case.wrong(f"attempt {record.attempt} has two start records")

    def _incidents(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        case = self._case
        if new.incident is not None:
            case.opened_at.setdefault(new.incident.attempt, case.now)
        if new.ending is not None:
            case.ended_at.setdefault(new.ending.attempt, case.now)
        for incident in new.incidents[-2:]:
            known = case.settled.setdefault(incident.attempt, incident)
            if (known.cause, known.budget, known.counted) != (
                incident.cause,
                incident.budget,
                incident.counted,
            ):
                case.wrong(f"the settled incident of attempt {incident.attempt} changed")
        charged = Counter(i.budget for i in case.settled.values() if i.counted)
        charged.update(self._used_before)
        used = {name: budget.used(new.failures) for name, budget in BUDGETS.items()}
        if any(used[name] != charged[name] for name in used):
            case.wrong(f"{new.failures} does not match the incidents {sorted(case.settled)}")
        ending = new.ending
        if ending is not None and ending.kind != "Incident" and old.ending is None:
            case.ended_uncounted.add(ending.attempt)

    def _verdict_stays(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        case = self._case
        if old.is_true("Failed") and not new.finished and old.start_record == new.start_record:
            self._goes_on(old)
        elif old.finished and (
            old.is_true("Complete") != new.is_true("Complete")
            or old.is_true("Failed") != new.is_true("Failed")
            or old.start_record != new.start_record
        ):
            case.wrong("a finished run did not stay finished")
        limits = {known["failures"] for known in case.limits_since(case.now - AN_EDIT_AGO)}
        used, used_before = self._used("failures", new), self._used("failures", old)
        if new.is_true("Failed") and not old.finished:
            failed = new.condition("Failed")
            spent = failed is not None and failed.reason == "MaxFailuresExceeded"
            if spent and used - 1 not in limits and not any(0 <= most < used for most in limits):
                case.wrong(f"failed with {used} counted and a limit of {sorted(limits)}")
        more = used > used_before and new.failures.counted > old.failures.counted
        if more and not new.finished and all(0 <= most < used for most in limits):
            case.wrong(f"{used} failures counted, {sorted(limits)} allowed, and the run goes on")

    def _used(self, name: BudgetName, status: TrainRunStatus) -> int:
        """What counts towards the limit of a budget when the last incident comes.

        By the times of the incidents themselves; those of a leader whose clock was ahead count.
        """
        window, total = self._case.world.config.window, BUDGETS[name].used(status.failures)
        if window is None or not self._is_whole:
            return total
        if not status.incidents:
            return 0
        last = status.incidents[-1]
        known = [i for i in self._case.settled.values() if i.attempt <= last.attempt]
        charged = [i for i in known if i.counted and i.budget == name]
        return sum(last.time - window < i.time for i in charged)

    def _goes_on(self, old: TrainRunStatus) -> None:
        """A verdict is taken back only where the field that gave it admits it now."""
        config, failed = self._case.world.config, old.condition("Failed")
        reason = failed.reason if failed is not None else ""
        admitted = {
            "NoProgress": not 0 < config.no_progress_limit <= old.without_progress,
            "DeadlineExceeded": True,
        }
        for limits in self._case.limits_since(self._case.now - AN_EDIT_AGO):
            for name, budget in BUDGETS.items():
                limit, used = limits.get(name, 0), self._used(name, old)
                verdict = f"{budget.field[0].upper()}{budget.field[1:]}Exceeded"
                admitted[verdict] = admitted.get(verdict, False) or not 0 <= limit < used
        if not admitted.get(reason, False):
            self._case.wrong(f"a run goes on that has failed with {reason}")

    def set_back(self, status: TrainRunStatus) -> None:
        """An old status has been written by somebody else."""
        for attempt in [a for a in self._case.records if a > status.attempt]:
            if not self._case.world.gang(attempt):  # nobody has started it: it is free again
                del self._case.records[attempt], self._case.started_at[attempt]
        self._case.settled = {i.attempt: i for i in status.incidents}
        self._case.ended_uncounted.clear()
        known = Counter(i.budget for i in status.incidents if i.counted)
        self._used_before = Counter(
            {name: budget.used(status.failures) - known[name] for name, budget in BUDGETS.items()}
        )
        self._is_whole = False

    def closing(self) -> None:
        """Every attempt that was started has ended in one way, the last one aside."""
        case = self._case
        ended = len([a for a in case.records if a in case.settled or a in case.ended_uncounted])
        if self._is_whole and len(case.records) - ended > 1:
            case.wrong(f"{len(case.records)} attempts were started and only {ended} have ended")


def _durable(status: TrainRunStatus) -> tuple[object, ...]:
    return (
        status.attempt,
        status.start_record,
        status.ending,
        status.save_asked,
        status.fruitless,
        status.without_progress,
        status.reached,
        status.distrusted,
        status.restarts,
        *(budget.used(status.failures) for budget in BUDGETS.values()),
        status.incident is None,
        status.finished,
    )
