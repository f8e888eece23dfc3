"""Which trials are ended early, also compared with Optuna's pruners."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import optuna
import pytest

from tests.support.sweeps import a_search, a_view, asked, begun, report, reported, told
from trainrun.sweep import clerk
from trainrun.sweep.records import Reports, Targets, Tell
from trainrun.sweep.search import (
    Asha,
    EarlyStopping,
    Goal,
    Hyperband,
    Objective,
    Percentile,
    Threshold,
)
from trainrun.sweep.stopping import Judging, bracket_of, why_ended_early
from trainrun.sweep.view import SweepView, apply, fold

LOSS = Objective("loss")
ASHA = Asha(min_resource=1, reduction_factor=2)


def why(view: SweepView, trial: int, rule: EarlyStopping, objective: Objective = LOSS) -> str:
    return why_ended_early(view.trials, view.trials[trial], rule, objective)


def three(*reports: Any) -> SweepView:
    return a_view(asked(0), asked(1), asked(2), *reports)


def test_at_a_rung_only_the_best_part_of_those_that_got_so_far_goes_on() -> None:
    view = three(reported(0, s1=0.5), reported(1, s1=0.4), reported(2, s1=0.9))
    assert why(view, 2, ASHA) == (
        "at step 1 its loss 0.9 was not among the best 1 of the 3 that had reached rung 0"
    )
    assert why(view, 1, ASHA) == ""


def test_who_was_good_enough_when_he_got_there_is_not_judged_again_for_those_who_come_later() -> (
    None
):
    view = three(reported(0, s1=0.5), reported(1, s1=0.4), reported(2, s1=0.3))
    assert [why(view, trial, ASHA) for trial in range(3)] == ["", "", ""]


def test_who_was_good_enough_stays_so_when_a_worse_trial_is_restarted_from_nothing() -> None:
    """A clerk that began anew ended a trial that had passed its rung before."""
    bad = [reported(it, s1=0.9) for it in (1, 2)]
    passed = a_view(*map(asked, range(4)), *bad, reported(0, s1=0.1), reported(3, s1=0.2))
    assert why(passed, 3, ASHA) == "", "the second best of four"

    errors = [told(it, "Errored") for it in (1, 2)]
    restarted = fold([*errors, begun(token=1, restart_errored=True)], passed)
    assert restarted.trials[1].values == {}
    assert why(restarted, 3, ASHA) == ""


def test_a_step_that_lies_beyond_a_rung_counts_there() -> None:
    view = three(reported(0, s3=0.5), reported(1, s2=0.9))
    assert why(view, 1, ASHA).endswith("of the 2 that had reached rung 0")


def test_a_repeated_step_changes_no_verdict() -> None:
    again = Reports((report(0, 1, 9.0, attempt=2),))
    view = three(reported(0, s1=0.5), again, reported(1, s1=0.4))
    assert why(view, 0, ASHA) == ""


def test_of_hyperband_each_trial_is_compared_in_its_own_bracket() -> None:
    rule = Hyperband(max_resource=9)
    brackets = [bracket_of(number, rule) for number in range(30)]
    assert {*brackets} == {0, 1, 2}
    assert brackets.count(0) > brackets.count(1) >= brackets.count(2)
    strict, lenient = brackets.index(0), brackets.index(2)
    trials = [asked(number) for number in range(30)]
    best = next(n for n in range(strict + 1, 30) if brackets[n] == 0)
    bad = (reported(best, s1=0.1), reported(strict, s1=0.9), reported(lenient, s1=0.9))
    view = a_view(*trials, *bad)
    assert "rung 0" in why(view, strict, rule)
    assert why(view, lenient, rule) == ""


def test_worse_than_the_median_of_those_that_have_succeeded_is_ended() -> None:
    rule = Percentile(startup_trials=2)
    view = three(reported(0, s1=0.5), reported(1, s1=0.3))
    view = apply(apply(view, told(0)), told(1))
    view = apply(view, reported(2, s1=0.41))
    assert why(view, 2, rule) == (
        "until step 1 its best loss was 0.41; percentile 50 of the 2 that have succeeded is 0.4 "
        "there"
    )
    assert why(view, 2, replace(rule, startup_trials=3)) == ""
    assert why(view, 2, replace(rule, warmup_steps=2)) == ""
    assert why(view, 2, replace(rule, min_trials=3)) == ""


def test_who_succeeds_later_does_not_count() -> None:
    view = three(reported(0, s1=0.1), reported(2, s1=0.9))
    assert why(apply(view, told(0)), 2, Percentile(startup_trials=1)) == ""


def test_beyond_a_bound_or_no_number_is_ended() -> None:
    view = three(reported(0, s1=0.5), reported(1, s1=9.0), reported(2, s1=math.nan))
    rule = Threshold(lower=1.0, upper=5.0)
    assert why(view, 0, rule) == "at step 1 its loss 0.5 was below 1"
    assert why(view, 1, rule) == "at step 1 its loss 9 was above 5"
    assert why(view, 2, rule) == "at step 1 its loss was not a number"
    assert why(view, 1, replace(rule, warmup_steps=2)) == ""


def test_the_clerk_tells_the_end_with_the_value_that_it_had() -> None:
    view = three(reported(0, s1=0.5), reported(1, s1=0.9))
    search = a_search(early_stopping=ASHA)
    record = clerk.next_record(view, Targets(session=view.sessions[0]), search)
    assert isinstance(record, Tell)
    assert (record.trial, record.state, record.reason) == (1, "Stopped", "StoppedEarly")
    assert (record.value, record.step) == ("0.9", 1)
    assert "not among the best" in record.message


def test_a_report_is_judged_once_however_long_the_log_is() -> None:
    class Counted(Objective):
        compared = 0

        def better(self, one: float, other: float) -> bool:
            Counted.compared += 1
            return super().better(one, other)

    loss, judging = Counted("loss"), Judging()
    view = a_view(*(it for n in range(50) for it in (asked(n), reported(n, s1=0.5, s2=0.5))))
    for newest, expected in ((reported(0, s3=0.5), 100), (reported(0, s4=0.5), 1)):
        view = apply(view, newest)
        Counted.compared = 0
        for _ in range(10):
            said = judging.why_ended_early(view.trials, view.trials[0], ASHA, loss)
            assert said == ""
        assert 0 < Counted.compared <= expected


# ---------------------------------------------------------------------- beside Optuna

TRIALS, STEPS = 25, 16


def pruners() -> dict[str, tuple[EarlyStopping, Any]]:
    found = optuna.pruners
    return {
        "asha": (
            Asha(2, 3),
            found.SuccessiveHalvingPruner(min_resource=2, reduction_factor=3),
        ),
        "median": (Percentile(startup_trials=3), found.MedianPruner(n_startup_trials=3)),
        "percentile": (
            Percentile(25.0, startup_trials=2, warmup_steps=2, interval_steps=3, min_trials=2),
            found.PercentilePruner(
                25.0, n_startup_trials=2, n_warmup_steps=2, interval_steps=3, n_min_trials=2
            ),
        ),
        "threshold": (
            Threshold(lower=0.2, upper=2.5, warmup_steps=1, interval_steps=2),
            found.ThresholdPruner(lower=0.2, upper=2.5, n_warmup_steps=1, interval_steps=2),
        ),
    }


def curves(seed: int) -> Mapping[int, list[float]]:
    dice = random.Random(seed)
    return {
        trial: [
            math.nan if dice.random() < 0.02 else dice.uniform(0.5, 2.0) * level / step**0.3
            for step in range(1, STEPS + 1)
        ]
        for trial, level in ((n, dice.uniform(0.3, 2.0)) for n in range(TRIALS))
    }


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("name", ["asha", "median", "percentile", "threshold"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_the_same_trials_end_at_the_same_steps_as_with_optuna(
    name: str, goal: Goal, seed: int
) -> None:
    rule, pruner = pruners()[name]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=goal, pruner=pruner)
    objective = Objective("loss", goal=goal)
    view, given, dice = a_view(), curves(seed), random.Random(seed)
    running: dict[int, Any] = {}
    judging = Judging()
    waiting, ended = list(range(TRIALS)), 0
    at = dict.fromkeys(range(TRIALS), 0)
    while waiting or running:
        while waiting and len(running) < 4:
            number = waiting.pop(0)
            running[number] = study.ask()
            view = apply(view, asked(number))
        number = dice.choice(sorted(running))
        at[number] += 1
        step, value = at[number], given[number][at[number] - 1]
        running[number].report(value, step)
        view = apply(view, Reports((report(number, step, value),)))
        stopped = running[number].should_prune()
        verdict = why(view, number, rule, objective)
        assert bool(verdict) == stopped, (number, step)
        # Who has judged all reports so far says the same as who has just begun.
        trials = view.trials
        assert judging.why_ended_early(trials, trials[number], rule, objective) == verdict
        if stopped:
            study.tell(running.pop(number), state=optuna.trial.TrialState.PRUNED)
            view, ended = apply(view, told(number, "Stopped")), ended + 1
        elif step == STEPS:
            last = 1.0 if math.isnan(value) else value
            study.tell(running.pop(number), last)
            view = apply(view, told(number))
    assert 0 < ended < TRIALS
