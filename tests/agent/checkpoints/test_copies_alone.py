"""One side of the copies between nodes alone: a serving agent, and a buddy, without processes."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.on_disk import a_config
from tests.agent.workers import start
from tests.support.certificates import TestAuthority
from tests.support.mounts import mounted
from trainrun._common.tree import write_all
from trainrun.agent import background
from trainrun.agent.checkpoints.buddy import Buddy
from trainrun.agent.checkpoints.sharing import Sharing
from trainrun.agent.checkpoints.staged import Step
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.contract.answer import Answer, PartHolder, PeerSource
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.wire import STAGED_PATH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

NAME = "uid.workers.trainrun"
SIZE = 30_000_000


class Nodes:
    """The agent of slot 1 serves what it has staged of some steps; slot 0 is its buddy."""

    def __init__(self, folder: Path) -> None:
        self.folder, authority = folder, TestAuthority()
        self.certificate = authority.node_certificate(NAME)
        self.tls = ssl.create_default_context(cadata=authority.pem)
        self.parts: dict[CheckpointId, Step] = {}
        self.crashes: list[int] = []
        background.crash_on_errors(asyncio.get_running_loop(), self.crashes.append)
        self.storage = AsyncRunStore(a_config(folder))
        self.sharing = Sharing(self.storage.downloads, "Secret", self.parts.get)
        self.sharing.open_tls("127.0.0.1", self.certificate)
        self.buddy = Buddy(
            folder=folder / "copies", storage=self.storage, tls=self.tls, news=lambda: None
        )
        self.buddy.certificate = self.certificate

    def stage(self, step: int, *, size: int = 1000) -> None:
        top = self.folder / f"staged-{step}"
        top.mkdir()
        (top / "model.bin").write_bytes(bytes(size))
        self.parts[CheckpointId(attempt=1, step=step)] = Step(step=step, first=0.0, files={1: top})

    def follow(self, *, copy: int, copied: int = -1, port: str = "") -> None:
        address = f"127.0.0.1:{port}" if port else self.sharing.tls_address
        source = PeerSource(address=address, secret="Secret")
        order = replace(start(workers=2), partners=(PartHolder(slot=1, source=source),))
        self.buddy.follow(Answer(order=order, copy=copy, copied=copied))

    async def get(self, rest: str, *, read: int = -1) -> bytes:
        """The beginning of an answer, over a connection that is closed then."""
        host, _, port = self.sharing.tls_address.rpartition(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=self.tls, server_hostname=NAME
        )
        path = f"{STAGED_PATH}{rest}"
        writer.write(f"GET {path} HTTP/1.1\r\nAuthorization: Bearer Secret\r\n\r\n".encode())
        found = await reader.readexactly(read) if read > 0 else await reader.readline()
        writer.transport.abort()
        return found

    def complete(self) -> list[int]:
        return [copy.step for copy in self.buddy.describe() if copy.complete]


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.buddy.clear()
    made.sharing.close()
    made.storage.close()


async def until(condition: Callable[[], object]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.02)

    await asyncio.wait_for(wait(), 60)


def tasks(name: str) -> int:
    """How many tasks run a method of this name."""
    return sum(f" coro=<Buddy.{name}() " in repr(task) for task in asyncio.all_tasks())


@pytest.mark.slow
async def test_an_agent_serves_on_after_a_client_has_left_in_the_middle_of_a_file(
    nodes: Nodes,
) -> None:
    nodes.stage(2, size=SIZE)
    [checkpoint] = nodes.parts
    for _ in range(3):
        assert await nodes.get(f"{checkpoint.name}/1/model.bin", read=100_000)
    nodes.follow(copy=2)
    await until(lambda: nodes.complete() == [2])
    assert nodes.crashes == []


async def test_a_rank_that_is_no_number_has_nothing_staged(nodes: Nodes) -> None:
    nodes.stage(2)
    [checkpoint] = nodes.parts
    for rank in ("%C2%B2", "9" * 5000, "01"):
        assert b" 404 " in await nodes.get(f"{checkpoint.name}/{rank}/model.bin")
    assert nodes.crashes == []


async def test_a_certificate_that_cannot_be_loaded_is_told_and_ends_nothing(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(AsyncRunStore(a_config(nodes.folder))) as storage:
        sharing = Sharing(storage.downloads, "Secret")
        sharing.open_tls("127.0.0.1", replace(nodes.certificate, key="torn"))
        assert sharing.tls_address == ""
        assert "cannot use the certificate for copies between nodes: " in caplog.text
        sharing.open_tls("127.0.0.1", nodes.certificate)
        assert sharing.tls_address
        sharing.close()


@pytest.mark.slow
async def test_a_forgotten_copy_of_an_unreachable_partner_ends_and_tells_nothing(
    nodes: Nodes,
) -> None:
    nodes.follow(copy=2, port="1")
    await until(lambda: nodes.buddy.problems)
    [problem] = nodes.buddy.problems
    assert (problem.type, problem.reason) == ("NoBuddy", "NotCopied")
    assert problem.message == (
        "worker run-0-1 has no copy of what worker 1 has staged: Connection refused. Let workers "
        "of the run reach each other at all ports"
    )
    assert tasks("_copy") == 1
    nodes.buddy.clear()
    await until(lambda: not tasks("_copy"))
    assert nodes.buddy.problems == ()


async def test_an_upload_of_a_copy_ends_when_the_time_for_uploads_is_over(nodes: Nodes) -> None:
    nodes.stage(2)
    nodes.follow(copy=2)
    await until(lambda: nodes.complete() == [2])
    nodes.buddy.upload([2], [1])  # the folder of the storage is not there
    await until(lambda: nodes.buddy.problems)
    assert tasks("_upload") == 1
    nodes.buddy.give_up()
    await until(lambda: not tasks("_upload"))
    assert nodes.buddy.owes([2], [1])
    (nodes.folder / "storage").mkdir()
    nodes.buddy.upload([2], [1])
    await until(lambda: nodes.buddy.describe()[0].uploaded)
    assert nodes.buddy.problems == ()


async def test_a_forgotten_upload_ends(nodes: Nodes) -> None:
    nodes.stage(2)
    nodes.follow(copy=2)
    await until(lambda: nodes.complete() == [2])
    nodes.buddy.upload([2], [1])  # the folder of the storage is not there
    await until(lambda: nodes.buddy.problems)
    nodes.buddy.clear()
    await until(lambda: not tasks("_upload"))
    assert nodes.buddy.problems == ()


async def test_a_buddy_keeps_its_newest_copy_when_not_all_have_theirs_after_all(
    nodes: Nodes,
) -> None:
    for step in (2, 3):
        nodes.stage(step)
        nodes.follow(copy=step, copied=step - 1)
        await until(lambda step=step: step in nodes.complete())  # type: ignore[misc]
    nodes.follow(copy=4, copied=-1)
    assert nodes.complete() == [3]
    nodes.stage(4)
    await until(lambda: nodes.complete() == [3, 4])
    nodes.follow(copy=4, copied=4)
    assert nodes.complete() == [4]


def test_a_disk_that_gets_full_during_a_write_is_noticed(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=64k") as folder:
        descriptor = os.open(folder / "file", os.O_WRONLY | os.O_CREAT)
        try:
            with pytest.raises(OSError) as caught:
                write_all(descriptor, bytes(100_000))
        finally:
            os.close(descriptor)
    assert caught.value.errno == errno.ENOSPC
