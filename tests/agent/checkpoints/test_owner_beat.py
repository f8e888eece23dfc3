"""Who has the storage now, told by whoever has lost it."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.agent.on_disk import a_config
from trainrun.agent.checkpoints.resolving import Ownership, Resolving
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint import ownership
from trainrun.checkpoint.records import OwnerRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract import layout
from trainrun.contract.agent_state import Problem
from trainrun.contract.answer import ResolveRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def told_after(tmp_path: Path, what: Callable[[], object]) -> Problem:
    """What the owner of a storage says after this has happened to it."""
    config = a_config(tmp_path)
    storage = AsyncRunStore(config)
    assert (await storage.resolve(ResolveRequest(attempt=1))).outcome == "Resolved"
    what()
    told = asyncio.Event()
    owner = Ownership(storage=storage, committed=lambda: None, news=told.set)
    owner.keep()
    await asyncio.wait_for(told.wait(), 20)
    owner.stop()
    storage.close()
    assert owner.problem is not None
    return owner.problem


async def test_a_folder_that_was_deleted_is_not_called_taken_over(tmp_path: Path) -> None:
    problem = await told_after(tmp_path, lambda: shutil.rmtree(tmp_path / "storage" / "run"))
    assert (problem.type, problem.reason) == ("StorageLost", "ClaimGone")
    assert problem.message.startswith(
        "the owner record of this run's storage is gone: the folder was deleted"
    )


async def test_a_takeover_names_who_has_the_storage_now(tmp_path: Path) -> None:
    run = RunStore(open_store(f"file://{tmp_path}/storage"), "run")
    claim = OwnerRecord(number=2, uid="uid-2")
    problem = await told_after(tmp_path, lambda: run.write_once(layout.owner_key(2), claim))
    assert (problem.type, problem.reason) == ("StorageLost", "TakenOver")
    assert problem.message.startswith(
        "this run has lost or released its storage, which TrainRun uid uid-2 claimed last"
    )


@pytest.mark.case("operator", "A node with a whole gang is cut off from the operators alone")
async def test_an_agent_that_looks_tells_of_the_beat_and_claims_once_it_is_asked_to(
    tmp_path: Path,
) -> None:
    """And a claim that is asked for while it still looks is not put off for that."""
    run = RunStore(open_store(f"file://{tmp_path}/storage"), "run")
    storage = AsyncRunStore(a_config(tmp_path))
    assert (await storage.resolve(ResolveRequest(attempt=1))).outcome == "Resolved"
    storage.close()
    told = asyncio.Event()
    looks = AsyncRunStore(a_config(tmp_path))
    resolving = Resolving(storage=looks, news=told.set, resolved=lambda: None)

    async def seen(owner: str) -> None:
        while (found := resolving.resolution(0.0)) is None or found.owner != owner:
            told.clear()
            await asyncio.wait_for(told.wait(), 20)

    resolving.want(ResolveRequest(attempt=2, look=True))
    await seen("Unknown")
    ownership.beat(run, uid="uid-1", counter=7)
    await seen("Moves")
    assert run.attempts() == [1]
    resolving.want(ResolveRequest(attempt=3, look=True))
    await asyncio.wait_for(told.wait(), 20)
    resolving.want(ResolveRequest(attempt=3))
    while resolving.claimed != 3:
        told.clear()
        await asyncio.wait_for(told.wait(), 20)
    looks.close()
