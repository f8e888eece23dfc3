"""Parameters chosen by CMA-ES, folded from the log each time."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from typing import Any

import pytest

from tests.support.cma_searches import (
    CUBE,
    SPACE,
    ask,
    best,
    bowl,
    ended,
    loss,
    search_of,
    searched,
)
from tests.support.sweeps import a_view, told
from trainrun._samplers.cma_sampler import CmaSampler
from trainrun.contract import wire
from trainrun.sweep.records import LogEntry, Record, SweepSession, Tell
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.search import FloatRange, IntRange, Parameter
from trainrun.sweep.view import apply, fold


@pytest.mark.parametrize("at_once", [1, 5])
def test_one_made_anew_from_the_log_answers_as_one_that_was_never_lost(at_once: int) -> None:
    search, kept, dice = search_of(), CmaSampler(), random.Random(at_once)
    log: list[Record] = [SweepSession(uid="me")]
    working: list[int] = []
    view = fold(log)
    for number in range(40):
        if len(working) == at_once:
            first = working.pop(dice.randrange(at_once))
            log.append(an_end(first, loss(view.trials[first].params)))
            view = apply(view, log[-1])
        record = ask(view, search, kept)
        again = fold(wire.decode(LogEntry, wire.encode(LogEntry(it))).record for it in log)
        assert record == ask(again, search), f"trial {number}"
        assert record.study == {}
        log.append(record)
        view = apply(view, record)
        working.append(number)


def an_end(number: int, value: float) -> Tell:
    if number % 7 == 3:
        return told(number, "Errored")
    if number % 7 == 5:
        return ended(number, value, state="Stopped", reason="StoppedEarly")
    return ended(number, value)


def test_trials_that_are_asked_for_at_the_same_time_are_not_the_same() -> None:
    view, search = a_view(), search_of()
    for _ in range(8):
        view = apply(view, ask(view, search))
    assert len({str(it.params) for it in view.trials.values()}) == 8


def test_another_seed_gives_other_parameters() -> None:
    assert ask(a_view(), search_of()).params != ask(a_view(), search_of(seed=8)).params


def test_it_keeps_nothing_of_another_search() -> None:
    sampler, view = CmaSampler(), searched(search_of(), 20)
    for search in (search_of(), search_of(seed=8), search_of(SPACE[:3])):
        assert ask(view, search, sampler) == ask(view, search)
    assert ask(a_view(), search_of(), sampler) == ask(a_view(), search_of())


def test_it_learns_in_the_order_of_the_ends_not_of_the_numbers() -> None:
    search, view = search_of(CUBE), a_view()
    for _ in range(12):
        view = apply(view, ask(view, search))
    values = {number: bowl(trial.params) for number, trial in view.trials.items()}
    low = fold((ended(it, values[it]) for it in range(10)), view)
    high = fold((ended(it, values[it]) for it in reversed(range(2, 12))), view)
    assert ask(low, search).params != ask(high, search).params
    # Eight make a block: two more change nothing yet.
    fewer = fold((ended(it, values[it]) for it in range(8)), view)
    assert ask(fewer, search) == ask(low, search)


def test_a_pickle_in_the_log_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    search, view = search_of(), searched(search_of(), 20)
    bad = {"cma:optimizer:0": pickle.dumps(print).hex(), "cma:generation": 2}
    poisoned = replace(view, study=bad)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("a pickle was read"))
    assert ask(poisoned, search).params == ask(view, search).params
    assert ask(poisoned, search).study == {}


# ------------------------------------------------------------------------------ what it draws from


@pytest.mark.parametrize("at_once", [1, 6])
def test_parameters_lie_in_the_space_on_its_steps_and_keep_their_types(at_once: int) -> None:
    view = searched(search_of(), 120, at_once=at_once)
    for trial in view.trials.values():
        params: Any = trial.params
        assert type(params["x"]) is float
        assert -5 <= params["x"] <= 5
        assert 1e-5 <= params["lr"] <= 0.1
        assert type(params["layers"]) is int
        assert params["layers"] in (2, 4, 6, 8, 10, 12)
        assert type(params["width"]) is int
        assert 1 <= params["width"] <= 512
        assert params["dropout"] in (0.0, 0.1, 0.2, 0.3)
        assert ("extra" in params) == (params["kind"] == "one")
    assert {str(it.params["kind"]) for it in view.trials.values()} == {"1", "True", "one", "1.5"}


def test_what_it_cannot_search_is_drawn_by_chance_as_by_random() -> None:
    view, search = searched(search_of(), 20), search_of()
    record, random_ = ask(view, search), by_chance(view, search)
    assert record.params["kind"] is random_.params["kind"]
    space = (*CUBE[:2], Parameter("one", IntRange(3, 3)))
    assert ask(a_view(), search_of(space)).params["one"] == 3


def test_the_best_may_lie_at_the_very_edge() -> None:
    space = (Parameter("a", IntRange(1, 9)), Parameter("b", FloatRange(0.0, 1.0)))
    view = searched(search_of(space), 80, lambda it: -it["a"] - it["b"])
    assert best(view) < -9.99
    assert {it.params["a"] for it in view.trials.values()} <= {*range(1, 10)}


def test_what_its_user_wants_to_try_first_is_tried_first_and_learned_from() -> None:
    search = search_of(CUBE, first=({"a": 3.0, "b": -6.0, "c": 0.5, "d": 7.0},) * 8)
    view = searched(search, 8, bowl)
    assert view.trials[0].params == {"a": 3.0, "b": -6.0, "c": 0.5, "d": 7.0}
    near = search_of(CUBE, first=({"a": 3.0},) * 8)
    assert ask(view, search).params != ask(searched(near, 8, bowl), near).params
