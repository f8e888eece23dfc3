"""Timeouts that nobody has set: learned from the steps of the run, and mostly only observed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun.contract.agent_state import LongSection, ProcessExit
from trainrun_operator.api.run.status_parts import Learned, Progress
from trainrun_operator.core.run.incidents.hangs import learned_hang, suspected_hang, with_learned

TRAINED = {"spawned": 4060.0, "first_step": 4000.0}
"""The first step came after a minute, and up to the newest one it was an hour or so."""


def standing(*steps: int | None, owes: float | None, **fields: Any) -> WorkerObservation:
    """One process each; nobody has reported for so long. Steps took 2 s at most."""
    config = {"hang_policy": fields.pop("hang_policy", "Observe")}
    scene = a_run(replicas=len(steps), max_failures=3, **config).running()
    for slot, step in enumerate(steps):
        told: dict[str, Any] = {"slowest": 2.0, "stepped": owes, **TRAINED}
        if step is None:
            told = {"spawned": owes}
        scene = scene.with_agent(slot, steps=(step,), owes=owes, **(told | fields))
    return scene


def said(scene: WorkerObservation) -> str:
    loss = suspected_hang(scene.view)
    return "" if loss is None else loss.message


@pytest.mark.case("processes", "A process hangs, and no timeout is set")
def test_the_rank_that_is_behind_is_named_with_what_is_usual() -> None:
    scene = standing(128, 127, 128, owes=901.0)
    loss = suspected_hang(scene.view)
    assert loss is not None
    assert loss.message == (
        "no step for 15 min or more (the slowest took 2 s): rank 1 is at step 127, 2 others at 128"
    )
    assert (loss.rank, loss.worker, loss.node) == (1, "run-1-1", "node-1")


def test_a_task_that_takes_longer_than_those_before_is_no_hang() -> None:
    scene = standing(128, None, owes=3600.0)
    assert said(scene.with_status(progress=Progress(step=128))) != ""
    tasks = Progress(step=128, metrics={"tasks_rebuilt": 129})
    assert said(scene.with_status(progress=tasks)) == ""


@pytest.mark.parametrize(
    ("trained", "slowest", "quiet", "limit"),
    [
        (0.0, 0.5, None, 300.0),  # at least five minutes: an evaluation may come at once
        (0.0, 140.0, None, 420.0),  # three times the slowest step
        (2000.0, 0.5, None, 400.0),  # a fifth of the time that it has trained, while they work
        (9000.0, 0.5, None, 900.0),  # at most a quarter of an hour
        (9000.0, 0.5, 61.0, 300.0),  # five minutes where no process does anything
        (9000.0, 400.0, 61.0, 1200.0),  # more where it has been so already
    ],
)
def test_a_timeout_is_learned_from_the_steps_and_the_time_that_was_trained(
    trained: float, slowest: float, quiet: float | None, limit: float
) -> None:
    def after(owes: float) -> str:
        first = trained + owes
        return said(
            standing(
                *(5, 5), owes=owes, slowest=slowest, quiet=quiet, first_step=first, spawned=first
            )
        )

    assert after(limit) == ""
    assert after(limit + 1.0) != ""


def test_until_there_were_two_steps_what_is_usual_is_not_known() -> None:
    def first(owes: float, compiled: float) -> str:
        fields = {"slowest": 0.0, "first_step": owes, "spawned": owes + compiled}
        return said(standing(1, 1, owes=owes, **fields))

    assert first(900.0, 60.0) == ""
    assert "(the usual time of a step is not known yet): ranks 0, 1 are at step 1" in first(
        901.0, 60.0
    )
    assert first(1800.0, 600.0) == ""
    assert first(1801.0, 600.0) != ""


def test_a_later_compilation_may_take_as_long_as_the_first_one() -> None:
    fields = {"slowest": 1.0, "first_step": 460.0, "spawned": 760.0}
    assert said(standing(9, owes=450.0, **fields)) == ""
    assert said(standing(9, owes=451.0, **fields)) != ""
    assert said(standing(9, owes=301.0, quiet=90.0, **fields)) != "", "nothing compiles"


def test_the_timeout_of_the_spec_is_the_only_one_where_it_is_set() -> None:
    scene = standing(5, 4, owes=5000.0).with_config(progress_timeout=a_run().config.start_timeout)
    assert said(scene) == ""


def test_whoever_has_an_excuse_is_not_hung() -> None:
    scene = standing(5, 4, owes=5000.0)
    assert said(scene) != ""
    assert said(scene.with_agent(0, owes=None)) == "", "it waits for the store, or for a vote"
    assert said(scene.with_agent(0, owes=60.0)) == ""
    assert said(scene.asked_to_save()) == ""
    assert said(scene.silent(0, 16)) == ""
    assert said(scene.unheard(0)) == ""


def test_ranks_that_ended_well_are_not_judged() -> None:
    end = ProcessExit(rank=0, code=0)
    scene = standing(9, 5, owes=5000.0).with_agent(0, phase="Idle", exits=(end,), owes=None)
    assert said(scene).endswith(": rank 1 is at step 5, 1 other ended with exit code 0")
    both = scene.with_agent(1, phase="Idle", exits=(replace(end, rank=1),), owes=None)
    assert said(both) == ""


@pytest.mark.case("processes", "A gang that never reports stands still")
def test_a_gang_that_never_reports_is_judged_by_its_cpu_and_io() -> None:
    assert said(standing(None, None, owes=9000.0)) == "", "nobody knows"
    assert said(standing(None, None, owes=9000.0, quiet=600.0)) == ""
    assert said(standing(None, None, owes=9000.0, quiet=601.0).with_agent(1, quiet=3.0)) == ""
    scene = standing(None, None, owes=9000.0, quiet=601.0)
    loss = suspected_hang(scene.view)
    assert loss is not None
    assert loss.message == (
        "the processes have used almost no CPU and I/O for 10 min or more and report no step"
    )
    assert loss.known_by.startswith("the CPU and I/O use of the processes")
    waited = scene.with_config(first_step_timeout=scene.config.start_timeout)
    assert said(waited) == "", "the spec says how long a first step may take"


@pytest.mark.case(
    "processes",
    "A process hangs longer than usual, with hangPolicy: Restart",
    counted="maxFailures",
)
def test_what_was_learned_ends_an_attempt_only_where_the_spec_says_so() -> None:
    scene = standing(5, 4, owes=5000.0)
    assert (learned_hang(scene.view), scene.plan.status.incident) == (None, None)
    plan = standing(5, 4, owes=5000.0, hang_policy="Restart").asked_for_evidence().plan
    assert plan.reason == "Hung"
    incident = plan.status.incident
    assert incident is not None
    assert incident.message == (
        "no step for 60 min or more (the slowest took 2 s): rank 1 is at step 4, 1 other at 5"
    )
    assert (incident.budget, incident.node, incident.detect_seconds) == (
        "failures",
        "node-1",
        5000.0,
    )


def test_ranks_that_never_reported_are_only_observed_also_then() -> None:
    scene = standing(None, None, owes=9000.0, quiet=9000.0, hang_policy="Restart")
    assert said(scene) != ""
    assert (learned_hang(scene.view), scene.plan.status.incident) == (None, None)


def test_a_long_section_that_takes_too_long_is_observed_or_ends_the_attempt() -> None:
    late = LongSection(rank=1, name="evaluate", timeout=60.0, lasts=300.0)
    scene = standing(5, 5, owes=None).with_agent(1, section=late)
    assert said(scene) == (
        'rank 1 has spent 5 min or more in the long section "evaluate" (limit 60 s)'
    )
    assert scene.plan.status.incident is None
    short = replace(late, timeout=30.0, lasts=31.0)
    assert said(scene.with_agent(1, section=short)).endswith(
        '31 s in the long section "evaluate" (limit 30 s)'
    )
    ended = scene.with_config(hang_policy="Restart").asked_for_evidence()
    assert ended.plan.reason == "Hung"


# ------------------------------------------------------------------ what is remembered


def test_what_an_attempt_has_taught_is_there_in_the_next_one_and_its_compilation_is_not() -> None:
    scene = standing(50, 50, owes=1.0, slowest=33.33)
    ended = scene.with_exit(1)
    status = ended.plan.status
    assert status.learned == Learned(slowest=33.3, trained=3999)
    again = ended.after(ended.plan).running(2).with_all(steps=(51,), owes=90.0)
    fresh = again.with_all(slowest=0.0, first_step=90.0, stepped=90.0, spawned=990.0)
    assert said(fresh) == "", "an evaluation may come now"
    assert said(fresh.with_all(owes=301.0, quiet=290.0, first_step=301.0, stepped=301.0)) != ""


def test_what_was_learned_grows_over_all_attempts_whatever_ended_them() -> None:
    stopped = standing(50, 50, owes=1.0).with_config(suspend=True).asked_to_save(ago=5000.0)
    assert stopped.plan.status.ending is not None
    assert stopped.plan.status.ending.kind == "Suspend"
    assert stopped.plan.status.learned == Learned(slowest=2.0, trained=3999)
    second = stopped.after(stopped.plan).running(2).with_all(slowest=1.0, **TRAINED, stepped=0.0)
    assert second.with_config(suspend=False).with_exit(0).plan.status.learned == Learned(
        slowest=2.0, trained=7999
    )


def test_a_run_that_may_go_on_after_its_verdict_has_not_forgotten() -> None:
    scene = standing(50, 50, owes=1.0).with_config(active_deadline=a_run().config.heartbeat_timeout)
    assert scene.plan.reason == "DeadlineExceeded"
    assert scene.plan.status.learned == Learned(slowest=2.0, trained=3999)


def test_an_attempt_without_a_second_step_teaches_nothing() -> None:
    assert standing(None, None, owes=5.0).with_exit(0).plan.status.learned is None
    known = Learned(slowest=3.0, trained=60)
    scene = standing(None, None, owes=5.0).with_status(learned=known).with_exit(0)
    assert scene.plan.status.learned == known


def test_a_long_section_of_one_worker_teaches_no_long_step() -> None:
    """The others waited for it in a barrier for half an hour, and took that for a step."""
    scene = standing(50, 50, owes=1.0, slowest=2.0).with_agent(1, slowest=1801.0)
    assert with_learned(scene.view, scene.status).learned == Learned(slowest=2.0, trained=3999)
    ended = ProcessExit(rank=0, code=0, age=100.0)
    scene = scene.with_agent(0, phase="Idle", exits=(ended,), owes=None)
    assert with_learned(scene.view, scene.status).learned == Learned(slowest=1801.0, trained=3999)


def test_a_worker_that_is_gone_has_taught_as_well() -> None:
    scene = standing(50, 50, owes=1.0, slowest=7.0).with_agent(1, slowest=0.0)
    gone = scene.worker(0).agent
    assert gone is not None
    scene = replace(scene.without(0), last_words=(gone,))
    assert scene.plan.status.learned == Learned(slowest=7.0, trained=3999)
