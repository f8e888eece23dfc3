"""How a rank finds rank 0's port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.agent.on_disk import a_config
from tests.agent.workers import start
from trainrun.agent.processes.environment import Folders, process_environment
from trainrun.agent.processes.rendezvous_wait import wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOINS = """
import torch.distributed as dist
print("joins", flush=True)
dist.init_process_group("gloo")
"""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The master port of rank 1 of 2, taken, but closed to connections until it listens."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as found:
        number = found.getsockname()[1]
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", number))
        bound.settimeout(60.0)
        place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        for name, value in {**place, "MASTER_PORT": str(number)}.items():
            monkeypatch.setenv(name, value)
        yield bound


@pytest.mark.slow
def test_a_rank_that_is_ready_before_rank_0_does_not_wait_half_a_second_for_it(
    port: socket.socket, tmp_path: Path
) -> None:
    """Torch's own client was refused and waited while rank 0 was listening already."""
    config = a_config(tmp_path, slot=1)
    folders = Folders(config.directory)
    folders.prepare()
    order = replace(start(), workers=2, world_size=2, master_port=int(os.environ["MASTER_PORT"]))
    environment = process_environment(os.environ, config, order, 0, folders.make(1, 1))
    with subprocess.Popen(
        [sys.executable, "-c", JOINS], env=environment, stdout=subprocess.PIPE, text=True
    ) as rank_1:
        try:
            assert rank_1.stdout is not None
            assert rank_1.stdout.readline() == "joins\n"
            port.listen()
            looks, joins = port.accept()[0], port.accept()[0]
            with looks, joins:
                assert looks.recv(1) == b""  # ours, which only looks
                assert joins.recv(1) != b""  # torch's first try
        finally:
            rank_1.kill()


@pytest.mark.parametrize("url", ["env://?rank=0&world_size=2", "env://"])
def test_rank_0_of_any_group_looks_for_nobody(
    port: socket.socket, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    if url == "env://":
        monkeypatch.setenv("RANK", "0")
    port.listen()
    wait(url, None)
    port.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        port.accept()


@pytest.mark.usefixtures("port")
def test_a_rank_looks_for_no_longer_than_a_tenth_of_the_timeout_of_torch() -> None:
    wait("env://", timedelta(seconds=0.2))  # returns, although nobody listens
