"""Messages of tasks over TCP: nothing is unpickled that the key has not proven."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tests.support.task_workers import KEY, MessagesToDriver, make_worker, start, until
from trainrun.tasks import hub as hub_module
from trainrun.tasks import wire
from trainrun.tasks.hub import Hub
from trainrun.tasks.messages import Joined
from trainrun.tasks.records import Finished
from trainrun.tasks.wire import (
    FRAME,
    MAGIC,
    FrameHmac,
    LinkLost,
    LinkRefused,
    dial,
    frames,
    read_message,
)

HELLO = len(MAGIC) + 32


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


class Driver:
    def __init__(self) -> None:
        self.heard = MessagesToDriver()
        self.hub = Hub(self.heard.message, self.heard.away.append)
        self.port = 0

    async def joins(self, number: int = 1) -> None:
        """A real worker comes in, and goes."""
        link = await dial("127.0.0.1", self.port, KEY)
        count = len(self.heard.joined)
        link.send(Joined(worker=number, cpus=1, gpus=0))
        await until(lambda: len(self.heard.joined) > count)
        link.close()
        await until(lambda: number in self.heard.away)
        self.heard.away.clear()


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    made = Driver()
    made.port = await made.hub.listen("127.0.0.1", 0, KEY)
    yield made
    await made.hub.close(0)


async def stranger(driver: Driver) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", driver.port)


async def is_thrown_out(reader: asyncio.StreamReader) -> None:
    """The other side closes, and says no more than its greeting."""
    with contextlib.suppress(ConnectionError):
        assert len(await asyncio.wait_for(reader.read(-1), 30)) <= HELLO
    assert reader.at_eof() or reader.exception()


@pytest.mark.case("tasks", "A stranger connects to rank 0's port")
async def test_a_stranger_with_a_pickle_is_thrown_out_unread(
    driver: Driver, tmp_path: Path
) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "unpickled"))
    for start_with in (b"", b"\0" * 64, struct.pack(">I", len(bomb)), b"\xff" * 4096):
        reader, writer = await stranger(driver)
        writer.write(start_with + bomb + b"\0" * 64)
        await is_thrown_out(reader)
        writer.close()
    await driver.joins()
    assert not (tmp_path / "unpickled").exists()


async def test_the_right_protocol_with_a_wrong_key_is_thrown_out(driver: Driver) -> None:
    with pytest.raises(LinkRefused):
        await dial("127.0.0.1", driver.port, bytes(32))
    await driver.joins()
    assert len(driver.heard.joined) == 1


async def test_a_handshake_of_another_session_cannot_be_replayed(driver: Driver) -> None:
    """A listener on the network has recorded all that a real worker said."""
    said = await record_a_worker(driver)
    driver.heard.clear()
    reader, writer = await stranger(driver)
    writer.write(said)
    await is_thrown_out(reader)
    writer.close()
    await driver.joins()
    assert len(driver.heard.joined) == 1


async def record_a_worker(driver: Driver) -> bytes:
    said = bytearray()

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, into: bytearray
    ) -> None:
        while piece := await reader.read(65536):
            into += piece
            writer.write(piece)
        writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await stranger(driver)
        await asyncio.gather(pass_on(reader, back, said), pass_on(there, writer, bytearray()))

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        link = await dial("127.0.0.1", server.sockets[0].getsockname()[1], KEY)
        link.send(Joined(worker=1, cpus=1, gpus=0))
        await until(lambda: driver.heard.joined)
        link.close()
        await until(lambda: driver.heard.away)
    return bytes(said)


async def test_half_a_handshake_has_its_time_and_no_more(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE", 0.2)
    reader, writer = await stranger(driver)
    writer.write(b"half")
    await is_thrown_out(reader)
    writer.close()


async def test_strangers_in_great_numbers_do_not_keep_workers_out(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "MAX_UNAUTHENTICATED", 16)
    crowd = [await stranger(driver) for _ in range(200)]
    async with asyncio.timeout(5):
        await driver.joins()
    for reader, _ in crowd[:184]:
        await is_thrown_out(reader)
    for _, writer in crowd:
        writer.close()


async def test_a_worker_does_not_believe_a_driver_that_does_not_know_the_key() -> None:
    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(MAGIC + bytes(32))
        answer = await reader.readexactly(64)
        writer.write(answer[32:])  # the worker's own proof
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        with pytest.raises(LinkRefused, match="the driver does not know the key"):
            await dial("127.0.0.1", server.sockets[0].getsockname()[1], KEY)


@pytest.mark.case("tasks", "A message between ranks is changed, repeated or left out")
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda sent: sent[:40] + b"\x01" + sent[41:], id="changed"),
        pytest.param(lambda sent: sent + sent, id="repeated"),
        pytest.param(lambda sent: b"\xff\xff\xff\xff" + sent[4:], id="a huge length"),
        pytest.param(lambda sent: b"\0\0\0\0" + sent[4:], id="no length"),
        pytest.param(lambda sent: sent[:-1], id="cut"),
    ],
)
async def test_a_frame_that_was_not_sent_so_ends_the_link(spoil, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    sent = frames(pickle.dumps(Bomb(tmp_path / "unpickled")), FrameHmac(KEY, "worker"))
    reader, add_checksum = a_reader(spoil(sent)), FrameHmac(KEY, "worker")
    got = await read_until_lost(reader, add_checksum)
    assert len(got) <= 1
    assert not (tmp_path / "unpickled").exists()


async def test_a_frame_of_one_direction_is_none_of_the_other() -> None:
    sent = frames(b"hello", FrameHmac(KEY, "driver"))
    with pytest.raises(LinkRefused):
        await read_message(a_reader(sent), FrameHmac(KEY, "worker"))


@given(messages=st.lists(st.binary(max_size=100)), big=st.integers(-2, 2))
@settings(deadline=None, max_examples=examples(100))
def test_messages_of_any_size_arrive_as_they_were_sent(messages: list[bytes], big: int) -> None:
    messages = [*messages, bytes(FRAME + big), bytes(2 * FRAME + big)]
    out, into = FrameHmac(KEY, "worker"), FrameHmac(KEY, "worker")

    async def read_all() -> list[bytes]:
        reader = a_reader(b"".join(frames(it, out) for it in messages))
        return [await read_message(reader, into) for _ in messages]

    assert asyncio.run(read_all()) == messages


@given(noise=st.binary(max_size=300), at=st.integers(0, 200), kept=st.booleans())
@settings(deadline=None, max_examples=examples(1000))
def test_no_noise_is_taken_for_a_message(noise: bytes, at: int, kept: bool) -> None:
    """Noise alone, and noise in the midst of real frames: only real messages come out, in order."""
    add_checksum = FrameHmac(KEY, "worker")
    real = [b"first", b"second" * 10, b"third"]
    whole = b"".join(frames(it, add_checksum) for it in real) if kept else b""
    sent = whole[:at] + noise + whole[at:]

    async def read_all() -> list[bytes]:
        return await read_until_lost(a_reader(sent), FrameHmac(KEY, "worker"))

    got = asyncio.run(read_all())
    assert got == (real if kept else [])[: len(got)]


async def read_until_lost(reader: asyncio.StreamReader, add_checksum: FrameHmac) -> list[bytes]:
    got = []
    with contextlib.suppress(LinkLost, asyncio.IncompleteReadError):
        while True:
            got.append(await read_message(reader, add_checksum))
    return got


def a_reader(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_a_listener_on_a_port_that_is_taken_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        hub = Hub(lambda *_: None, lambda _: None)
        with pytest.raises(OSError, match="Address already in use"):
            await hub.listen("127.0.0.1", taken.getsockname()[1], KEY)


async def test_a_pod_s_listener_is_reached_by_any_of_its_addresses(tmp_path: Path) -> None:
    driver = Driver()
    driver.port = await driver.hub.listen("10.1.2.3", 0, KEY)
    worker, _, _ = make_worker(tmp_path)
    staying = asyncio.create_task(worker.stay(lambda: dial("localhost", driver.port, KEY)))
    await until(lambda: driver.heard.joined)
    driver.hub.send(1, start())
    await until(lambda: driver.heard.ended)
    assert isinstance(driver.heard.ended[0].end, Finished)
    await driver.hub.close(1)
    await asyncio.wait_for(staying, 30)
