"""Random lives of a run's folder: commits, stragglers, damage, retention, restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.support.checkpoints import Bench, checkpoint_id
from tests.support.levels import examples
from tests.support.memory_store import MemoryStore
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.writer import commit_if_complete

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId


class LivesOfAStore(RuleBasedStateMachine):
    """Remembers what was committed and harmed, and holds every resume point against that."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.begin()

    def make_store(self) -> MemoryStore:
        return MemoryStore()

    def begin(self) -> None:
        self.store = self.make_store()
        self.bench = Bench(run=RunStore(self.store, "run"), scratch=Path(self.scratch.name))
        self.started: dict[int, CheckpointId | None] = {}
        self.committed: set[CheckpointId] = set()
        self.harmed: set[CheckpointId] = set()
        self.step = 0
        self.attempt = 0
        self.restart()

    def teardown(self) -> None:
        self.scratch.cleanup()

    def part(self, attempt: int, worker: int) -> None:
        self.bench.part(
            attempt=attempt,
            step=self.step,
            worker=worker,
            workers=2,
            files={worker: {f"rank-{worker}": f"{attempt} {self.step}".encode(), "same": b"x"}},
        )

    def is_fenced(self, checkpoint: CheckpointId) -> bool:
        """By an attempt later than its own, and than the last that was started from it."""
        used = max((it for it, start in self.started.items() if start == checkpoint), default=0)
        last = max(checkpoint.attempt, used)
        later = [start for number, start in self.started.items() if number > last]
        return any(start is None or start < checkpoint for start in later)

    def good(self) -> set[CheckpointId]:
        there = {key for key, folder in self.bench.run.folders().items() if folder.has_manifest}
        fine = (self.committed & there) - self.harmed
        return {key for key in fine if not self.is_fenced(key)}

    @rule(age=st.sampled_from([0, 0, 0, 1, 2]))
    def commit(self, age: int) -> None:
        """By the running attempt, or late by an agent of a lower one."""
        attempt = max(1, self.attempt - age)
        self.step += 1
        for worker in range(2):
            self.part(attempt, worker)
        self.commit_step(attempt)

    def commit_step(self, attempt: int) -> None:
        assert commit_if_complete(self.bench.run, attempt=attempt, step=self.step) is not None
        self.committed.add(checkpoint_id(attempt, self.step))

    @rule(workers=st.sets(st.integers(0, 1)))
    def die_while_uploading(self, workers: set[int]) -> None:
        """Some parts arrive, the manifest is not written."""
        self.step += 1
        for worker in workers:
            self.part(self.attempt, worker)

    @precondition(lambda self: self.committed)
    @rule(data=st.data(), harm=st.sampled_from(["remove", "truncate", "empty manifest"]))
    def harm(self, data: st.DataObject, harm: str) -> None:
        there = sorted(self.committed & set(self.bench.run.folders()))
        if not there:
            return
        checkpoint = data.draw(st.sampled_from(there))
        prefix = f"run/checkpoints/{checkpoint.name}/"
        if f"{prefix}manifest.json" not in self.store.objects:
            return
        self.harmed.add(checkpoint)
        if harm == "empty manifest":
            self.store.objects[f"{prefix}manifest.json"] = b""
        elif harm == "truncate":
            key = f"{prefix}worker-00001/rank-1"
            self.store.objects[key] = self.store.objects.get(key, b"")[:1]
        else:
            self.store.objects.pop(f"{prefix}worker-00000/same", None)

    @rule(keep=st.integers(2, 3), stale=st.booleans())
    def delete_old_ones(self, keep: int, stale: bool) -> None:
        before = sorted(self.good(), reverse=True)
        retain(self.bench.run, attempt=self.attempt - stale, keep=keep)
        after = self.good()
        assert set(before[:keep]) <= after

    @rule(reported=st.booleans())
    def restart(self, reported: bool = False) -> None:
        """The next attempt: what it is started from is held against all that we know."""
        good = self.good()
        known = {key for key in self.committed if not self.is_fenced(key)}
        newest = max(known, default=None) if reported else None
        answer = self.bench.resolve(self.attempt + 1, committed=newest)
        if answer.outcome == "NoGoodCheckpoint":
            assert not good
            assert known
            assert "starting from scratch would lose" in answer.message
            self.begin()  # that run has ended
            return
        assert answer.outcome == "Resolved", answer
        resume = answer.resume
        if resume is None:
            assert not known
        else:
            folder = self.bench.run.folder(resume)
            assert folder.has_manifest
            assert resume not in self.harmed
            assert not self.is_fenced(resume)
            assert resume >= max(good, default=resume)
            self.committed.add(resume)  # completed from its markers just now, perhaps
        self.attempt += 1
        self.started[self.attempt] = resume


TestLivesOfAStore = LivesOfAStore.TestCase
TestLivesOfAStore.settings = settings(
    max_examples=examples(150), stateful_step_count=25, deadline=None
)
