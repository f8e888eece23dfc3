"""Ctrl-C at any moment of the start of `trainrun run`."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.worlds.local.local_runs import LocalRuns

MOMENTS = 24
# Until it has begun with our code, Python itself answers: that is not ours to mend.
PROGRAM = """
from trainrun_operator import cli
prepare = cli.leave_at_once
cli.leave_at_once = lambda: (prepare(), print("begins", flush=True))
cli.main()
"""


def start(runs: LocalRuns) -> subprocess.Popen[str]:
    """`trainrun run`, from its first line of code on."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-c",
        PROGRAM,
        "run",
        str(runs.write()),
        "--plain",
    ]
    process = subprocess.Popen(
        command, cwd=runs.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


def to_its_end(process: subprocess.Popen[str]) -> str:
    """What it still prints; where it hangs, its stack."""
    try:
        return process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        return process.communicate()[0]


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_the_start_ends_with_130_and_without_a_traceback(
    runs: LocalRuns,
) -> None:
    runs.env = {"STEPS": "100000", "PAUSE": "0.05"}
    runs.storage.mkdir()
    dice = random.Random(11)
    for _ in range(MOMENTS):
        process = start(runs)
        time.sleep(0.002 + dice.random() ** 2 * 1.5)  # the moment is what is tried here
        process.send_signal(signal.SIGINT)
        output = to_its_end(process)
        assert process.returncode == 130, output
        assert "Traceback" not in output
        assert "Aborted" not in output
    assert runs.our_processes() == []


def test_where_sigint_is_ignored_it_stays_ignored(runs: LocalRuns) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        driver = runs.start()
    finally:
        signal.signal(signal.SIGINT, before)
    for _ in range(10):
        driver.interrupt()
        time.sleep(0.05)
    assert driver.end().code == 0


@pytest.mark.case("operator", "Ctrl-C, SIGTERM or a closed terminal")
def test_ctrl_c_in_a_command_ends_it_with_130(runs: LocalRuns) -> None:
    program = (
        "import os, signal, sys\n"
        "from trainrun_operator.cli import main, status\n"
        "status.show_status = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "status", str(runs.write())]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
