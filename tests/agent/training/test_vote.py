"""One worker's vote on a save, order by order."""

from __future__ import annotations

import asyncio
import fcntl
from typing import TYPE_CHECKING, Literal

from trainrun.agent.training.vote import Voter
from trainrun.contract.answer import SaveOrder
from trainrun.contract.local_files import CallCounter, CallGate

if TYPE_CHECKING:
    from pathlib import Path


Stage = Literal["Prepare", "Commit", "Abort"]


class OneRank:
    """A vote of one rank, and the process's end of its control file."""

    def __init__(self, folder: Path) -> None:
        path = folder / "control"
        self.news = 0
        self.voter = Voter(files={0: CallGate(path)}, living=lambda: (0,), news=self._count)
        self.process = CallCounter(path)

    def _count(self) -> None:
        self.news += 1

    def order(self, stage: Stage, call: int) -> None:
        self.voter.apply(SaveOrder(stage=stage, call=call, reason="SIGTERM", deadline=9.0))

    def calls(self, count: int) -> list[bool]:
        """Which of the next calls of should_save() take the slow path."""
        return [self.process.count_call()[1] for _ in range(count)]


async def test_a_prepared_call_stops_the_rank_there_and_not_before(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    assert rank.calls(2) == [False, False]
    rank.order("Prepare", 4)
    assert rank.voter.vote.prepared == 4
    assert rank.news == 1
    assert rank.calls(3) == [False, True, True]
    assert rank.voter.vote.calls == 5


async def test_after_a_commit_that_call_and_every_later_one_is_yes(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    rank.order("Prepare", 1)
    waiting = asyncio.create_task(rank.voter.ask(0, 1))
    await asyncio.sleep(0)
    rank.order("Commit", 1)
    reply = await waiting
    assert reply is not None
    assert (reply.reason, reply.writer_rank) == ("SIGTERM", 0)
    assert await rank.voter.ask(0, 2) is not None
    assert rank.voter.saved == {0}
    assert rank.voter.vote.committed == 1


async def test_after_an_abort_waiting_calls_go_on_with_no(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    rank.order("Prepare", 1)
    waiting = asyncio.create_task(rank.voter.ask(0, 1))
    await asyncio.sleep(0)
    rank.order("Abort", 1)
    assert await waiting is None
    assert rank.calls(1) == [False]
    assert rank.voter.saved == set()


async def test_an_aborted_call_is_never_prepared_again(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    rank.order("Prepare", 5)
    rank.order("Abort", 5)
    rank.order("Prepare", 5)
    assert rank.voter.vote.prepared is None
    rank.order("Prepare", 6)
    assert rank.voter.vote.prepared == 6


async def test_a_passed_call_is_refused_once(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    rank.calls(3)
    for _ in range(2):
        rank.order("Prepare", 3)
    vote = rank.voter.vote
    assert (vote.prepared, vote.refused, vote.refusals) == (None, 3, 1)
    assert rank.calls(1) == [False]


async def test_a_prepared_call_binds_against_other_operators(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    rank.order("Prepare", 5)
    rank.order("Prepare", 9)
    assert (rank.voter.vote.prepared, rank.voter.vote.refused) == (5, 0)
    rank.order("Prepare", 4)
    assert (rank.voter.vote.prepared, rank.voter.vote.refused) == (5, 4)


async def test_a_commit_of_a_call_that_was_not_prepared_is_ignored(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    rank.order("Commit", 5)
    assert rank.voter.vote.committed is None


async def test_when_all_ranks_have_exited_the_vote_stays_as_it_is(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    rank.calls(10)
    rank.voter.living = tuple
    before = rank.voter.vote
    assert before.calls == 10
    stages: tuple[Stage, ...] = ("Prepare", "Commit", "Abort")
    for stage in stages:
        rank.order(stage, 12)
    assert rank.voter.vote == before
    rank.voter.close()
    assert rank.voter.vote == before


async def test_a_call_that_a_rank_has_passed_before_it_exited_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    files = {rank: CallGate(path) for rank, path in enumerate(paths)}
    voter = Voter(files=files, living=lambda: (1,), news=lambda: None)
    for _ in range(3):
        CallCounter(paths[0]).count_call()
    voter.apply(SaveOrder(stage="Prepare", call=3, reason="SIGTERM"))
    assert (voter.vote.prepared, voter.vote.refused) == (None, 3)
    voter.apply(SaveOrder(stage="Prepare", call=4, reason="SIGTERM"))
    assert voter.vote.prepared == 4


async def test_a_rank_stopped_inside_its_lock_does_not_stop_the_agent(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    with (tmp_path / "control").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rank.order("Prepare", 4)
        assert rank.news == 0
    for _ in range(1000):
        if rank.news:
            break
        await asyncio.sleep(0.001)
    assert rank.voter.vote.prepared == 4


async def test_of_two_ranks_none_is_stopped_when_one_has_passed(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    voter = Voter(
        files={rank: CallGate(path) for rank, path in enumerate(paths)},
        living=lambda: (0, 1),
        news=lambda: None,
    )
    ends = [CallCounter(path) for path in paths]
    for _ in range(5):
        ends[1].count_call()
    voter.apply(SaveOrder(stage="Prepare", call=5))
    assert voter.vote.refused == 5
    assert [ends[0].count_call()[1] for _ in range(6)] == [False] * 6
    assert voter.vote.calls == 6


async def test_a_call_that_is_not_prepared_is_answered_with_no(tmp_path: Path) -> None:
    rank = OneRank(tmp_path)
    assert await rank.voter.ask(0, 1) is None
