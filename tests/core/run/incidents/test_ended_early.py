"""Attempts that end with exit code 0 before the training is done."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun_operator.api.run.status_parts import Cause

EXISTS = ("Experiment already exists",)


def ended_without_a_step(scene: WorkerObservation, **fields: object) -> WorkerObservation:
    """All processes of the attempt end with 0, none has reported a step."""
    return scene.with_all(steps=(None,)).all_done(last_lines=EXISTS, **fields)


def second_attempt(
    *, reached: int | None, resume: tuple[int, int] | None = None
) -> WorkerObservation:
    """The second attempt of a run whose first one has reached this step, and took a minute."""
    scene = a_run(max_failures=3).running(2, resume=resume)
    stepped = "" if reached is None else "t1"
    return scene.with_status(reached=reached, stepped_from=stepped, longest_attempt=600.0)


def told(scene: WorkerObservation) -> str:
    return scene.plan.message


def warnings(scene: WorkerObservation) -> list[str]:
    return [event.message for event in scene.plan.events if event.type == "Warning"]


# ------------------------------------------------------------------------------- steps are lost


@pytest.mark.case(
    "script",
    "All processes end with 0 before a first step, and steps are lost",
    counted="maxFailures",
)
def test_a_killed_run_whose_script_finds_its_old_folder_and_returns_has_not_succeeded() -> None:
    plan = ended_without_a_step(second_attempt(reached=20, resume=(1, 10))).plan
    assert (plan.reason, plan.status.phase) == ("EndedEarly", "Restarting")
    assert plan.message == (
        "attempt 2 ended: EndedEarly: all 2 processes ended with exit code 0 before a first step. "
        "The attempt started from the checkpoint of step 10, but an earlier one had reached step 20"
    )
    incident = plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.slot, incident.rank) == (Cause.ENDED_EARLY, None, 0)
    assert (incident.exit_code, incident.last_lines) == (0, EXISTS)
    assert incident.budget == "failures"


def test_an_attempt_that_began_from_nothing_says_so() -> None:
    scene = ended_without_a_step(second_attempt(reached=20))
    text = "The attempt started without a checkpoint, but an earlier one had reached step 20"
    assert text in told(scene)


def test_its_budget_ends_the_run_with_what_to_do() -> None:
    scene = ended_without_a_step(second_attempt(reached=20).with_config(max_failures=0))
    scene = scene.after(scene.plan, passed=1)
    plan = scene.plan
    assert plan.reason == "MaxFailuresExceeded"
    assert "call trainrun.finish() or report a checkpoint of the last step" in plan.message
    assert plan.status.failures.text == "1/0"


def test_the_same_again_and_again_counts_as_no_progress() -> None:
    scene = ended_without_a_step(second_attempt(reached=20))
    scene = scene.with_config(max_failures=-1, no_progress_limit=3).with_status(without_progress=2)
    assert scene.after(scene.plan, passed=1).plan.reason == "NoProgress"


def test_lines_are_those_of_a_rank_that_printed_some() -> None:
    scene = second_attempt(reached=20).with_all(steps=(None,)).with_exit(0, code=0)
    scene = scene.with_exit(1, code=0, last_lines=EXISTS)
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.rank, incident.last_lines) == (1, EXISTS)


# ----------------------------------------------------------------------------- all may be done


def test_a_checkpoint_of_the_highest_step_says_that_all_is_done() -> None:
    scene = second_attempt(reached=20, resume=(1, 20)).with_agent(0, asked_for_checkpoint=True)
    plan = ended_without_a_step(scene).plan
    assert (plan.reason, plan.message) == ("Succeeded", "all 2 processes ended with exit code 0")
    assert warnings(ended_without_a_step(scene)) == []


def test_a_script_that_calls_finish_is_believed() -> None:
    scene = second_attempt(reached=20).with_agent(0, finished=True)
    plan = ended_without_a_step(scene).plan
    assert (plan.reason, plan.message) == ("Succeeded", "all 2 processes ended with exit code 0")


def test_an_attempt_that_does_more_steps_has_succeeded() -> None:
    scene = second_attempt(reached=20, resume=(1, 10)).with_all(steps=(21,)).all_done()
    assert told(scene) == "all 2 processes ended with exit code 0"


def test_a_template_that_was_edited_since_may_ask_for_fewer_steps() -> None:
    scene = ended_without_a_step(second_attempt(reached=20).with_status(stepped_from="t0"))
    assert scene.plan.reason == "Succeeded"
    assert warnings(scene)[0].startswith("This attempt reported no step and took 60 s")


def test_the_template_of_the_newest_attempt_with_a_step_is_remembered() -> None:
    scene = a_run(max_failures=3).running().with_exit(0)
    assert scene.plan.status.stepped_from == "t1"
    late = scene.with_all(steps=(None,))
    told = late.after(late.plan, passed=1).with_all(steps=(12,))
    assert told.after(told.plan).status.stepped_from == ""  # until it is settled
    silent = scene.with_all(steps=(None,)).with_status(stepped_from="t0")
    assert silent.plan.status.stepped_from == "t0"


def test_a_run_that_starts_with_nothing_left_to_do_has_succeeded() -> None:
    scene = ended_without_a_step(a_run().running(1, resume=(1, 100)))
    assert scene.plan.reason == "Succeeded"


# ------------------------------------------------------------------ nobody knows: it is only said


@pytest.mark.case("script", "A run may have ended early, but no lost step proves it")
def test_a_much_shorter_attempt_of_a_script_that_reports_nothing_is_told_with_its_last_line() -> (
    None
):
    scene = ended_without_a_step(second_attempt(reached=None))
    doubt = "This attempt reported no step and took 60 s, but an earlier one took 600 s"
    assert scene.plan.reason == "Succeeded"
    assert told(scene) == (
        f"all 2 processes ended with exit code 0. {doubt}. No step was reported; the last line of "
        "the output is: Experiment already exists"
    )
    assert warnings(scene) == [
        f"{doubt}. Check that the training is complete; a script confirms it with trainrun.finish()"
    ]


def test_an_attempt_of_about_the_same_time_is_not_doubted() -> None:
    scene = ended_without_a_step(second_attempt(reached=None).with_status(longest_attempt=599.0))
    assert warnings(scene) == []


def test_a_script_that_saves_where_it_reports_and_ignores_its_checkpoint_is_doubted() -> None:
    scene = ended_without_a_step(second_attempt(reached=20, resume=(1, 20)))
    assert scene.plan.reason == "Succeeded"
    assert warnings(scene)[0].startswith("This attempt reported no step and took 60 s")


def test_the_last_line_of_a_first_attempt_without_a_step_is_told() -> None:
    scene = a_run().running().with_all(steps=(None,)).all_done(last_lines=("needs 2 GPUs",))
    assert told(scene) == (
        "all 2 processes ended with exit code 0. No step was reported; the last line of the "
        "output is: needs 2 GPUs"
    )


def test_an_end_below_a_step_that_was_reached_before_is_told() -> None:
    scene = second_attempt(reached=20).with_all(steps=(12,)).all_done()
    assert scene.plan.reason == "Succeeded"
    assert warnings(scene)[0].startswith(
        "This attempt ended at step 12, but an earlier one reached step 20"
    )


def test_the_longest_attempt_is_remembered_however_it_ended() -> None:
    scene = a_run(max_failures=3).running().with_exit(0)
    assert scene.plan.status.longest_attempt == 60.0
    longer = scene.with_status(longest_attempt=90.0)
    assert longer.plan.status.longest_attempt == 90.0
