"""The status of a sweep, for 3 trials and for 1,000."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.support.levels import some
from tests.support.sweeps import (
    SPEC,
    a_config,
    a_run,
    a_search,
    a_view,
    asked,
    begun,
    decided,
    reported,
    told,
)
from trainrun._common.text import cut
from trainrun.sweep.records import Ask, End
from trainrun.sweep.view import fold
from trainrun_operator.api.sweep.status import (
    MAX_MESSAGE,
    BestTrial,
    SweepPhase,
    TrainSweepStatus,
    json_object,
)
from trainrun_operator.core.sweep.boundary import ClerkUnknown, SweepObservation
from trainrun_operator.core.sweep.display import (
    is_settled,
    notable,
    status_of_log,
    sweep_status,
    with_conditions,
)
from trainrun_operator.core.sweep.planner import decide_sweep

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PHASES: tuple[SweepPhase, ...] = ("Succeeded", "Failed", "Suspended", "Running")


def test_it_tells_what_runs_what_ended_and_what_is_ahead() -> None:
    log = a_view(
        *map(asked, range(3)),
        reported(2, s1=0.25),
        told(0, message="", value="0.5", step=7, restarts=2),
        told(1, "Errored", reason="Hung", message="no step for 5 min"),
    )
    observation, config = SweepObservation(log=log, runs=(a_run(2),)), a_config()

    status = sweep_status(observation, config, decided(log, a_run(2)), before=TrainSweepStatus())

    assert (status.phase, status.trials.text, status.asked, status.position) == (
        "Running",
        "2/4",
        3,
        7,
    )
    assert (status.trials.open, status.trials.succeeded, status.trials.errored) == (1, 1, 1)
    assert status.best is not None
    assert (status.best.trial, status.best.value, status.best.step) == (2, "0.25", 1)
    assert status.best.params == {"lr": 0.1 * 3}
    assert status.running == (2,)
    assert [(it.trial, it.state, it.value, it.restarts) for it in status.last_ended] == [
        (0, "Succeeded", "0.5", 2),
        (1, "Errored", "", 0),
    ]
    assert status.active_seconds == 1


def test_the_best_value_is_told_exactly_and_in_six_digits() -> None:
    exact = 0.8493827160493827
    log = a_view(asked(0), told(0, value=str(exact), step=3))
    best = status_of_log(log, a_search().objective, trials=None).best
    assert best is not None
    assert (best.value, best.text) == (str(exact), "0.849383")


def test_a_goal_that_is_refused_chooses_no_best_trial() -> None:
    """The file was changed from minimize to maximize: the worst trial was told as the best one."""
    spec = json.loads(SPEC) | {"objective": {"metric": "loss", "goal": "minimize", "value": "last"}}
    first = replace(begun(), spec=json.dumps(spec))
    ends = (told(0, value="1.0"), told(1, value="9.0"))
    log = fold([first, asked(0), asked(1), *ends])
    config = a_config(search=a_search(goal="maximize"))
    observation, plan = SweepObservation(log=log), decided(log, config=config)
    assert plan.verdict.reason == "SpecChanged"

    status = sweep_status(observation, config, plan, before=TrainSweepStatus())

    assert status.best is not None
    assert (status.best.trial, status.best.value) == (0, "1.0")


def test_what_was_said_of_the_trials_stays_while_the_log_is_not_known() -> None:
    before = TrainSweepStatus(phase="Running", asked=7, position=9)
    unknown = SweepObservation(log=ClerkUnknown(message="the store is away"))
    plan = decide_sweep(unknown, a_config(), name="s")

    begun = SweepObservation(log=a_view())
    nothing = sweep_status(begun, a_config(), decided(a_view()), before=TrainSweepStatus())
    assert (nothing.best, nothing.trials.text) == (None, "0/4")
    status = sweep_status(unknown, a_config(), plan, before=before)

    assert (status.phase, status.asked, status.position) == ("Running", 7, 9)
    assert (status.reason, status.message) == ("ClerkNotHeard", "the store is away")


def test_a_larger_budget_is_not_said_to_be_acted_on_while_the_log_is_not_known() -> None:
    """Of a sweep that is over and acted on nobody is the leader: the next operator would leave it
    alone, and the budget would have been raised in vain."""
    before = TrainSweepStatus(phase="Succeeded", position=9, observed_generation=1)
    unknown = SweepObservation(log=ClerkUnknown(message="no clerk yet"))
    plan = decide_sweep(unknown, a_config(), name="s")

    status = sweep_status(unknown, a_config(), plan, before=before, generation=2)
    assert (status.phase, status.observed_generation) == ("Succeeded", 1)
    raw = {"metadata": {"generation": 2}, "status": json_object(status)}
    assert not is_settled(raw)

    known = SweepObservation(log=a_view())
    fresh = TrainSweepStatus()
    status = sweep_status(known, a_config(), decided(a_view()), before=fresh, generation=2)
    assert (status.phase, status.observed_generation) == ("Running", 2)


def test_only_a_sweep_that_is_over_by_its_newest_spec_needs_no_leader() -> None:
    def settled(phase: SweepPhase, *, generation: int) -> bool:
        status = json_object(TrainSweepStatus(phase=phase, observed_generation=3))
        return is_settled({"metadata": {"generation": generation}, "status": status})

    assert settled("Succeeded", generation=3)
    assert settled("Failed", generation=3)
    assert not settled("Running", generation=3)
    assert not settled("Failed", generation=4)
    assert not is_settled({"metadata": {"generation": 1}})


def test_what_moves_all_the_time_is_not_notable() -> None:
    best = BestTrial(trial=3, value="0.5", step=7)
    before = TrainSweepStatus(phase="Running", active_seconds=5, position=8, best=best)

    assert not notable(replace(before, active_seconds=9, position=12), before)
    assert not notable(replace(before, best=replace(best, step=8)), before)
    assert notable(replace(before, best=replace(best, value="0.4")), before)
    assert notable(replace(before, running=(3,)), before)


def test_the_log_alone_says_as_what_a_sweep_has_ended() -> None:
    objective = a_search().objective
    open_ = status_of_log(a_view(asked(0), told(0), asked(1)), objective, trials=None)
    assert (open_.phase, open_.reason, open_.trials.text) == ("Running", "Unfinished", "1")
    over = a_view(asked(0), told(0), End("Succeeded", "AllTrialsEnded", "all of them"))
    status = status_of_log(over, objective, trials=3)
    assert (status.phase, status.reason, status.message, status.trials.text) == (
        *("Succeeded", "AllTrialsEnded", "all of them"),
        "1/3",
    )


@pytest.mark.slow
@pytest.mark.parametrize("letter", some(["a", "é", "世", '"', "\n", "\x00", "\ud800"], quick=2))
def test_a_status_is_small_whatever_the_number_of_trials(letter: str) -> None:
    """(g) of the acceptance: under 16 KiB at 1,000 trials."""
    long, many = {f"p{it}": "x" * 1000 for it in range(64)}, letter * 9000
    log = a_view(
        *(Ask(it, long) for it in range(1000)),
        *(told(it, "Errored", message=many) for it in range(490, 500)),
        told(489),
        End("Failed", "TooManyFailedTrials", many),
    )
    runs = tuple(a_run(it) for it in range(501, 1000))
    config = a_config(search=a_search(), max_failed_trials=3)
    observation = SweepObservation(log=log, runs=runs)
    plan = decided(log, *runs, config=config)
    status = sweep_status(observation, config, plan, before=TrainSweepStatus())

    assert status.best is not None
    assert (status.best.trial, status.best.params, len(status.running)) == (489, {}, 32)
    unknown = ClerkUnknown(reason="StorageUnavailable", message=many)
    before = status
    for phase in PHASES:
        said = replace(status, phase=phase, message=cut(many, MAX_MESSAGE))
        found = with_conditions(said, before=before, clerk=unknown, now=NOW)
        before = replace(said, conditions=found)
    assert len(before.conditions) == 6
    text = json.dumps(json_object(before), ensure_ascii=False)
    assert len(text.encode(errors="replace")) < 16 << 10
    assert all(it.message.startswith(letter * 50) for it in status.last_ended)
