"""PyTorch's flight recorder: asked through its pipe, read as it is, only where it is on."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from trainrun.agent.evidence import dumps
from trainrun.agent.processes import procfs

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with these variables; its pid."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(**env: str) -> int:
        command = [sys.executable, "-S", "-c", "input()"]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **env}))
        pid = running[-1].pid
        # What execve() has put there is not there at once.
        eventually(lambda: env.items() <= procfs.environment(pid).items(), what="its environment")
        return pid

    yield begin
    for process in running:
        process.communicate(b"\n")


def test_what_is_off_is_not_looked_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(b"old")
    stem = str(tmp_path / "trace_")
    assert dumps.of_flight_recorder(start(TORCH_NCCL_DEBUG_INFO_TEMP_FILE=stem), 3) is None
    off = start(TORCH_NCCL_DEBUG_INFO_TEMP_FILE=stem, TORCH_NCCL_TRACE_BUFFER_SIZE="0")
    assert dumps.of_flight_recorder(off, 3) is None


@pytest.mark.parametrize("size", ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"])
def test_it_is_asked_through_its_pipe_and_kept_as_it_is(
    start: Start, tmp_path: Path, size: str
) -> None:
    trace, pipe = tmp_path / "trace_3", tmp_path / "ask_3.pipe"
    os.mkfifo(pipe)
    listening = os.open(pipe, os.O_RDWR)
    writer = threading.Thread(
        target=lambda: os.read(listening, 1) and trace.write_bytes(b"\x80\x04")
    )
    writer.start()
    pid = start(
        TORCH_NCCL_DEBUG_INFO_TEMP_FILE=str(tmp_path / "trace_"),
        TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / "ask_"),
        **{size: "100"},
    )
    found = dumps.of_flight_recorder(pid, 3)
    writer.join()
    os.close(listening)
    assert found == {
        "file": str(trace),
        "whole": True,
        "base64": base64.b64encode(b"\x80\x04").decode(),
    }


def test_without_a_pipe_what_the_watchdog_has_written_is_kept_within_bounds(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "trace_3").write_bytes(b"x" * (dumps.LARGEST_RECORD + 1))
    stem = str(tmp_path / "trace_")
    pid = start(TORCH_NCCL_DEBUG_INFO_TEMP_FILE=stem, TORCH_FR_BUFFER_SIZE="10")
    found = dumps.of_flight_recorder(pid, 3)
    assert found is not None
    size = len(base64.b64decode(str(found["base64"])))
    assert (found["whole"], size) == (False, dumps.LARGEST_RECORD)
