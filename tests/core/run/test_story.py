"""The story of a run is written with its decisions: each chapter once, whole, and bounded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.builders import BEGIN, WorkerObservation, a_new_run, a_run
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.story import Chapter, chapter_from, chapter_object, chapter_size
from trainrun_operator.core.run.boundary import Event, Plan
from trainrun_operator.core.run.story import LIMIT, OPEN_LIMIT, _newest, with_story


def a_life(**config: object) -> WorkerObservation:
    """An attempt that runs, whose chapter is being written."""
    scene = a_new_run(**config)
    scene = scene.after(passed=5).waiting().resolved(None)
    scene = scene.after(passed=1)
    running = scene.running(1)
    record = scene.status.start_record
    return replace(running, status=replace(scene.status, start_record=record, run_id="r"))


def chapters(scene: WorkerObservation) -> list[tuple[int, int, str]]:
    return [(c.number, c.attempt, c.end) for c in scene.status.story]


def test_the_first_chapter_tells_how_long_the_first_attempt_was_waited_for() -> None:
    scene = a_life()
    (first,) = scene.status.story
    assert (first.attempt, first.workers, first.closed) == (0, 0, scene.status.chapter.begun)  # type: ignore[union-attr]
    assert sum(first.spent.values()) == 5.0
    now = scene.status.chapter
    assert now is not None
    assert (now.number, now.attempt, now.workers, now.facts["image"]) == (2, 1, 2, "i")


def test_each_step_of_a_program_of_tasks_survives_without_checkpoints() -> None:
    scene = a_life(max_failures=3)
    scene = scene.after(passed=30).with_all(metrics={"tasks_rebuilt": 90})
    scene = scene.with_all(phase="Running", spawned=29.0, first_step=20.0, stepped=1.0, steps=(40,))
    scene = scene.after(scene.plan).with_exit(1, exception="OSError: disk", age=0.5)
    scene = scene.after(scene.plan)
    assert scene.status.chapter is not None
    assert scene.status.chapter.survived == 40
    scene = scene.waiting().resolved(None).after(passed=2)
    scene = scene.waiting().resolved(None)
    scene = scene.after(scene.plan)
    done = scene.status.story[-1]
    assert (done.survived, done.reached, done.incident["lostSteps"]) == (40, 40, 0)
    assert "rework" not in done.spent


def test_a_chapter_ends_with_its_incident_and_what_it_cost() -> None:
    scene = a_life(max_failures=3)
    scene = scene.after(passed=30)
    scene = scene.with_all(phase="Running", spawned=29.0, first_step=20.0, stepped=1.0, steps=(40,))
    scene = scene.after(scene.plan)
    scene = scene.with_exit(1, exception="ValueError: bad batch", age=0.5)
    scene = scene.after(scene.plan)
    chapter = scene.status.chapter
    assert chapter is not None
    assert (chapter.end, chapter.reached, chapter.incident) == ("Incident", 40, {})
    scene = scene.waiting().resolved((1, 30)).after(passed=2)
    scene = scene.waiting().resolved((1, 30))
    scene = scene.after(scene.plan)
    done = scene.status.story[-1]
    assert done.number == 2
    assert done.incident["cause"] == "AppError"
    assert done.incident["lostSteps"] == 10
    assert (done.survived, done.reached) == (30, 40)
    assert [note.reason for note in done.notes] == ["AppError"]
    assert round(sum(done.spent.values()), 3) == (done.closed - done.begun).total_seconds()  # type: ignore[operator]
    following = scene.status.chapter
    assert following is not None
    assert following.resumed_from == CheckpointId(attempt=1, step=30)
    assert scene.status.goodput is not None
    assert scene.status.goodput.text.endswith(" %")


@pytest.mark.case(
    "operator", "The operator or an agent dies before a chapter of the story is stored"
)
def test_what_an_agent_has_stored_leaves_the_status_and_is_told_no_more() -> None:
    scene = a_life()
    entry = scene.answer(0).story
    assert [e.number for e in entry] == [1]
    assert chapter_from(json.loads(entry[0].text)) == scene.status.story[0]
    assert scene.answer(1).story == ()
    stored = scene.with_agent(0, recorded=(1,))
    stored = stored.after(stored.plan)
    assert stored.status.story == ()
    assert stored.answer(0).story == ()


def test_nothing_is_stored_before_the_storage_was_claimed() -> None:
    assert a_life().with_status(run_id="").answer(0).story == ()


def test_the_lowest_slot_that_is_heard_stores_it() -> None:
    scene = a_life().silent(0, 3600)
    told_to = scene.with_status().plan
    assert told_to.transition or told_to.answers["run-1-1"].story


def test_the_verdict_ends_the_last_chapter() -> None:
    scene = a_life(max_failures=0)
    scene = scene.with_exit(0, exception="ValueError: x", age=0.5).with_exit(1, signal=9, age=0.4)
    while not scene.status.finished:
        scene = scene.after(scene.plan, passed=1)
        scene = scene.with_all(phase="Idle")
    last = scene.status.story[-1]
    assert scene.status.chapter is None
    assert (last.verdict, last.incident["cause"]) == ("MaxFailuresExceeded", "AppError")
    *_, note = last.notes
    assert note.message.startswith("spec.failurePolicy.maxFailures is 0 and 0 were used before: ")
    before = scene.status
    scene = scene.with_agent(0, recorded=tuple(c.number for c in before.story))
    assert scene.plan.status.story == ()
    assert scene.plan.status.spent == before.spent


def test_a_run_that_succeeds_keeps_all_its_steps() -> None:
    scene = a_life().with_all(spawned=50.0, first_step=40.0, stepped=1.0, steps=(9,))
    scene = scene.with_exit(0, code=0).with_exit(1, code=0).with_all(phase="Idle")
    while not scene.status.finished:
        scene = scene.after(scene.plan)
    last = scene.status.story[-1]
    assert (last.end, last.verdict, last.survived) == ("Succeeded", "Succeeded", 9)
    assert "rework" not in last.spent


def test_a_start_that_fails_is_a_chapter_of_its_own() -> None:
    scene = a_run(max_failures=-1)
    failed = scene.after()
    assert failed.status.chapter is not None
    before = failed.status
    after = replace(
        before,
        attempt=1,
        ending=failed.running(1).ended().status.ending,
    )
    plan = Plan(
        reason="StartFailed",
        message="m",
        status=after,
        transition=True,
        events=(Event(type="Warning", reason="StartFailed", message="m"),),
    )
    status = with_story(failed.view, plan).status
    assert status.chapter is not None
    assert (status.chapter.attempt, status.chapter.end) == (1, "Incident")
    assert [note.reason for note in status.chapter.notes] == ["StartFailed"]
    assert [c.number for c in status.story] == [1]


def test_a_suspension_closes_the_chapter_and_its_time_is_nobodys() -> None:
    scene = a_life().with_config(suspend=True)
    scene = scene.with_exit(0, code=0, yielded=True).with_exit(1, code=0, yielded=True)
    scene = scene.with_all(phase="Idle")
    for _ in range(4):
        scene = scene.after(scene.plan, passed=1)
    scene = replace(scene, workers=())
    scene = scene.after(scene.plan)
    assert scene.status.is_true("Suspended")
    assert scene.status.chapter is None
    spent = scene.status.spent
    scene = scene.after(passed=1000).with_config(suspend=False)
    scene = scene.after(scene.plan)
    assert scene.status.chapter is not None
    assert scene.status.chapter.begun == scene.now
    assert scene.status.spent == spent


def test_a_run_that_has_no_chapter_gets_its_story_from_now_on() -> None:
    scene = a_run().running(3)
    status = scene.plan.status
    assert status.chapter is not None
    assert (status.chapter.number, status.chapter.attempt) == (1, 3)
    assert status.chapter.begun == scene.status.start_record.time  # type: ignore[union-attr]


@pytest.mark.case("operator", "The store takes no chapters until their room is used up")
def test_however_much_happens_the_story_stays_within_its_room() -> None:
    scene = a_life(max_failures=-1)
    for attempt in range(2, 12):
        lines = ("x" * 400,) * 20
        scene = scene.with_exit(1, exception="E" * 3000, last_lines=lines)
        scene = scene.after(scene.plan)
        scene = scene.without_backoff().waiting().resolved((1, attempt))
        scene = scene.after(scene.plan, passed=1)
        running = scene.running(attempt)
        scene = replace(running, status=replace(scene.status, run_id="r"))
    story = (*scene.status.story, scene.status.chapter)
    assert sum(chapter_size(c) for c in story if c is not None) <= LIMIT
    assert scene.status.story[-1].number == scene.status.chapters - 1


def test_what_has_no_room_in_a_chapter_is_counted() -> None:
    scene = a_life()
    plan = scene.plan
    events = tuple(Event(type="Warning", reason="SaveAsked", message="m" * 500) for _ in range(20))
    status = with_story(scene.view, replace(plan, transition=True, events=events)).status
    assert status.chapter is not None
    assert status.chapter.dropped_notes + len(status.chapter.notes) == 20
    assert status.chapter.dropped_notes > 10


def test_a_single_chapter_that_is_too_large_is_cut_and_not_given_up() -> None:
    from trainrun_operator.core.run.story import _newest

    incident = {"cause": "AppError", "lastLines": ["x" * 400] * 20}
    scene = a_life()
    chapter = scene.status.chapter
    assert chapter is not None
    (kept,) = _newest((replace(chapter, incident=incident),))
    assert kept.incident == {"cause": "AppError", "lastLines": []}
    (bare,) = _newest((replace(chapter, facts={"image": "i" * 3000}),))
    assert bare.incident == {}


def test_a_chapter_is_read_as_it_was_written() -> None:
    chapter: Chapter | None = a_life().status.chapter
    assert chapter is not None
    assert chapter_from(chapter_object(chapter)) == chapter


def test_the_time_that_was_waited_is_told_by_what_was_waited_for() -> None:
    scene = a_new_run().after().after(passed=4)
    scene = scene.waiting().resolved(None, offer=False)
    scene = scene.after(scene.plan, passed=3)
    scene = scene.resolved(None)
    scene = scene.after(scene.plan)
    (first,) = scene.status.story
    assert first.waits == {"Gathering": 4.0, "Barrier": 3.0}
    assert first.spent == {"start": 7.0}


def test_nothing_is_told_of_a_run_that_nobody_has_accepted() -> None:
    scene = a_new_run()
    plan = Plan(reason="LedElsewhere", message="", status=scene.status)
    assert with_story(scene.view, plan) is plan


def test_a_chapter_with_long_names_of_exceptions_keeps_its_share() -> None:
    """Sixteen classes with names of 120 characters, of three bytes each."""
    incident = {
        "cause": "AppError",
        "attempt": 1,
        "message": "语" * 1000,
        "rule": "r" * 500,
        "exception": ["语" * 120] * 16,
        "lastLines": ["x" * 160] * 6,
    }
    chapter = Chapter(number=1, attempt=1, begun=BEGIN, incident=incident, facts={"i": "f" * 900})
    (kept,) = _newest((chapter,))
    assert chapter_size(kept) <= LIMIT - OPEN_LIMIT
    assert (kept.incident["cause"], kept.incident["attempt"]) == ("AppError", 1)
    assert len(kept.incident["exception"]) == 1
    assert kept.incident["message"].endswith("…")
    small = Chapter(number=1, attempt=1, begun=BEGIN, facts={"i": "f"})
    assert _newest((small,)) == (small,)
    without = replace(chapter, incident={}, facts={"i": "f" * 3000})
    assert _newest((without,))[0].facts == {}
