"""What agents do about each other's checkpoints while the operator is away: they ask the store."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers, start
from trainrun.agent import worker_supervisor
from trainrun.agent.agent import Agent
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.agent.processes.environment import Folders
from trainrun.agent.processes.output import Sink
from trainrun.checkpoint.ownership import BeatWatch
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.answer import Answer, Hold, ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.messages import Report

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.operator_stand_in import OperatorStandIn


def agent(workers: Workers, slot: int, **more: object) -> Agent:
    """An agent inside the test, whose one process could not be started, and who hears nothing."""
    config = workers.config("", slot=slot, command=("no-such-program",), **more)
    folders = Folders(config.directory)
    folders.prepare()
    made = Agent(
        config=config,
        storage=AsyncRunStore(config),
        folders=folders,
        sink=Sink(os.open(os.devnull, os.O_WRONLY)),
        done=asyncio.get_running_loop().create_future(),
    )
    made.apply(Answer(order=start(workers=2)))
    return made


def report(made: Agent, step: int, *, files: bool) -> None:
    attempt = made.supervisor.attempt
    assert attempt is not None
    rank = made.config.slot
    name = f"step-{step:012d}" if files else None
    if name is not None:
        folder = made.folders.staging(1) / f"rank-{rank}" / name
        folder.mkdir()
        (folder / "model.bin").write_bytes(b"abc")
    attempt.receive(rank, Report(step=step, metrics={}, files=name, whole=False))


def close(made: Agent) -> None:
    assert made.supervisor.attempt is not None
    made.supervisor.attempt.close()
    made.supervisor.ownership.stop()
    made.sharing.close()
    made.storage.close()


async def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within 10 s")


@pytest.mark.case("operator", "`trainrun run` is stopped (Ctrl-Z, SIGSTOP)")
async def test_workers_find_open_steps_and_slot_0_finds_done_markers_in_the_store(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    workers.storage.mkdir()
    lead, other = agent(workers, 0), agent(workers, 1)
    assert lead.supervisor.attempt is not None
    assert other.supervisor.attempt is not None
    report(lead, 7, files=True)
    report(other, 7, files=False)
    report(other, 8, files=False)
    uploads = lead.supervisor.attempt.uploads

    def committed() -> CheckpointId | None:
        return uploads.committed.id if uploads.committed is not None else None

    staging = lead.supervisor.attempt.staged
    await until(lambda: not staging.pending())
    await other._ask_store()
    theirs = other.supervisor.attempt.staged
    await until(lambda: any(step.uploaded for step in theirs.describe(0.0)))
    assert committed() is None
    await lead._ask_store()
    await until(committed)
    assert committed() == CheckpointId(attempt=1, step=7)
    close(lead)
    close(other)


def test_a_worker_that_was_cut_off_trains_on_and_what_it_commits_too_late_is_never_used(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        "import os, time, trainrun\n"
        "def save(step):\n"
        "    d = trainrun.staging_directory(); (d / 'x').write_bytes(b'1')\n"
        "    trainrun.report(step=step, checkpoint=d)\n"
        "save(1)\n"
        "while not os.path.exists('go'): time.sleep(.01)\n"
        "save(2); save(3)\n"
        "time.sleep(600)"
    )
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    operator.until(lambda s: s.committed)
    operator.status = 503
    run = RunStore(open_store(f"file://{workers.storage}"), "run")

    def claim(attempt: int) -> CheckpointId | None:
        found = resolve(run, ResolveRequest(attempt=attempt), uid="uid-1", watch=BeatWatch())
        assert found.outcome == "Resolved", found.message
        return found.resume

    assert claim(2) == CheckpointId(attempt=1, step=1)  # another worker has its place now
    (workers.folder / "go").touch()
    worker.shows("-attempt-1 is never used: attempt 2 in ")
    assert claim(3) == CheckpointId(attempt=1, step=1)
    assert worker.process.poll() is None


@pytest.mark.slow
async def test_a_store_that_hangs_does_not_keep_an_agent_beyond_its_grace(
    operator: OperatorStandIn, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.storage.mkdir()
    made = agent(workers, 0, grace_seconds=3.0)
    asked, never = asyncio.Event(), asyncio.Event()

    async def open_steps(*_: object) -> None:
        asked.set()
        await never.wait()

    monkeypatch.setattr(AsyncRunStore, "open_steps", open_steps)
    monkeypatch.setattr(Uploads, "unfinished", lambda *_, **__: True)
    # Other tests' helpers are none of its own.
    monkeypatch.setattr(worker_supervisor, "children_of", lambda _pid: [])
    made.heartbeat.last_answer = float("-inf")
    made.start()
    operator.status = 503
    await asyncio.wait_for(asked.wait(), 10)
    made.terminated()
    assert await asyncio.wait_for(made.done, 15) == 143
    close(made)
