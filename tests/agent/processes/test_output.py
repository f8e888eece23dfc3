"""What a process prints is shown while it prints it, also where it never ends a line."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from trainrun.agent.processes.output import OutputPump, Sink


async def shown(tmp_path: Path, *chunks: bytes) -> tuple[list[str], tuple[str, ...]]:
    """What is shown when this has arrived, before the process has ended; and its last lines."""
    out = os.open(tmp_path / "out", os.O_CREAT | os.O_RDWR)
    sink = Sink(out)
    reading, writing = os.pipe()
    pump = OutputPump(reading, "[rank 0] ", sink)
    for chunk in chunks:
        os.write(writing, chunk)
        pump._read()
        await asyncio.sleep(0)
    sink.close(timeout=5)
    before = (tmp_path / "out").read_text().splitlines()
    os.close(writing)
    pump.finish()
    os.close(out)
    return before, pump.tail.last_lines


async def test_a_progress_bar_is_shown_while_it_rewrites_its_line(tmp_path: Path) -> None:
    lines, last = await shown(tmp_path, b"\r 1%|", b"\r 2%|", b"\r 3%|", b"\r 4%|")
    assert lines == ["[rank 0]  1%|"]  # and the next in ten seconds
    assert last == (" 4%|",)


async def test_a_bar_that_ends_each_state_with_a_carriage_return_is_shown(tmp_path: Path) -> None:
    lines, last = await shown(tmp_path, b"10%\r", b"20%\r", b"30%\r")
    assert lines == ["[rank 0] 10%"]
    assert last == ("30%",)


async def test_lines_with_the_ends_of_windows_are_whole_lines(tmp_path: Path) -> None:
    lines, last = await shown(tmp_path, b"one\r", b"\ntwo\r\n", b"three\r", b"\n")
    assert lines == ["[rank 0] one", "[rank 0] two", "[rank 0] three"]
    assert last == ("one", "two", "three")


async def test_the_last_state_of_a_bar_ends_its_line(tmp_path: Path) -> None:
    lines, _ = await shown(tmp_path, b"\r 1%|", b"\r 50%|\r 100%|\ndone\n")
    assert lines == ["[rank 0]  100%|", "[rank 0] done"]


async def test_a_helper_that_writes_without_end_does_not_keep_the_agent(tmp_path: Path) -> None:
    """It outlived its rank, and no heartbeat went out while it wrote."""
    out = os.open(tmp_path / "out", os.O_CREAT | os.O_RDWR)
    sink = Sink(out)
    reading, writing = os.pipe()
    pump = OutputPump(reading, "[rank 0] ", sink)
    os.write(writing, b"the last words\n")
    with subprocess.Popen(["yes"], stdout=writing) as helper:
        try:
            eventually(lambda: room_in(writing) == 0)
            pump.finish()
        finally:
            helper.kill()
    os.close(writing)
    sink.close(timeout=5)
    os.close(out)
    assert (tmp_path / "out").read_text().startswith("[rank 0] the last words\n[rank 0] y\n")


def room_in(pipe: int) -> int:
    return len(select.select([], [pipe], [], 0)[1])


async def test_a_slow_reader_gets_the_end_of_the_output() -> None:
    reading, writing = os.pipe()
    sink = Sink(writing)
    sink.write(b"x" * 1_000_000 + b"\nTHE END\n")
    closing = threading.Thread(target=sink.close, args=(0.5,))
    closing.start()
    last = b""
    while not last.endswith(b"THE END\n"):
        time.sleep(0.06)
        last = (last + os.read(reading, 65536))[-8:]
    closing.join(10)
    assert not closing.is_alive()
    os.close(writing)
    os.close(reading)


@pytest.mark.case("script", "Processes print faster than their reader reads")
async def test_nobody_reads_the_output_and_the_agent_leaves_all_the_same() -> None:
    reading, writing = os.pipe()
    sink = Sink(writing)
    sink.write(b"x" * 2_000_000)
    begun = time.monotonic()
    sink.close(timeout=0.3)
    assert time.monotonic() - begun < 5
    os.close(reading)
