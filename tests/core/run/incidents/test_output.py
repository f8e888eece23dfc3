"""What the output shows where the script reports nothing: displayed, timed, and never charged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun.contract.answer import FolderRule
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import OutputProgress, Posted
from trainrun_operator.api.run.status import json_object, status_from
from trainrun_operator.core.run.incidents.hangs import learned_hang, suspected_hang

AT_120 = OutputProgress(
    rank=0,
    form="nanoGPT",
    line="iter 0: loss 4.2, time 9ms",
    step=120,
    total=500,
    metrics={"loss": 0.5},
    began=300.0,
    moved=1.0,
    owes=1.0,
    slowest=2.0,
)


def printing(
    output: OutputProgress | None = AT_120, *, attempt: int = 1, replicas: int = 2, **config: Any
) -> WorkerObservation:
    """An attempt of a script that reports nothing; its rank 0 prints."""
    scene = a_run(replicas=replicas, **({"max_failures": -1} | config)).running(attempt)
    up = 10.0 + ((output.began if output is not None else None) or 300.0)
    scene = scene.with_all(steps=(None,), first_step=None, spawned=up, owes=up)
    return scene.with_agent(0, output=output)


def still(owes: float, **fields: Any) -> OutputProgress:
    return replace(AT_120, owes=owes, moved=owes, began=owes + 300.0, **fields)


@pytest.mark.case("script", "The script never reports, and its output shows steps")
def test_a_script_that_reports_nothing_is_shown_as_its_output_does() -> None:
    status = printing().plan.status
    shown = status.output
    assert shown is not None
    assert (shown.text, shown.step, shown.total_steps) == ("120/500", 120, 500)
    assert shown.metrics == {"loss": 0.5}
    assert shown.source == 'form nanoGPT, line "iter 0: loss 4.2, time 9ms" of rank 0'
    assert (status.progress.step, status.reached) == (None, None)
    assert status_from(json_object(status)) == status


def test_a_script_whose_folder_is_stored_is_shown_as_its_output_does() -> None:
    scene = a_run(folder=FolderRule(path="out")).running(2, resume=(1, 100))
    scene = scene.with_all(steps=(None,), first_step=None).with_agent(0, output=AT_120)
    assert scene.plan.status.output is not None
    reporting = scene.with_agent(0, steps=(2,)).plan.status
    assert (reporting.progress.step, reporting.output) == (2, None)


def test_a_script_that_resumes_from_its_folder_is_still_shown_as_its_output_does() -> None:
    """The step of a save is a number in its name, or a count: no reported step."""
    scene = a_run(folder=FolderRule(path="out"), max_failures=-1).running(1)
    scene = scene.with_all(steps=(None,), first_step=None).with_agent(0, output=AT_120)
    scene = scene.with_exit(0, exception="ValueError: x")
    scene = scene.after(scene.plan).waiting().resolved((1, 100)).without_backoff()
    scene = scene.after(scene.plan)
    assert scene.status.start_record is not None
    assert scene.status.start_record.resume_point == CheckpointId(attempt=1, step=100)
    assert scene.status.progress.step is None
    handed = scene.status
    scene = scene.running(2, resume=(1, 100)).with_all(steps=(None,), first_step=None)
    scene = scene.with_status(output=handed.output, progress=handed.progress)
    status = scene.with_agent(0, output=AT_120).plan.status
    assert status.output is not None
    assert status.output.text == "120/500"


def test_reports_win_over_output_and_output_over_posts() -> None:
    scene = printing().with_agent(0, posted=Posted(step=3))
    assert scene.plan.status.posted is None
    assert scene.plan.status.output is not None
    reporting = scene.with_agent(0, steps=(2,)).plan.status
    assert (reporting.progress.step, reporting.output) == (2, None)


@pytest.mark.parametrize("ended", [{}, {"exception": "ValueError: x"}])
@pytest.mark.parametrize("up", [5.0, 59.9, 60.0, 7200.0])
def test_no_budget_and_no_restart_differs_for_what_was_printed(
    up: float, ended: dict[str, Any]
) -> None:
    quiet = printing(None).with_all(spawned=up).with_status(fruitless=4)
    told = quiet.with_agent(0, output=AT_120)
    if ended:
        quiet, told = quiet.with_exit(0, **ended), told.with_exit(0, **ended)
    without, plan = quiet.plan, told.plan
    same = ("failures", "incident", "fruitless", "without_progress", "attempt", "reached", "phase")
    for field in same:
        assert getattr(plan.status, field) == getattr(without.status, field), field
    assert (plan.reason, plan.actions) == (without.reason, without.actions)


def test_a_progress_timeout_goes_by_signs_of_life_and_blames_nobody() -> None:
    scene = printing(still(119.0), progress_timeout=seconds(120)).asked_for_evidence()
    assert scene.plan.status.incident is None
    incident = scene.with_agent(0, output=still(121.0)).asked_for_evidence().plan.status.incident
    assert incident is not None
    assert incident.cause == "Hung"
    assert incident.message == (
        "the output of rank 0 has not moved for 120 s (spec.health.progressTimeout); its last step "
        "was 120"
    )
    assert incident.worker == ""


def test_a_first_step_timeout_waits_for_the_first_sign_of_life() -> None:
    limit = {"first_step_timeout": seconds(300)}
    assert printing(**limit).asked_for_evidence().plan.status.incident is None
    unmoved = replace(AT_120, began=None, moved=None, owes=310.0)
    incident = printing(unmoved, **limit).asked_for_evidence().plan.status.incident
    assert incident is not None
    assert incident.message == "no first step within 300 s (spec.health.firstStepTimeout)"


@pytest.mark.parametrize("policy", ["Observe", "Restart"])
@pytest.mark.parametrize("step", [120, None])
def test_output_that_stops_never_ends_an_attempt_by_a_learned_timeout(
    policy: str, step: int | None
) -> None:
    scene = printing(still(4000.0, step=step), hang_policy=policy).asked_for_evidence()
    loss = suspected_hang(scene.view)
    assert loss is not None
    at = "" if step is None else "; its last step was 120"
    assert loss.message == (
        f"the output of rank 0 has not moved for 60 min or more (the slowest took 2 s){at}"
    )
    assert learned_hang(scene.view) is None
    status = scene.plan.status
    assert status.incident is None
    hung = status.condition("Hung")
    assert hung is not None
    assert hung.reason == "NoOutput"
    assert hung.message.endswith("Only observed: spec.health.progressTimeout would end the attempt")


def test_the_story_says_where_the_steps_were_read_and_how_far_they_came() -> None:
    scene = printing()
    scene = scene.after(scene.plan)
    chapter = scene.status.chapter
    assert chapter is not None
    assert chapter.read_from == 'form nanoGPT, line "iter 0: loss 4.2, time 9ms" of rank 0'
    assert (chapter.began_with, chapter.reports) == (0, True)
    ended = scene.with_exit(0, exception="ValueError: x")
    ended = ended.after(ended.plan)
    assert ended.status.chapter is not None
    assert ended.status.chapter.reached == 120
    assert scene.status.goodput is not None
    assert scene.status.goodput.text.endswith("%")


def test_what_the_next_attempt_does_again_is_rework() -> None:
    scene = printing().with_exit(0, exception="ValueError: x")
    scene = scene.after(scene.plan).waiting().resolved().without_backoff()
    scene = scene.after(scene.plan)
    handed = scene.status.output
    assert handed is not None
    assert (handed.step, handed.text, handed.reached) == (None, "", 120)
    again = replace(AT_120, first=101, step=130)
    scene = scene.running(2).with_all(steps=(None,), first_step=None, spawned=310.0, owes=310.0)
    scene = scene.with_status(output=handed).with_agent(0, output=again)
    scene = scene.after(scene.plan)
    scene = scene.with_exit(0, exception="ValueError: x")
    scene = scene.after(scene.plan)
    chapter = scene.status.chapter
    assert chapter is not None
    assert (chapter.began_with, chapter.reached, chapter.repeated) == (101, 130, 19)
