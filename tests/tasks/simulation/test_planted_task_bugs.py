"""Mistakes in driver and engine that some life must notice, or the judge is blind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tasks.simulation import world
from tests.tasks.simulation.judge import BrokenPromise
from tests.tasks.simulation.world import live
from trainrun.tasks import verdicts
from trainrun.tasks.driver_state import DriverState
from trainrun.tasks.engine import Engine
from trainrun.tasks.placing import Places
from trainrun.tasks.recovery import Recovery
from trainrun.tasks.replayed_state import Entry, ReplayedState
from trainrun.tasks.task_storage import TaskLog, from_bytes

ENOUGH = 300
"""Lives within which each is found."""

Plant = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, tuple[Plant, str]] = {}


def _bug(noticed: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS[plant.__name__] = plant, noticed
        return plant

    return add


@_bug("exceeds max_retries")
def _one_retry_too_many(patch: pytest.MonkeyPatch) -> None:
    counted = verdicts._counted

    def one_more(call: Any, entry: Entry, reason: Any, what: str) -> Any:
        entry.spent -= 1
        try:
            return counted(call, entry, reason, what)
        finally:
            entry.spent += 1

    patch.setattr(verdicts, "_counted", one_more)


@_bug("exceeds max_retries")
def _budgets_do_not_outlive_a_driver(patch: pytest.MonkeyPatch) -> None:
    began = ReplayedState._began

    def forget(self: ReplayedState, record: Any) -> None:
        began(self, record)
        for entry in self.entries.values():
            entry.spent = 0

    patch.setattr(ReplayedState, "_began", forget)


@_bug("gives up before")
def _a_retry_too_few(patch: pytest.MonkeyPatch) -> None:
    began = ReplayedState._began

    def count_all(self: ReplayedState, record: Any) -> None:
        for key in self._open:
            self.entries[key].spent += 1
        began(self, record)

    patch.setattr(ReplayedState, "_began", count_all)


@_bug("but the log says")
def _starts_before_its_record(patch: pytest.MonkeyPatch) -> None:
    place = Engine._place

    def at_once(self: Engine, key: str, worker: int | None, need: Any) -> None:
        place(self, key, worker, need)
        for run, (where, _) in self._places.runs.items():
            if run.key == key:
                self._state.plan.starts[where, run] = None

    patch.setattr(Engine, "_place", at_once)


@_bug("writes after its successor")
def _two_drivers_take_turns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskLog, "_of_others", lambda _, data: from_bytes(data))


@_bug("raises without a reason: ObjectLostError")
def _lost_at_first_sight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world, "LOOKED_AGAIN", 0.0)


@_bug("nobody waits for the rebuilt")
def _rebuilt_for_nobody(patch: pytest.MonkeyPatch) -> None:
    answered = Recovery._answered

    def with_children(self: Recovery, ref: Any) -> bool:
        for key, entry in self._state.replayed.entries.items():
            if entry.done and key != ref.key and key in self._state.tasks:
                first = type(ref)(key, 0)
                self._state.off.setdefault(first, "gone, too")
                self._state.dirty[key] = None
        return answered(self, ref)

    patch.setattr(Recovery, "_answered", with_children)
    patch.setattr(DriverState, "waited_for", lambda *_: True)
    patch.setattr("tests.tasks.simulation.judge.Judge._allowed", lambda *_: None)


def _allow(patch: pytest.MonkeyPatch, allowed: str) -> None:
    reason_of = Recovery._reason

    def reason(*arguments: Any) -> Any:
        reason = reason_of(*arguments)
        return None if reason == allowed else reason

    patch.setattr(Recovery, "_reason", reason)


@_bug("exceeds")
def _rebuilt_without_bounds(patch: pytest.MonkeyPatch) -> None:
    _allow(patch, "ReconstructionsExceeded")


@_bug("begins with lineage off")
def _rebuilt_with_lineage_off(patch: pytest.MonkeyPatch) -> None:
    _allow(patch, "LineageDisabled")


@_bug("although its results are committed")
def _a_replay_runs_what_is_done(patch: pytest.MonkeyPatch) -> None:
    call = Engine.call

    def anew(self: Engine, made: Any) -> None:
        self._state.entry(made.key).done = False
        call(self, made)

    patch.setattr(Engine, "call", anew)


@_bug("cpus")
def _more_than_a_worker_has(patch: pytest.MonkeyPatch) -> None:
    take = Places.take
    patch.setattr(Places, "take", lambda self, run, worker, _: take(self, run, worker, (0.0, 0)))


@_bug("for ever")
def _waits_for_a_message(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Engine, "_never_received", lambda *_: None)


@_bug("for ever")
def _a_search_that_is_not_answered(patch: pytest.MonkeyPatch) -> None:
    present = Engine.present

    def seldom(self: Engine, key: str, index: int) -> None:
        if key != "k00":
            present(self, key, index)

    patch.setattr(Engine, "present", seldom)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a few hundred lives, and by the promise that it breaks."""
    plant, noticed = BUGS[name]
    plant(monkeypatch)
    seen = set()
    for seed in range(ENOUGH):
        try:
            live(seed)
        except BrokenPromise as broken:
            if noticed in str(broken):
                return
            seen.add(str(broken)[:100])
    pytest.fail(f"no life notices {name}; instead: {seen}")
