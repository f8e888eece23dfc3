"""Parameters chosen by CMA-ES, folded from the log each time."""

from __future__ import annotations

import heapq
import math
import pickle
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import pytest
from cmaes import CMA

from tests.support.sweeps import a_search, a_view, told
from trainrun import cma_sampler
from trainrun.cma_sampler import CmaSampler
from trainrun.sweep import clerk
from trainrun.sweep.fold import apply, fold
from trainrun.sweep.records import Ask, Record, SweepSession, Tell, from_json, to_json, written
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.search import Search
from trainrun.sweep.space import FloatRange, IntRange, OneOf, Parameter
from trainrun.sweep.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainrun.sweep.view import SweepView

SPACE = (
    Parameter("x", FloatRange(-5.0, 5.0)),
    Parameter("lr", FloatRange(1e-5, 0.1, log=True)),
    Parameter("layers", IntRange(2, 12, step=2)),
    Parameter("width", IntRange(1, 512, log=True)),
    Parameter("dropout", FloatRange(0.0, 0.3, step=0.1)),
    Parameter("kind", OneOf((1, True, "one", 1.5))),
    Parameter("extra", FloatRange(0.0, 1.0), when=(("kind", ("one",)),)),
)
CUBE = tuple(Parameter(name, FloatRange(-10.0, 10.0)) for name in "abcd")


def search_of(space: tuple[Parameter, ...] = SPACE, **changes: Any) -> Search:
    return replace(a_search(), **{"space": space, "sampler": "CmaEs", "seed": 7, **changes})


def loss(params: Mapping[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + abs(math.log10(params["lr"]) + 3) + params["layers"])


def bowl(params: Mapping[str, Any]) -> float:
    wanted = {"a": 3.0, "b": -6.0, "c": 0.5, "d": 7.0}
    return float(sum((params[name] - wanted[name]) ** 2 for name in wanted))


def ask(view: SweepView, search: Search, sampler: CmaSampler | None = None) -> Ask:
    """By one that knows nothing, where none is given."""
    targets = Targets(session=view.sessions[-1], asked=view.asked + 1)
    record = clerk.next_record(view, targets, search, suggest=sampler or CmaSampler())
    assert isinstance(record, Ask)
    assert record.fallback == ""
    return record


def ended(number: int, value: float, **changes: Any) -> Tell:
    return told(number, value=written(value), step=1, **changes)


def searched(
    search: Search,
    trials: int,
    of: Callable[[Mapping[str, Any]], float] = loss,
    *,
    at_once: int = 1,
) -> SweepView:
    """With so many at work at the same time, each for a time of its own."""
    view, sampler, dice = a_view(), CmaSampler(), random.Random(3)
    working: list[tuple[float, int]] = []
    now = 0.0
    for number in range(trials):
        if len(working) == at_once:
            now, first = heapq.heappop(working)
            view = apply(view, ended(first, of(view.trials[first].params)))
        view = apply(view, ask(view, search, sampler))
        heapq.heappush(working, (now + dice.uniform(1, 3), number))
    for _, number in sorted(working):
        view = apply(view, ended(number, of(view.trials[number].params)))
    return view


def best(view: SweepView) -> float:
    return min(it.value for it in view.trials.values() if it.value is not None)


# ----------------------------------------------------------------------------- what it is good for


def test_it_comes_far_closer_to_the_bottom_of_a_bowl_than_chance() -> None:
    found = best(searched(search_of(CUBE), 200, bowl))
    space = replace(search_of(CUBE), sampler="Random")
    view = a_view()
    for _ in range(200):
        params = dict(by_chance(view, space).params)
        view = fold((Ask(view.asked, params), ended(view.asked, bowl(params))), view)
    assert found < best(view) / 100


def test_many_at_the_same_time_cost_it_little() -> None:
    assert best(searched(search_of(CUBE), 200, bowl, at_once=8)) < 0.3


def test_it_looks_for_the_greatest_where_that_is_the_goal() -> None:
    search = search_of(CUBE)
    upward = replace(search, objective=replace(search.objective, goal="maximize"))
    view = searched(upward, 150, lambda params: -bowl(params))
    down = searched(search, 150, bowl)
    assert [it.params for it in view.trials.values()] == [it.params for it in down.trials.values()]


def test_one_number_is_enough() -> None:
    space = (Parameter("a", FloatRange(0.0, 1.0)),)
    assert best(searched(search_of(space), 60, lambda it: (it["a"] - 0.8) ** 2)) < 1e-4


def test_once_it_has_become_one_point_it_begins_anew_elsewhere() -> None:
    space = (Parameter("a", IntRange(1, 40)), Parameter("b", IntRange(1, 40)))
    view = searched(search_of(space), 400, lambda it: abs(it["a"] - 30) + abs(it["b"] - 10))
    points = [str(it.params) for it in view.trials.values()]
    assert best(view) == 0
    assert len({*points[200:]}) > 30


def test_it_learns_what_optunas_own_sampler_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    ours: list[CMA] = []

    def noted(**options: Any) -> CMA:
        ours.append(CMA(**options))
        return ours[-1]

    monkeypatch.setattr(cma_sampler, "CMA", noted)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    theirs = optuna.samplers.CmaEsSampler(seed=1)
    study = optuna.create_study(sampler=theirs)
    # It sorts parameters by their names.
    view, search = a_view(), search_of(tuple(sorted(SPACE[:5], key=lambda it: it.name)))
    for number in range(1 + 8 * 6):
        trial = study.ask()
        params = {
            "x": trial.suggest_float("x", -5.0, 5.0),
            "lr": trial.suggest_float("lr", 1e-5, 0.1, log=True),
            "layers": trial.suggest_int("layers", 2, 12, step=2),
            "width": trial.suggest_int("width", 1, 512, log=True),
            "dropout": trial.suggest_float("dropout", 0.0, 0.3, step=0.1),
        }
        study.tell(trial, loss(params))
        if number > 0:  # it draws the first one by chance, and learns nothing from it
            view = fold((Ask(view.asked, params), ended(view.asked, loss(params))), view)
    study.ask().suggest_float("x", -5.0, 5.0)  # takes in the last ones
    ask(view, search)
    peer = theirs._restore_optimizer(study.get_trials(deepcopy=False))
    peer = peer or pytest.fail("it has no distribution")
    assert ours[0].generation == peer.generation == 6
    for name in ("mean", "_sigma", "_C"):
        np.testing.assert_allclose(getattr(ours[0], name), getattr(peer, name), rtol=1e-6)


# ----------------------------------------------------------------------- nothing that can be lost


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
        again = fold(from_json(to_json(it)) for it in log)
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


# ------------------------------------------------------------------------------ whom it learns from


def after(search: Search, *ends: Callable[[int, float], Tell]) -> dict[str, Any]:
    """What it asks for once trials have ended in these ways."""
    view = a_view()
    for end in ends:
        view = apply(view, ask(view, search))
        view = apply(view, end(view.asked - 1, bowl(view.trials[view.asked - 1].params)))
    for _ in range(20 - len(ends)):  # so that all answers are to the same number
        view = apply(view, Ask(view.asked, {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}))
    return ask(view, search).params


def test_trials_without_a_value_teach_it_nothing() -> None:
    search = search_of(CUBE)
    nothing = after(search)
    for state in ("Errored", "Diverged", "Skipped"):
        assert after(search, *[lambda it, _, s=state: told(it, s)] * 12) == nothing
    nan = [lambda it, _: ended(it, math.nan, state="Diverged")] * 12
    assert after(search, *nan) == nothing
    user = [lambda it, value: ended(it, value, state="Stopped", reason="StoppedByUser")] * 12
    assert after(search, *user) == nothing
    assert after(search, *[ended] * 12) != nothing


def test_those_that_failed_cost_it_their_own_time_only() -> None:
    view, search, sampler = a_view(), search_of(CUBE), CmaSampler()
    for number in range(260):
        view = apply(view, ask(view, search, sampler))
        end = ended(number, bowl(view.trials[number].params))
        view = apply(view, told(number, "Errored") if number % 4 == 1 else end)
    assert best(view) < 1


def test_one_that_was_ended_early_counts_behind_all_that_came_to_their_end() -> None:
    search = search_of(CUBE)

    def early(value: float) -> Callable[[int, float], Tell]:
        return lambda it, _: ended(it, value, state="Stopped", reason="StoppedEarly")

    great = after(search, early(1e9), *[ended] * 7)
    assert after(search, early(-1e9), *[ended] * 7) == great
    assert after(search, lambda it, _: ended(it, -1e9), *[ended] * 7) != great


def test_a_value_without_bounds_is_the_worst() -> None:
    search = search_of(CUBE)
    endless = after(search, lambda it, _: ended(it, math.inf), *[ended] * 7)
    assert endless == after(search, lambda it, _: ended(it, 1e30), *[ended] * 7)


def test_a_trial_that_went_on_after_an_error_counts_from_its_end_on() -> None:
    search, view = search_of(CUBE), a_view()
    for number in range(9):
        view = apply(view, ask(view, search))
        failed = number == 0
        end = told(number, "Errored") if failed else ended(number, float(number))
        view = apply(view, end)
    before = ask(view, search)
    again = SweepSession(uid="me", token=1, resume_errored=True)
    view = apply(view, again)
    assert view.trials[0].told_at == 0
    assert ask(view, search) == before
    view = apply(view, ended(0, 0.0, opening=2))
    assert view.trials[0].told_at == view.position
    # The ninth value waits for its block.
    assert ask(view, search) == before


def test_one_that_ends_long_after_the_others_does_not_blow_it_up() -> None:
    view, search, sampler = a_view(), search_of(CUBE), CmaSampler()
    for number in range(400):
        view = apply(view, ask(view, search, sampler))
        if number > 0:
            view = apply(view, ended(number, bowl(view.trials[number].params)))
    view = apply(view, ended(0, -1.0))
    for number in range(400, 480):
        view = apply(view, ask(view, search, sampler))
        view = apply(view, ended(number, bowl(view.trials[number].params)))
    assert len({str(it.params) for it in view.trials.values()}) == 480


def test_one_that_fails_halfway_begins_from_the_log_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, search, sampler = searched(search_of(CUBE), 30, bowl), search_of(CUBE), CmaSampler()
    wanted = ask(view, search)
    calls = []

    def fails_once(self: CMA, solutions: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise np.linalg.LinAlgError("it did not converge")
        tell(self, solutions)

    tell = CMA.tell
    monkeypatch.setattr(CMA, "tell", fails_once)
    assert ask(view, search, sampler) == wanted
