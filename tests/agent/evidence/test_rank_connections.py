"""Whom the processes of a rank meet, by real processes and sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from trainrun.agent.evidence.rank_connections import RankConnectionMonitor, scan
from trainrun.agent.processes.procfs import opened_sockets, sockets
from trainrun.contract.evidence import RankConnections

OURS = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "20000",
    "TORCHELASTIC_RUN_ID": "run",
}
NOBODYS = 1
"""A port that no test opens, nor the next one."""
WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"
STARTS = f"""
import os, subprocess, sys
place = dict(word.split("=") for word in sys.argv[1:])
subprocess.run([sys.executable, "-c", {WAITS!r}], env={{**os.environ, **place}})
"""
"""What a launcher does."""
LISTENS = """
import socket, sys, threading
kept, server = [], socket.create_server(("127.0.0.1", 0))
def accept():
    while True:
        kept.append(server.accept()[0])
        kept[-1].send(b"met")
threading.Thread(target=accept, daemon=True).start()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
MAPS = f"""
import mmap, sys
with open(sys.argv[1], "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
{WAITS}
"""


@contextmanager
def rank(*command: str | Path, **variables: str) -> Iterator[tuple[int, str]]:
    """The pid of a process that was started as ours, and its first line."""
    with subprocess.Popen(
        command,
        env={**os.environ, **OURS, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.communicate()  # closes its stdin: it ends


def seen(pid: int, port: int = NOBODYS) -> RankConnections:
    return scan({1: pid}, {1: OURS}, port)


def test_processes_with_the_place_that_they_were_given_meet_nobody_yet() -> None:
    with rank("bash", "-c", f'{sys.executable} -c "$0" A=1; true', STARTS) as (pid, _):
        assert seen(pid) == RankConnections()


def launcher(folder: Path) -> Path:
    program = folder / "torchrun"
    program.write_text(f"#!{sys.executable}\n{STARTS}")
    program.chmod(0o755)
    return program


@pytest.mark.case(
    "processes",
    "A launcher starts a group of its own in several processes",
    counted="the run fails",
)
def test_a_launcher_behind_a_script_file_is_seen_by_the_rank_0_that_it_starts(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"{launcher(tmp_path)} RANK=0 MASTER_PORT=35507; true\n")
    with rank("bash", script) as (pid, _):
        assert seen(pid) == RankConnections(leaders=(1,), launcher="torchrun")


def test_rank_0_of_another_group_is_one_even_where_its_place_reads_like_ours() -> None:
    with rank(sys.executable, "-c", STARTS, "MASTER_PORT=35507", RANK="0") as (pid, _):
        assert scan({0: pid}, {0: {**OURS, "RANK": "0"}}, NOBODYS).leaders == (0,)


def test_other_ranks_of_such_a_group_and_those_of_mpi_are_told_apart() -> None:
    with rank(sys.executable, "-c", STARTS, "RANK=3", "WORLD_SIZE=4") as (pid, _):
        assert seen(pid).leaders == ()
    mpi = ("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4")
    with rank(sys.executable, "-c", STARTS, *mpi) as (pid, _):
        assert seen(pid).leaders == (1,)


def test_one_that_has_loaded_mpi_is_alone_unless_a_launcher_of_mpi_gave_it_a_place(
    tmp_path: Path,
) -> None:
    library = tmp_path / "libmpi.so.40"
    library.write_bytes(b"x")
    with rank(sys.executable, "-c", MAPS, library) as (pid, _):
        assert seen(pid).mpi
    with rank(sys.executable, "-c", MAPS, library, PMI_RANK="0") as (pid, _):
        assert not seen(pid).mpi


def test_a_port_of_its_own_counts_once_another_rank_is_connected_to_it() -> None:
    with rank(sys.executable, "-c", LISTENS) as (pid, port):
        assert not seen(pid).elsewhere
        with closing(socket.create_connection(("127.0.0.1", int(port)))):
            eventually(lambda: seen(pid).elsewhere)


def test_the_master_port_counts_while_it_is_open_and_so_does_that_of_jax() -> None:
    with rank(sys.executable, "-c", LISTENS) as (pid, port):
        assert seen(pid, int(port)).known
        assert seen(pid, int(port) - 1).known
        assert not seen(pid, 2).known


def test_a_group_that_lived_between_two_looks_is_known_by_what_the_kernel_remembers() -> None:
    with rank(sys.executable, "-c", LISTENS) as (_, port):
        with closing(socket.create_connection(("127.0.0.1", int(port)))) as other:
            assert other.recv(3) == b"met"  # not accepted yet it would be reset, and forgotten
    watch = RankConnectionMonitor()
    watch.start(int(port), {1: OURS}, 0.0)
    assert opened_sockets(int(port), sockets())
    watch.ended()
    assert watch.found.known


def test_looks_are_told_as_news_and_what_was_seen_once_stays(tmp_path: Path) -> None:
    watch = RankConnectionMonitor()
    watch.start(NOBODYS, {1: OURS}, 0.0)
    with rank(launcher(tmp_path), "RANK=0") as (pid, _):
        assert not watch.look({1: pid}, 1.0)
        eventually(lambda: watch.look({1: pid}, 2.0))
    assert watch.found == RankConnections(leaders=(1,), launcher="torchrun")
    watch.ended()
    assert not watch.look({}, 3.0)
    assert watch.found == RankConnections(leaders=(1,), launcher="torchrun")


def test_after_a_minute_it_looks_seldom() -> None:
    watch = RankConnectionMonitor()
    watch.start(NOBODYS, {1: OURS}, 0.0)
    watch.look({1: os.getpid()}, 70.0)
    first = watch._thread
    assert first is not None
    first.join()
    watch.look({1: os.getpid()}, 75.0)
    assert watch._thread is first
    watch.look({1: os.getpid()}, 80.0)
    assert watch._thread is not first
