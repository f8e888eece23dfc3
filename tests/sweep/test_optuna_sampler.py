"""Parameters chosen by Optuna, asked anew from the log each time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import optuna
import pytest

from tests.support.sweeps import a_search, a_view, begun, report, told
from trainrun._samplers.optuna_study import OptunaSampler, sampler_of
from trainrun.sweep import clerk
from trainrun.sweep.records import Ask, Reports, Targets, Tell, written
from trainrun.sweep.search import FloatRange, IntRange, OneOf, Parameter, SamplerName, Search
from trainrun.sweep.view import SweepView, apply

SPACE = (
    Parameter("x", FloatRange(-5.0, 5.0)),
    Parameter("lr", FloatRange(1e-5, 0.1, log=True)),
    Parameter("layers", IntRange(2, 12, step=2)),
    Parameter("kind", OneOf((1, True, "one", 1.5))),
    Parameter("extra", FloatRange(0.0, 1.0, step=0.25), when=(("kind", ("one",)),)),
)


def search_of(name: SamplerName, **changes: Any) -> Search:
    return replace(a_search(), space=SPACE, sampler=name, seed=7, **changes)


def loss(params: Any) -> float:
    return float((params["x"] - 1) ** 2 + abs(math.log10(params["lr"]) + 3) + params["layers"])


def ask(view: SweepView, search: Search, sampler: OptunaSampler | None = None) -> Ask:
    """By one that knows nothing, where none is given."""
    targets = Targets(session=view.sessions[0], asked=view.asked + 1)
    record = clerk.next_record(view, targets, search, suggest=sampler or OptunaSampler())
    assert isinstance(record, Ask)
    return record


def tell(view: SweepView, trial: int) -> SweepView:
    value = loss(view.trials[trial].params)
    return apply(view, told(trial, value=written(value), step=1))


def searched(search: Search, trials: int, *, at_once: int = 3) -> SweepView:
    view, sampler = a_view(), OptunaSampler()
    for number in range(trials):
        record = ask(view, search, sampler)
        assert record.fallback == ""
        view = apply(view, record)
        if number >= at_once:
            view = tell(view, number - at_once)
    return view


@pytest.mark.slow
def test_tpe_searches_near_the_good_trials() -> None:
    def best(name: SamplerName) -> float:
        view = searched(search_of(name), 50)
        return min(it.value for it in view.trials.values() if it.value is not None)

    chance = min(
        loss(clerk.by_chance(a_view(), replace(search_of("Random"), seed=s)).params)
        for s in range(50)
    )
    assert best("TPE") < chance


@pytest.mark.parametrize("name", ["TPE", "QMC"])
@pytest.mark.slow
def test_parameters_lie_in_the_space_and_keep_their_types(name: SamplerName) -> None:
    for trial in searched(search_of(name), 25).trials.values():
        assert -5 <= trial.params["x"] <= 5  # type: ignore[operator]
        assert trial.params["layers"] in (2, 4, 6, 8, 10, 12)
        assert type(trial.params["layers"]) is int
        assert any(trial.params["kind"] is it for it in (1, True, "one")) or (
            trial.params["kind"] == 1.5
        )
        assert ("extra" in trial.params) == (trial.params["kind"] == "one")


@pytest.mark.parametrize("name", ["TPE", "QMC"])
def test_whoever_asks_again_is_answered_the_same(name: SamplerName) -> None:
    search = search_of(name)
    view = searched(search, 14)
    assert ask(view, search) == ask(view, search)
    other = replace(search, seed=8)
    assert ask(view, search).params != ask(view, other).params


@pytest.mark.parametrize("name", ["TPE", "QMC"])
@pytest.mark.slow
def test_one_that_remembers_trials_answers_as_one_that_has_just_begun(name: SamplerName) -> None:
    search, view, kept = search_of(name), a_view(), OptunaSampler()
    for number in range(20):
        record = ask(view, search, kept)
        assert record == ask(view, search), f"trial {number}"
        view = apply(view, record)
        view = apply(view, Reports((report(number, 1, 0.5 + number),)))
        if number % 3 == 2:  # two are open, one has ended in one of the ways that there are
            ends = (told(number - 1, value=written(0.1)), told(number - 1, state="Errored"))
            view = apply(view, ends[number % 2])


def test_trials_that_are_asked_for_at_the_same_time_are_not_the_same() -> None:
    for name in ("TPE", "QMC"):
        view = searched(search_of(name), 4, at_once=9)
        assert len({str(it.params) for it in view.trials.values()}) == 4


@pytest.mark.parametrize("name", ["TPE", "QMC"])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.slow
def test_a_study_that_is_made_anew_for_every_question_answers_as_one_that_was_never_lost(
    name: SamplerName,
) -> None:
    search = replace(search_of(name), space=SPACE[:3])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize")
    view, running = a_view(), dict[int, optuna.Trial]()
    for number in range(30):
        study.sampler = sampler_of(search, number)
        trial = running[number] = study.ask()
        asked = (
            trial.suggest_float("x", -5.0, 5.0),
            trial.suggest_float("lr", 1e-5, 0.1, log=True),
            trial.suggest_int("layers", 2, 12, step=2),
        )
        view = apply(view, ask(view, search))
        assert tuple(view.trials[number].params.values()) == asked, number
        if number >= 3:
            first = number - 3
            value = loss(view.trials[first].params)
            view = apply(view, Reports((report(first, 1, value),)))
            running[first].report(value, 1)
            if first % 5 == 4:
                study.tell(running.pop(first), state=optuna.trial.TrialState.PRUNED)
                view = apply(view, told(first, "Stopped", value=written(value)))
            elif first % 7 == 6:
                study.tell(running.pop(first), state=optuna.trial.TrialState.FAIL)
                view = apply(view, Tell(first, 1, "Errored", reason="AppError"))
            else:
                study.tell(running.pop(first), value)
                view = tell(view, first)


def test_what_its_user_wants_to_try_first_is_tried_first() -> None:
    search = search_of("TPE", first=({"x": 3.0},))
    assert ask(a_view(), search).params["x"] == 3.0


def test_a_sampler_that_fails_three_times_costs_one_trial_its_choice() -> None:
    calls = []

    def fails(view: SweepView, _search: Search) -> Any:
        calls.append(view.asked)
        raise ValueError("singular matrix")

    targets = Targets(session=begun(), asked=1)
    record = clerk.next_record(a_view(), targets, search_of("TPE"), suggest=fails)
    assert isinstance(record, Ask)
    assert record.fallback == "the sampler has failed: ValueError: singular matrix"
    assert set(record.params) >= {"x", "lr", "layers", "kind"}
    assert calls == [0, 0, 0]
    assert apply(a_view(), record).trials[0].fallback == record.fallback
