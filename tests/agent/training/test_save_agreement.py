"""Four ranks agree on the call of `should_save()` that is answered with yes, whatever the timing.

The ranks are real processes with the real library; the workers' votes are the agent's real objects
on real sockets and control files; the counting is the operator's. Only messages between agents and
operator are played, with random delays and two operators that hear at different times.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from trainrun.agent.training.ipc import IpcServer
from trainrun.agent.training.vote import Voter
from trainrun.contract.agent_state import SaveVote
from trainrun.contract.answer import SaveOrder
from trainrun.contract.local_files import CallGate
from trainrun.contract.questions import AskSave, Decided, Request
from trainrun_operator.core.run.stages.preempting import coordinate

RANKS = 4
ROUNDS = int(os.environ.get("ROUNDS", "200"))
"""Each run plays others; `make nightly` plays 1,000."""
GANGS = 4
"""Play at the same time: what a round costs is mostly waiting."""
PATIENCE = 20.0
"""Seconds in which some rank makes a call, or the round counts as a deadlock. After refusals a save
is asked for up to 4,096 calls ahead, which take minutes on a busy machine."""
MOST_CALLS = 100_000
"""More in a round, and they never agree."""


class Hub:
    """Where the ranks meet: answers each tag with everybody's values once all have come."""

    def __init__(self) -> None:
        self.met: dict[str, list[int]] = {}
        self._values: dict[str, list[int]] = defaultdict(list)
        self._writers: dict[str, list[asyncio.StreamWriter]] = defaultdict(list)
        self._changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            tag, value = json.loads(line)
            self._values[tag].append(value)
            self._writers[tag].append(writer)
            if len(self._values[tag]) == RANKS:
                await self._answer(tag)
        writer.close()

    async def wait(self, tag: str) -> list[int]:
        async with self._changed:
            await self._changed.wait_for(lambda: tag in self.met)
            return self.met[tag]

    async def _answer(self, tag: str) -> None:
        values, writers = self._values.pop(tag), self._writers.pop(tag)
        for writer in writers:
            writer.write(json.dumps(values).encode() + b"\n")
        if not tag.startswith("step"):
            async with self._changed:
                self.met[tag] = values
                self._changed.notify_all()


class PlayedWorker:
    """One worker's agent, as far as saving goes."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.control = folder / f"control-{rank}"
        self.socket = folder / f"{rank}.sock"
        self.voter = Voter(
            files={rank: CallGate(self.control)}, living=lambda: (rank,), news=lambda: None
        )

        async def answer(rank: int, request: Request) -> Decided:
            assert isinstance(request, AskSave)
            return Decided(save=await self.voter.ask(rank, request.call))

        self.server = IpcServer(self.socket, (rank,), statement=lambda *_: None, request=answer)

    def close(self) -> None:
        self.server.close()
        self.voter.close()


async def converse(
    worker: PlayedWorker, index: int, operators: list[list[SaveVote | None]], chance: random.Random
) -> None:
    """Heartbeats of one worker, each to one of two operators, with delays both ways."""
    while True:
        votes = chance.choice(operators)
        vote = worker.voter.vote
        await asyncio.sleep(chance.uniform(0, 0.002))
        votes[index] = vote
        stage = coordinate(votes)
        await asyncio.sleep(chance.uniform(0, 0.002))
        if stage is not None:
            worker.voter.apply(
                SaveOrder(stage=stage.stage, call=stage.call, reason="SIGTERM", writer_rank=0)
            )


async def play(
    number: int, folder: Path, ranks: list[asyncio.subprocess.Process], hub: Hub, seed: int
) -> list[int]:
    """One round; returns the calls at which the ranks saved."""
    chance = random.Random(seed)
    workers = [PlayedWorker(folder, rank) for rank in range(RANKS)]
    in_step = chance.random() < 0.5
    for worker, rank in zip(workers, ranks, strict=True):
        assert rank.stdin is not None
        line = f"{number} {worker.socket} {worker.control} {int(in_step)}\n"
        rank.stdin.write(line.encode())
    await asyncio.sleep(chance.uniform(0, 0.02))
    operators: list[list[SaveVote | None]] = [[None] * RANKS, [None] * RANKS]
    talks = [
        asyncio.create_task(converse(worker, index, operators, chance))
        for index, worker in enumerate(workers)
    ]
    try:
        ended = asyncio.ensure_future(hub.wait(f"end {number}"))
        votes: list[SaveVote] = []
        while not ended.done():
            before, votes = votes, [worker.voter.vote for worker in workers]
            assert votes != before, f"round {number} hangs: {votes}"
            assert all(vote.calls < MOST_CALLS for vote in votes), f"round {number}: {votes}"
            await asyncio.wait([ended, *talks], timeout=PATIENCE, return_when="FIRST_COMPLETED")
            for talk in talks:
                if talk.done():
                    talk.result()
        return ended.result()
    finally:
        for talk in talks:
            talk.cancel()
        for worker in workers:
            worker.close()


async def play_all(folder: Path, seeds: range) -> None:
    """Rounds of one gang, one after the other."""
    folder.mkdir()
    hub = Hub()
    path = folder / "hub.sock"
    server = await asyncio.start_unix_server(hub.serve, path)
    script = Path(__file__).with_name("saving_rank.py")
    ranks = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(script), str(rank), str(path), stdin=asyncio.subprocess.PIPE
        )
        for rank in range(RANKS)
    ]
    try:
        for number, seed in enumerate(seeds):
            calls = await play(number, folder, ranks, hub, seed)
            assert len(set(calls)) == 1, f"seed {seed}: ranks saved at calls {calls}"
    finally:
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.close()
            if rank.returncode is None:
                rank.kill()
            await rank.wait()
        server.close()


@pytest.mark.slow
async def test_a_notice_at_any_moment_makes_all_ranks_save_at_the_same_call(
    tmp_path: Path,
) -> None:
    first = int(os.environ.get("TRAINRUN_SEED", random.randrange(2**31)))
    print(f"TRAINRUN_SEED={first}")
    rounds = ROUNDS // GANGS
    await asyncio.gather(
        *(
            play_all(
                tmp_path / str(gang), range(first + gang * rounds, first + (gang + 1) * rounds)
            )
            for gang in range(GANGS)
        )
    )
