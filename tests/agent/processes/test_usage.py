"""What the kernel says that a process and its descendants have used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from trainrun.agent.processes import procfs
from trainrun.agent.processes.procfs import usage_of
from trainrun.agent.processes.spawn import sigterm_receivers

BURNS = """
import subprocess, sys, time
code = "import time\\nwhile time.process_time() < 0.3: pass\\nprint('burnt', flush=True)\\ninput()"
child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
sys.stdin.readline()
child.communicate(b"\\n")
print("waited", flush=True)
time.sleep(600)
"""


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_what_a_child_uses_is_its_parents_also_when_it_has_ended() -> None:
    with running(BURNS) as process:
        assert said(process) == "burnt"
        alive = usage_of(process.pid)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert said(process) == "waited"
        ended = usage_of(process.pid)
        assert alive is not None
        assert ended is not None
        assert alive.cpu >= 0.25
        assert ended.cpu >= alive.cpu
        assert ended.io > 0
        assert alive.delayed >= 0.0


def test_a_name_that_the_kernel_cuts_within_a_character_is_no_error(tmp_path: Path) -> None:
    """A helper called so ended the agent, and with it the attempt, again and again."""
    program = tmp_path / "подготовка"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        try:
            comm = Path(f"/proc/{process.pid}/comm")
            eventually(lambda: comm.read_bytes().startswith("подгот".encode()))
            with pytest.raises(UnicodeDecodeError):
                comm.read_text()
            assert usage_of(process.pid) is not None
            assert process.pid in procfs._children_by_scan(os.getpid())
            assert sigterm_receivers(process.pid) == [process.pid]
        finally:
            process.kill()


def test_of_a_process_that_has_gone_nothing_is_known() -> None:
    with running("") as process:
        process.wait()
    assert usage_of(process.pid) is None


def test_where_io_may_not_be_read_the_cpu_time_is_known_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The kernel counts hundredths of a second.
    spend = "import time\nwhile time.process_time() < 0.05: pass\nprint(1, flush=True); input()"
    with running(spend) as process:
        assert said(process) == "1"
        monkeypatch.setattr(procfs, "_io", lambda _pid: 0)
        found = usage_of(process.pid)
        assert found is not None
        assert (found.io, found.cpu > 0) == (0, True)
