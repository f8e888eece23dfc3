"""How far CMA-ES comes, and which trials it learns from."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import pytest
from cmaes import CMA

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
from trainrun._samplers import cma_sampler
from trainrun._samplers.cma_sampler import CmaSampler
from trainrun.sweep.records import Ask, SweepSession, Tell
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.search import FloatRange, IntRange, Parameter, Search
from trainrun.sweep.view import apply, fold

if TYPE_CHECKING:
    from collections.abc import Callable


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
    assert view.trials[0].ended_at == 0
    assert ask(view, search) == before
    view = apply(view, ended(0, 0.0, opening=2))
    assert view.trials[0].ended_at == view.position
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
