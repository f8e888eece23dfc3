"""Stores whose listings show late what was written, as some S3-compatible ones do.

Reading an object by its name shows what is there. Listings are late by a bounded number of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.checkpoint.test_lives_of_a_store import LivesOfAStore
from tests.support.checkpoints import Bench, checkpoint_id
from tests.support.levels import examples
from tests.support.memory_store import MemoryStore
from trainrun.checkpoint.choice import listed_damage
from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.writer import commit_if_complete, set_aside

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun.contract.checkpoint_id import CheckpointId

LATE = 12
"""Listings after which an object is shown, at the latest."""


class LateStore(MemoryStore):
    """Each object is shown after a number of listings that follows from its name."""

    def __init__(self) -> None:
        super().__init__()
        self.late = True
        self._listings = 0
        self._seen_first: dict[str, int] = {}

    def list(self, prefix: str) -> list[ObjectInfo]:
        self._listings += 1
        return [item for item in super().list(prefix) if not self.late or self._shows(item.key)]

    def _shows(self, key: str) -> bool:
        first = self._seen_first.setdefault(key, self._listings)
        return self._listings - first >= hash_of(key) % LATE


def hash_of(text: str) -> int:
    return sum(text.encode()) * 7919


class LivesOfALateStore(LivesOfAStore):
    """No bad resume point, and nothing good is set aside."""

    store: LateStore

    def make_store(self) -> MemoryStore:
        return LateStore()

    def good(self) -> set[CheckpointId]:
        self.store.late = False
        try:
            return super().good()
        finally:
            self.store.late = True

    def commit_step(self, attempt: int) -> None:
        for _ in range(LATE):  # its agent asks again and again
            if commit_if_complete(self.bench.run, attempt=attempt, step=self.step) is not None:
                self.committed.add(checkpoint_id(attempt, self.step))
                return

    @rule(keep=st.integers(2, 3), stale=st.booleans())
    def delete_old_ones(self, keep: int, stale: bool) -> None:
        super().delete_old_ones(keep, stale)

    @rule(reported=st.booleans())
    def restart(self, reported: bool = True) -> None:
        good = self.good()
        known = {key for key in self.committed if not self.is_fenced(key)}
        newest = max(known, default=None) if reported else None
        for _ in range(LATE):
            answer = self.bench.resolve(self.attempt + 1, committed=newest)
            if answer.outcome != "Unavailable":
                break
        if answer.outcome == "Behind":  # by one claim more, of what came between look and claim
            taken = self.bench.run.resumes([answer.highest_attempt])[answer.highest_attempt]
            assert taken is not None
            assert taken not in self.harmed
            assert not self.is_fenced(taken)
            self.attempt = answer.highest_attempt - 1
            self.started |= {self.attempt: None, answer.highest_attempt: taken}
            return
        self.store.late = False
        bad = self.bench.run.bad()
        self.store.late = True
        assert bad <= self.harmed
        if answer.outcome == "NoGoodCheckpoint":
            assert not good
            self.begin()
            return
        assert answer.outcome == "Resolved", answer
        resume = answer.resume
        assert resume is None or resume not in self.harmed
        assert resume is None or not self.is_fenced(resume)
        if newest is not None and newest in good:
            assert resume is not None
            assert resume >= newest
        self.attempt += 1
        self.started[self.attempt] = resume
        if resume is not None:
            self.committed.add(resume)


TestLivesOfALateStore = LivesOfALateStore.TestCase
TestLivesOfALateStore.settings = settings(
    max_examples=examples(150), stateful_step_count=25, deadline=None
)


def late_run(tmp_path: Path) -> tuple[Bench, Hidden]:
    store = Hidden()
    return Bench(run=RunStore(store, "run"), scratch=tmp_path), store


class Hidden(MemoryStore):
    """Its listings do not show keys with these words yet."""

    def __init__(self) -> None:
        super().__init__()
        self.words: tuple[str, ...] = ()

    def list(self, prefix: str) -> list[ObjectInfo]:
        found = super().list(prefix)
        return [item for item in found if not any(word in item.key for word in self.words)]


def test_a_checkpoint_whose_file_is_not_listed_yet_is_resumed_and_not_given_up(
    tmp_path: Path,
) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.commit(step=10)
    store.words = ("worker-00001/",)
    for _ in range(2):
        assert bench.resolve(2).resume == checkpoint_id(1, 10)
    assert bench.run.bad() == set()
    assert listed_damage(bench.run, checkpoint_id(1, 10)) == ""
    (info,) = list_checkpoints(bench.run)
    assert (info.state, info.reason) == ("good", "")


def test_a_checkpoint_is_committed_although_its_files_are_not_listed_yet(tmp_path: Path) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    store.words = ("worker-00001/",)
    bench.commit(step=10)
    assert bench.resolve(2).resume == checkpoint_id(1, 10)


def test_a_checkpoint_that_was_left_behind_is_not_used_where_its_fence_is_not_listed_yet(
    tmp_path: Path,
) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.resolve(2)
    bench.commit(step=10)  # by a worker of attempt 1 that comes back
    store.words = ("attempts/000002",)
    answer = bench.resolve(3)
    assert answer.outcome == "Unavailable"
    store.words = ()
    assert bench.resolve(3).resume is None


def test_a_checkpoint_that_was_set_aside_is_not_used_where_that_is_not_listed_yet(
    tmp_path: Path,
) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.commit(step=10)
    bench.commit(step=20)
    set_aside(bench.run, checkpoint_id(1, 20), "two nodes read it wrongly")
    store.words = ("/bad/",)
    assert bench.resolve(2).resume == checkpoint_id(1, 10)


@pytest.mark.parametrize("late", [("20-attempt-1/manifest.json",), ("manifest.json", "/bad/")])
def test_a_commit_that_was_set_aside_is_not_completed_again_where_its_manifest_is_not_listed_yet(
    tmp_path: Path, late: tuple[str, ...]
) -> None:
    """The next attempt resumed from what two nodes had read wrongly, and the list said `bad`."""
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.commit(step=10)
    bad = bench.commit(step=20).id
    set_aside(bench.run, bad, "two nodes read it wrongly")
    store.words = late
    answer = bench.resolve(2, committed=bad)
    assert answer.resume == checkpoint_id(1, 10)
    assert answer.set_aside == (f"{bad.name}: two nodes read it wrongly",)


@pytest.mark.case("storage", "The store lists late what was written")
def test_a_run_does_not_start_from_nothing_where_nothing_is_listed_of_a_commit_but_its_markers(
    tmp_path: Path,
) -> None:
    """It was set aside, so it is not asked for; that it was there still counts."""
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    only = bench.commit(step=10).id
    set_aside(bench.run, only, "two nodes read it wrongly")
    store.words = ("manifest.json", "/bad/")
    for attempt, committed in ((2, None), (2, only)):
        answer = bench.resolve(attempt, committed=committed)
        assert answer.outcome == "NoGoodCheckpoint"
        assert f"; {only.name}: two nodes read it wrongly. Restore" in answer.message
        assert answer.message.count(only.name) == 1


def test_the_only_commit_is_waited_for_while_it_is_known_and_not_listed(tmp_path: Path) -> None:
    """The run failed a minute later, NoGoodCheckpoint, and the checkpoint was there and whole."""
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    only = bench.commit(step=10).id
    store.words = (only.name,)
    answer = bench.resolve(2, committed=only)
    assert (answer.outcome, answer.message) == (
        "Unavailable",
        f"memory://store/run/checkpoints/{only.name}/manifest.json exists but the listing does not "
        "show it: the store's listing is incomplete",
    )
    store.words = ()
    assert bench.resolve(2, committed=only).resume == only


def test_the_only_commit_is_waited_for_where_another_attempt_was_started_from_it(
    tmp_path: Path,
) -> None:
    """Nobody reports it: another TrainRun has taken the storage over, say."""
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    only = bench.commit(step=10).id
    bench.resolve(2)
    store.words = (only.name,)
    assert bench.resolve(3).outcome == "Unavailable"
    store.words = ()
    assert bench.resolve(3).resume == only


def test_the_only_commit_is_not_waited_for_once_it_has_been_set_aside(tmp_path: Path) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    only = bench.commit(step=10).id
    set_aside(bench.run, only, "two nodes read it wrongly")
    store.words = (only.name,)
    assert bench.resolve(2, committed=only).outcome == "NoGoodCheckpoint"


def test_a_listed_commit_is_resumed_although_no_marker_of_its_parts_is_listed_yet(
    tmp_path: Path,
) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.commit(step=10)
    store.words = (".done.json",)
    assert bench.resolve(2).resume == checkpoint_id(1, 10)


def test_a_commit_is_completed_from_its_markers_where_only_its_manifest_is_not_listed_yet(
    tmp_path: Path,
) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.commit(step=10)
    store.words = ("manifest.json",)
    assert bench.resolve(2, committed=checkpoint_id(1, 10)).resume == checkpoint_id(1, 10)
