"""What is left by each crash and fault, and what follows: the table of research/sweep.md, A5.

In each life one thing breaks, at a moment that is named; the judge looks at every effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.sweep.calm import (
    calm_life,
    dies_once,
    kill_leader,
    late_session,
    leader,
    params,
    raised_budget,
    resumed_error,
    until_about_to,
)
from tests.simulation.world.sweep.storage import SWEEP
from trainrun.contract import layout
from trainrun.sweep.records import Ask, Reports, SweepSession, Tell

if TYPE_CHECKING:
    from tests.simulation.world.sweep.clerks import SimulatedClerk
    from tests.simulation.world.sweep.life import SweepLife
    from tests.simulation.world.sweep.storage import Moment

UNDISTURBED = calm_life()
UNDISTURBED.end()
FIRST_ASK = f"{SWEEP}/{layout.record_key(layout.SWEEP_LOG, 2)}"
THRESHOLD = {"name": "Threshold", "options": {"upper": 0.5}}
"""Ends every trial at its first step: all of them report more there."""


def records(life: SweepLife, kind: type) -> list[object]:
    """Those of this kind, in order."""
    return [it for it in life.judge.ledger.log if isinstance(it, kind)]


def ends_as_undisturbed(life: SweepLife) -> None:
    view = life.end()
    assert view.end is not None
    assert view.end.record.reason == "AllTrialsEnded"
    assert params(life) == params(UNDISTURBED)
    assert len(records(life, Tell)) == 4
    assert len(view.sessions) == 1


def test_an_operator_dies_before_it_has_asked_for_trials() -> None:
    life = calm_life()
    until_about_to(life, "order")
    kill_leader(life)
    ends_as_undisturbed(life)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_clerk_dies_between_the_samplers_answer_and_its_record_or_after_it(when: str) -> None:
    life = calm_life()
    died = dies_once(life, lambda it: it == (when, "put_if_absent", FIRST_ASK))
    ends_as_undisturbed(life)
    assert len(died) == 1


@pytest.mark.case("sweeps", "The operator is killed during a sweep")
def test_an_operator_dies_when_it_has_created_a_run() -> None:
    life = calm_life()
    life.until(lambda: life.home.cluster.runs)
    kill_leader(life)
    ends_as_undisturbed(life)
    assert not life.home.cluster.runs


def test_an_operator_dies_before_a_run_that_has_ended_is_told() -> None:
    life = calm_life()
    life.until(lambda: life.judge.ended)
    assert not records(life, Tell)
    kill_leader(life)
    ends_as_undisturbed(life)


def test_an_operator_dies_before_it_deletes_a_run_that_was_told() -> None:
    life = calm_life()
    until_about_to(life, "DeleteTrial")
    assert records(life, Tell)
    kill_leader(life)
    ends_as_undisturbed(life)


def test_no_operator_is_there_for_an_hour_after_a_trial_was_to_stop() -> None:
    life = calm_life(earlyStopping=THRESHOLD, budget={"trials": 1})
    life.until(lambda: any(it.working for it in life.home.cluster.runs.values()))
    (clerk,), (run,) = life.home.clerks.living, life.home.cluster.runs.values()
    while not run.ended:
        life.home.cluster.progress(run, crash=False)
        clerk.round()
        life.clock.now += 600
    told = records(life, Tell)
    assert isinstance(told[0], Tell)
    assert (told[0].state, told[0].reason, told[0].step) == ("Stopped", "StoppedEarly", 1)

    view = life.end()
    assert view.trials[0].values == {1: 1.0}, "what it has reported since changes nothing"
    assert not life.home.cluster.runs


@pytest.mark.parametrize(
    "doing", ["look", "write the status", "order", "CreateTrial", "DeleteTrial"]
)
def test_two_operators_act_and_the_first_does_not_know_of_the_second(doing: str) -> None:
    life = calm_life()
    until_about_to(life, doing)
    life.home.cluster.pass_lease()
    for _ in range(60):  # the deposed one stands before its effect, and the other one leads
        life.home.turn_of(life.home.cluster.leader)
        life.home.clerks.bury()
        for clerk in life.home.clerks.living:
            clerk.round()
    ends_as_undisturbed(life)


def test_two_clerks_race_for_every_record() -> None:
    life = calm_life()
    life.until(lambda: life.home.clerks.living)
    life.home.clerks.living[0].deleted = True  # its node cannot be reached
    writing: set[int] = set()

    def watches(clerk: SimulatedClerk, moment: Moment) -> bool:
        if moment[1] == "put_if_absent" and len(life.home.clerks.living) == 2:
            writing.add(id(clerk))
        return False

    life.dies_at, life.slow = watches, 0.3
    life.until(lambda: life.judge.ledger.ends.now is not None)
    assert len(writing) >= 2  # the one that was deleted may be replaced meanwhile
    ends_as_undisturbed(life)


def test_an_older_session_meets_the_newer_one_and_writes_nothing_more() -> None:
    life = calm_life()
    life.until(lambda: records(life, Ask))
    (old,) = life.home.clerks.living
    life.home.cluster.apply_again(life.home.cluster.sweep.spec)
    life.until(lambda: len(records(life, SweepSession)) == 2)
    before = len(life.judge.ledger.log)
    old.dead = False
    old.round()
    assert len(life.judge.ledger.log) == before
    view = life.end()
    assert [it.uid for it in view.sessions] == ["uid-0.0", "uid-0.1"]


def test_a_session_that_was_ordered_before_another_cluster_led_is_not_recorded() -> None:
    assert [it.uid for it in late_session().sessions] == ["uid-1.0"]


def test_a_budget_that_was_raised_is_not_forgotten_where_the_operator_dies_at_once() -> None:
    assert raised_budget().asked == 6


def test_an_errored_trial_that_is_resumed_is_not_told_by_the_run_that_failed_before() -> None:
    trial = resumed_error().trials[0]
    assert (trial.state, trial.opening, trial.incarnation) == ("Succeeded", 2, 1)


@pytest.mark.case("sweeps", "The operator is killed once the sweep has ended and trials still work")
def test_an_operator_dies_once_the_end_is_recorded_and_trials_still_work() -> None:
    """Edge case 20: trials run on after the experiment failed."""
    life = calm_life(seed=69, budget={"trials": 8, "activeTime": "30s"})
    life.until(lambda: life.judge.ledger.ends.now)
    until_about_to(life, "SuspendTrial")
    kill_leader(life)
    view = life.end()
    assert view.end is not None
    assert view.end.record.reason == "BudgetExhausted"
    assert view.count("Open") > 0


def test_everything_dies_once_reports_are_in_the_log() -> None:
    life = calm_life()
    life.until(lambda: len(records(life, Reports)) >= 2)
    for number in (0, 1):
        life.home.kill_operator(number)
    for clerk in life.home.clerks.living:
        clerk.dead = True
    for run in life.home.cluster.runs.values():
        if run.working:
            life.home.cluster.progress(run, crash=True)
    ends_as_undisturbed(life)
    assert sum(it.restarts for it in records(life, Tell) if isinstance(it, Tell)) > 0


def test_a_clerk_that_was_away_finds_what_a_trial_has_reported_in_its_folder() -> None:
    life = calm_life(budget={"trials": 1})
    life.until(lambda: any(it.working for it in life.home.cluster.runs.values()))
    life.home.clerks.living[0].dead = True
    life.home.clerks.bury()
    (run,) = life.home.cluster.runs.values()
    while not run.ended:
        life.home.cluster.progress(run, crash=False)
    assert not records(life, Reports)

    view = life.end()
    assert sorted(view.trials[0].values) == [1, 2, 3, 4]
    assert view.trials[0].state == "Succeeded"


@pytest.mark.case("sweeps", "The store is away during a sweep")
def test_the_store_is_away_and_trials_wait_for_it_undisturbed() -> None:
    life = calm_life()
    life.until(lambda: sum(it.working for it in life.home.cluster.runs.values()) == 2)
    before = {it.uid for it in life.home.cluster.runs.values()}
    life.storage.away = True
    told = life.home.cluster
    life.until(lambda: reason(life, "ClerkReady") == "StorageUnavailable")
    for _ in range(500):
        life.turn()
    assert {it.uid for it in told.runs.values()} == before
    assert not any(it.suspend for it in told.runs.values())
    assert told.sweep.status["phase"] == "Running"
    ends_as_undisturbed(life)


def test_a_record_that_cannot_be_read_is_named_and_nothing_is_disturbed() -> None:
    life = calm_life()
    life.until(lambda: any(it.working for it in life.home.cluster.runs.values()))
    kept, life.storage.objects[FIRST_ASK] = life.storage.objects[FIRST_ASK], b"{}"
    before = {it.uid for it in life.home.cluster.runs.values()}
    life.home.clerks.living[0].dead = True
    life.home.clerks.bury()
    life.until(lambda: reason(life, "ClerkReady") == "LogDamaged")
    for _ in range(300):
        life.turn()
    assert before <= {it.uid for it in life.home.cluster.runs.values()}

    life.storage.objects[FIRST_ASK] = kept
    ends_as_undisturbed(life)


@pytest.mark.case("sweeps", "A TrainSweep is deleted and applied again")
def test_a_sweep_that_is_deleted_and_applied_again_goes_on_with_its_trials() -> None:
    life = calm_life()
    life.until(lambda: records(life, Tell))
    asked = params(life)
    life.home.cluster.apply_again(life.home.cluster.sweep.spec)
    view = life.end()
    assert params(life)[: len(asked)] == asked
    assert (view.asked, len(view.sessions), len(records(life, Tell))) == (4, 2, 4)


@pytest.mark.case("sweeps", "Another machine takes the search over")
def test_a_sweep_applied_on_another_cluster_is_given_up_by_the_first() -> None:
    life = calm_life()
    life.until(lambda: records(life, Tell))
    first = life.home.cluster
    life.apply()
    view = life.end()
    assert first.sweep.status["reason"] == "TakenOver"
    assert all(it.suspend or it.ended for it in first.runs.values())
    assert (view.asked, [it.uid for it in view.sessions]) == (4, ["uid-0.0", "uid-1.0"])


def test_a_clerk_that_dies_three_times_in_a_row_costs_no_trial_anything() -> None:
    life = calm_life()
    deaths = 3

    def dies(*_: object) -> bool:
        nonlocal deaths
        deaths -= 1
        return deaths >= 0

    life.dies_at = dies
    ends_as_undisturbed(life)
    assert deaths < 0


def test_a_run_that_is_deleted_by_hand_comes_back() -> None:
    """Edge case 19."""
    life = calm_life(budget={"trials": 1})
    life.until(lambda: any(it.step == 2 for it in life.home.cluster.runs.values()))
    life.home.cluster.delete_by_hand("s-00000")
    view = life.end()
    assert view.trials[0].state == "Succeeded"
    assert len(records(life, Tell)) == 1


def test_gangs_of_trials_do_not_starve_each_other() -> None:
    """Edge case 16: room for three workers, gangs of two, and four trials that may work at once."""
    life = calm_life(maxConcurrent=4, maxUnplaced=1)
    life.home.cluster.room = 3
    ends_as_undisturbed(life)


def reason(life: SweepLife, condition: str) -> str:
    """Of a condition of the TrainSweep that does not hold."""
    conditions = life.home.cluster.sweep.status.get("conditions", ())
    found = (it["reason"] for it in conditions if it["type"] == condition)
    return next(found, "") if leader(life) else ""
