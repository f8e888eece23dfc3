"""A gang that stands still: when it counts as hung, who is behind, and who is to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run, an_agent, seconds
from trainrun.contract.agent_state import LongSection, ProcessExit
from trainrun.contract.evidence import OutputProgress
from trainrun_operator.core.run.gang.avoiding import disfavored
from trainrun_operator.core.run.incidents.hangs import step_owed

LIMITS = {"progress_timeout": seconds(120), "first_step_timeout": seconds(600)}


def standing(*steps: int | None, owes: float | None = 121.0, **config: Any) -> WorkerObservation:
    """A gang of one process each, of which nobody has reported for so long."""
    scene = a_run(replicas=len(steps), max_failures=3, **(LIMITS | config)).running()
    for slot, step in enumerate(steps):
        scene = scene.with_agent(slot, steps=(step,), owes=owes)
    return scene.asked_for_evidence()


def said(scene: WorkerObservation) -> str:
    """What ends the attempt; "" for nothing."""
    incident = scene.plan.status.incident
    if incident is None:
        assert scene.plan.reason in ("Starting", "Running", "SaveAsked", "Preempting", "Finishing")
        return ""
    assert (incident.cause, scene.plan.reason) == ("Hung", "Hung")
    return incident.message


def test_the_rank_that_is_behind_is_named_and_its_node_blamed() -> None:
    scene = standing(128, 128, 128, 127, 128, 128, 128, 128)
    assert said(scene) == (
        "no step for 120 s (spec.health.progressTimeout): rank 3 is at step 127, 7 others at 128"
    )
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.slot, incident.rank, incident.worker) == (3, 3, "run-3-1")
    assert (incident.node, incident.detect_seconds) == ("node-3", 121.0)
    assert incident.known_by == "the time since each agent saw its last step"
    assert incident.step == 128


def test_it_is_charged_to_the_failures() -> None:
    scene = standing(5, 5)
    ended = scene.after(scene.plan)
    started = ended.waiting().resolved().without_backoff()
    assert started.plan.status.failures.counted == 1
    assert started.plan.status.incidents[-1].budget == "failures"


@pytest.mark.parametrize(
    ("steps", "behind"),
    [
        ((7,), "rank 0 is at step 7"),
        ((7, 7), "ranks 0, 1 are at step 7"),
        ((6, 7, 6), "ranks 0, 2 are at step 6, 1 other at 7"),
        ((6, 6, 7, 9), "ranks 0, 1 are at step 6, 2 others at 7 to 9"),
        ((4,) * 7, "7 ranks (0, 1, 2, 3, 4, ...) are at step 4"),
    ],
)
def test_where_it_is_not_one_worker_nobody_is_blamed(steps: tuple[int, ...], behind: str) -> None:
    scene = standing(*steps)
    assert said(scene) == f"no step for 120 s (spec.health.progressTimeout): {behind}"
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.slot, incident.rank, incident.worker, incident.node) == (None, None, "", "")


def test_two_ranks_of_one_worker_that_are_behind_blame_its_node() -> None:
    scene = standing(8, 8, processes_per_worker=2)
    scene = scene.with_agent(0, steps=(9, 9)).with_agent(1, steps=(8, 8))
    assert said(scene).endswith(": ranks 2, 3 are at step 8, 2 others at 9")
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.slot, incident.rank, incident.node) == (1, None, "node-1")


def test_a_node_that_hangs_twice_is_not_preferred_any_more() -> None:
    scene = standing(5, 4)
    for _ in range(2):
        scene = scene.after(scene.plan).waiting().resolved().without_backoff()
        scene = scene.after(scene.plan).running(scene.status.attempt + 1)
        scene = scene.with_agent(0, steps=(5,), owes=130.0).with_agent(1, steps=(4,), owes=130.0)
        scene = scene.asked_for_evidence()
    assert disfavored(scene.view) == ("node-1",)


def test_without_timeouts_nothing_is_ever_hung() -> None:
    for steps in ((5, 4), (None, None)):
        assert (
            said(standing(*steps, owes=1e6, progress_timeout=None, first_step_timeout=None)) == ""
        )


@pytest.mark.case(
    "processes", "A process hangs, and health.progressTimeout is set", counted="maxFailures"
)
def test_until_the_timeout_and_while_one_rank_reports_nothing_is_hung() -> None:
    assert said(standing(5, 4, owes=120.0)) == ""
    assert said(standing(5, 400).with_agent(1, owes=3.0)) == ""


@pytest.mark.case(
    "processes",
    "No rank reports a first step within health.firstStepTimeout",
    counted="maxFailures",
)
def test_a_first_step_that_does_not_come() -> None:
    assert said(standing(None, None, owes=600.0)) == ""
    scene = standing(None, None, owes=601.0)
    assert said(scene) == "no first step within 600 s (spec.health.firstStepTimeout)"
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.node == ""
    assert said(standing(None, None, owes=1e6, first_step_timeout=None)) == ""


def test_ranks_that_never_report_are_not_judged_by_the_progress_timeout() -> None:
    assert said(standing(5, None)).endswith(": rank 0 is at step 5")
    end = ProcessExit(rank=0, code=0)
    assert said(standing(5, None).with_agent(0, phase="Idle", exits=(end,))) == ""


def test_ranks_that_ended_well_are_not_judged_and_those_that_stay_are() -> None:
    end = ProcessExit(rank=0, code=0)
    scene = standing(9, 5, 5).with_agent(0, phase="Idle", exits=(end,), owes=None)
    assert said(scene).endswith(": ranks 1, 2 are at step 5, 1 other ended with exit code 0")
    scene = standing(9, 5).with_agent(0, phase="Idle", exits=(end,), owes=None)
    assert said(scene).endswith(": rank 1 is at step 5, 1 other ended with exit code 0")
    assert scene.plan.status.incident is not None
    assert scene.plan.status.incident.node == "node-1"


def test_a_rank_that_waits_for_its_agent_excuses_the_gang() -> None:
    assert said(standing(5, 4).with_agent(0, owes=None)) == ""


def test_while_a_save_is_asked_for_nothing_is_hung() -> None:
    scene = standing(5, 4).asked_to_save().voted(0, calls=3).voted(1, calls=3)
    assert said(scene.noticed(1)) == ""


def test_an_operator_that_has_not_heard_every_agent_judges_nothing() -> None:
    assert said(standing(5, 4).unheard(0).listening(4)) == ""


def test_an_agent_that_should_have_called_is_the_business_of_its_silence() -> None:
    assert said(standing(5, 4).silent(0, 16)) == ""
    assert said(standing(5, 4).silent(0, 9)) != ""


def test_an_error_that_a_process_ended_with_is_the_better_explanation() -> None:
    scene = standing(5, 4).with_exit(0, exception="ValueError: bad")
    assert scene.plan.reason == "AppError"


def section(rank: int, *, lasts: float, name: str = "evaluate") -> LongSection:
    return LongSection(rank=rank, name=name, timeout=60.0, lasts=lasts)


@pytest.mark.case(
    "processes", "A rank stays in a long_section() beyond its timeout", counted="maxFailures"
)
def test_a_long_section_excuses_the_gang_until_its_own_timeout() -> None:
    scene = standing(5, 5, owes=1000.0)
    assert said(scene.with_agent(1, owes=None, section=section(1, lasts=60.0))) == ""
    scene = scene.with_agent(1, owes=None, section=section(1, lasts=61.0))
    assert said(scene) == ('rank 1 has spent 61 s in the long section "evaluate" (limit 60 s)')
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.rank, incident.node) == (1, "node-1")


def test_alerts_learn_how_long_a_step_has_been_owed_and_that_a_long_section_owes_none() -> None:
    idle, owing = an_agent(0), an_agent(1, phase="Running", owes=30.0)
    within = an_agent(2, phase="Running", section=section(2, lasts=60.0))
    late = an_agent(3, phase="Running", section=section(3, lasts=61.0))
    waiting = an_agent(4, phase="Running")
    assert step_owed([]) is None
    assert step_owed([idle, owing, replace(owing, owes=20.0)]) == (20.0, 0.0)
    assert step_owed([owing, within]) == (0.0, 0.0)
    assert step_owed([within, late]) is None
    assert step_owed([owing, waiting]) is None


def test_alerts_learn_how_long_a_step_may_take_before_the_attempt_has_ended() -> None:
    first = an_agent(0, phase="Running", steps=(1,), owes=30.0, spawned=2000.0, first_step=200.0)
    assert step_owed([first]) == (30.0, 5400.0), "three times the first step"
    assert step_owed([replace(first, slowest=700.0)]) == (30.0, 2100.0)


def test_alerts_learn_of_signs_of_life_in_the_output_of_a_script_that_reports_nothing() -> None:
    bar = OutputProgress(rank=0, form="tqdm", line="1/9", owes=5.0, slowest=60.0)
    prints = an_agent(0, phase="Running", owes=5000.0, output=bar)
    silent = an_agent(1, phase="Running", owes=5000.0)
    assert step_owed([prints, silent]) == (5.0, 180.0)
    reports = replace(silent, steps=(7,), owes=4000.0)
    assert step_owed([prints, reports]) == (4000.0, 0.0), "its bars count for nothing"


def test_of_several_ranks_in_a_section_for_too_long_nobody_is_blamed() -> None:
    scene = standing(5, 5, owes=None).with_agent(0, section=section(0, lasts=70.0))
    scene = scene.with_agent(1, section=section(1, lasts=80.0))
    assert said(scene).startswith("rank 1 has spent 80 s in the long section")
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.rank, incident.node) == (None, "")


def test_a_section_holds_at_any_time_where_one_of_the_two_timeouts_is_set() -> None:
    late = section(0, lasts=61.0, name="compile")
    assert said(standing(None, owes=None).with_agent(0, section=late)) != ""
    scene = standing(None, owes=None, first_step_timeout=None).with_agent(0, section=late)
    assert said(scene) != ""
    scene = standing(None, owes=None, first_step_timeout=None, progress_timeout=None)
    assert said(scene.with_agent(0, section=late)) == ""


def test_a_section_is_its_workers_whatever_the_spec_says_of_processes_now() -> None:
    scene = standing(5, 5, owes=None).with_agent(1, section=section(3, lasts=70.0))
    assert said(scene).startswith("rank 3 has spent 70 s in the long section")
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.slot, incident.node) == (1, "node-1")


def test_hangs_at_the_same_step_end_the_run_for_want_of_progress() -> None:
    scene = a_run(replicas=2, max_failures=-1, no_progress_limit=1, **LIMITS)
    for attempt in (1, 2):
        scene = scene.running(attempt).with_all(steps=(7,), owes=130.0).asked_for_evidence()
        scene = scene.after(scene.plan).waiting().resolved().without_backoff()
        scene = scene.after(scene.plan)
    failed = scene.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "NoProgress"
    assert "ranks 0, 1 are at step 7 (Hung); 1 incident in a row" in failed.message
