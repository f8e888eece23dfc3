"""The story of a run in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.agent_records import read_attempts, read_story, write_story
from trainrun.checkpoint.records import StoryRecord

if TYPE_CHECKING:
    from tests.support.checkpoints import Bench


def a_record(number: int, uid: str = "0f9e-8d7c", **chapter: object) -> StoryRecord:
    return StoryRecord(number=number, uid=uid, run="digits", chapter=dict(chapter))


def test_chapters_are_written_once_and_read_in_order(any_bench: Bench) -> None:
    run = any_bench.run
    assert write_story(run, a_record(2, attempt=1))
    assert write_story(run, a_record(1, attempt=0))
    assert write_story(run, a_record(1, attempt=0)), "the same again is no conflict"
    assert not write_story(run, a_record(1, attempt=7)), "what stands there stays"
    assert [(r.number, r.chapter) for r in read_story(run)] == [
        (1, {"attempt": 0}),
        (2, {"attempt": 1}),
    ]
    assert [item.key for item in run.objects("story/")] == [
        "story/000001-0f9e8d7c.json",
        "story/000002-0f9e8d7c.json",
    ]


def test_another_trainrun_of_the_same_folder_tells_a_story_of_its_own(bench: Bench) -> None:
    write_story(bench.run, a_record(1, attempt=0))
    write_story(bench.run, a_record(1, uid="other", attempt=3))
    assert sorted(r.chapter["attempt"] for r in read_story(bench.run)) == [0, 3]


def test_a_chapter_that_cannot_be_read_costs_only_itself(bench: Bench) -> None:
    write_story(bench.run, a_record(1, attempt=0))
    bench.run.store.put("digits/story/000002-abc.json", b'{"number": 2}')
    bench.run.store.put("digits/story/notes.txt", b"x")
    assert [r.number for r in read_story(bench.run)] == [1]
    assert read_attempts(bench.run) == []
