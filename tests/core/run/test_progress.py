"""What a framework posts is shown where the script reports nothing, and decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun.contract.agent_state import ProcessExit
from trainrun.contract.evidence import Posted
from trainrun_operator.api.run.status import json_object, status_from
from trainrun_operator.api.run.status_parts import PostedProgress

AT_120 = Posted(step=120, total=500, percent=24, metrics={"loss": 0.5}, remaining=61.7)


def mute(posted: Posted | None = AT_120, **fields: Any) -> WorkerObservation:
    """An attempt of a script that reports nothing."""
    scene = a_run(max_failures=-1).running().with_all(steps=(None,), first_step=None, **fields)
    return scene.with_agent(0, posted=posted)


@pytest.mark.case("script", "The script never reports, and its framework posts steps")
def test_a_script_that_reports_nothing_is_shown_as_its_framework_posts() -> None:
    scene = mute()
    assert scene.plan.status.posted == PostedProgress(
        text="120/500",
        step=120,
        total_steps=500,
        percent=24,
        metrics={"loss": 0.5},
        remaining_seconds=61,
        time=scene.now,
    )
    assert scene.plan.status.progress.step is None


def test_it_stands_in_the_resource_beside_the_progress() -> None:
    status = mute().plan.status
    written = json_object(status)
    assert written["posted"]["totalSteps"] == 500
    assert "step" not in written["progress"]
    assert status_from(written) == status
    assert "posted" not in json_object(mute(None).plan.status)


@pytest.mark.parametrize(
    ("posted", "text"),
    [
        (Posted(step=7), "7"),
        (Posted(percent=24), "24 %"),
        (Posted(total=500), "-/500"),
        (Posted(metrics={"loss": 0.5}), ""),
    ],
)
def test_posts_in_a_few_characters(posted: Posted, text: str) -> None:
    found = mute(posted).plan.status.posted
    assert found is not None
    assert (found.text, found.remaining_seconds) == (text, None)


def test_reported_steps_win() -> None:
    assert a_run().running().with_agent(0, posted=AT_120).plan.status.posted is None
    scene = mute()
    scene = scene.after(scene.plan).with_agent(1, steps=(3,))
    assert scene.plan.status.progress.step is None  # slot 0 speaks for the run
    scene = scene.with_agent(0, steps=(2,))
    assert (scene.plan.status.progress.step, scene.plan.status.posted) == (2, None)
    resumed = a_run().running(2, resume=(1, 6)).with_all(steps=(None,))
    resumed = resumed.with_status(progress=replace(resumed.status.progress, step=6))
    assert resumed.with_agent(0, posted=AT_120).plan.status.posted is None


def test_only_the_worker_of_rank_0_is_asked() -> None:
    assert mute(None).with_agent(1, posted=AT_120).plan.status.posted is None


def test_posts_that_did_not_change_keep_their_time_whatever_was_cut() -> None:
    scene = mute()
    status = scene.plan.status
    assert status.posted is not None
    later = scene.after(scene.plan, passed=30)
    assert later.plan.status.posted == status.posted
    cut = later.with_status(posted=replace(status.posted, metrics={}))
    assert cut.plan.status.posted == status.posted
    later = later.with_agent(0, posted=replace(AT_120, step=121))
    assert later.plan.status.posted is not None
    assert later.plan.status.posted.time == later.now != scene.now


def test_what_an_attempt_before_has_posted_is_shown_until_the_next_one_starts() -> None:
    scene = mute().with_exit(1)
    scene = scene.after(scene.plan)
    assert scene.plan.status.posted is not None
    waiting = scene.waiting()
    assert waiting.plan.status.posted == scene.plan.status.posted
    started = waiting.resolved().plan.status
    assert (started.attempt, started.posted) == (2, None)


@pytest.mark.parametrize("up", [5.0, 59.9, 60.0, 7200.0])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"steps": (3,)},
        {"exits": (ProcessExit(rank=0, code=1, exception="ValueError: x"),)},
        {
            "exits": (
                ProcessExit(rank=0, code=1, exception="torch.distributed.DistNetworkError: x"),
            )
        },
        {"exits": (ProcessExit(rank=0, code=0),), "phase": "Idle"},
    ],
)
def test_no_decision_differs_for_what_was_posted(up: float, fields: dict[str, Any]) -> None:
    """Whether a gang has trained is told by its steps or its time, never by posts."""
    quiet = mute(None, spawned=up).with_status(fruitless=4).with_agent(0, **fields)
    posting = quiet.with_agent(0, posted=AT_120)
    with_posts = posting.plan
    assert replace(with_posts, status=replace(with_posts.status, posted=None)) == quiet.plan
    silent, mute_too = posting.silent(0, 40), quiet.silent(0, 40)
    assert replace(silent.plan, status=replace(silent.plan.status, posted=None)) == mute_too.plan
