"""A terminal that does not read or goes away, an output that cannot be written: no harm is done."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.worlds.local.local_runs import TIMEOUT, LocalRuns

COMMAND = (sys.executable, "-m", "trainrun_operator.cli", "run")


def start(
    runs: LocalRuns,
    *options: str,
    terminal: int = subprocess.DEVNULL,
    shell: str = "",
) -> subprocess.Popen[bytes]:
    """`trainrun run` on this terminal, or where a shell sends its output."""
    runs.storage.mkdir()
    command = [*COMMAND, str(runs.write()), *options]
    wrapped = ["bash", "-c", f'"$@" {shell}', "bash", *command] if shell else command
    env = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(
        wrapped, stdout=terminal, stderr=terminal, cwd=runs.folder, env=env, start_new_session=True
    )
    runs.drivers.append(process)
    return process


def status(runs: LocalRuns) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((runs.state / "status.json").read_text())["status"]
    except FileNotFoundError:
        return {}
    return found


def condition(runs: LocalRuns, type_: str) -> dict[str, Any] | None:
    return next((it for it in status(runs).get("conditions", ()) if it["type"] == type_), None)


def reached(runs: LocalRuns, step: int, rank: int = 0) -> bool:
    return any(at >= step for _, at, _ in runs.steps(rank))


@pytest.mark.case("script", "The reader of `trainrun run` does not read at all")
@pytest.mark.parametrize("options", [(), ("--plain", "--verbose")], ids=str)
def test_a_terminal_that_does_not_read_stops_neither_a_restart_nor_the_end(
    runs: LocalRuns, options: tuple[str, ...]
) -> None:
    runs.script, runs.env = "train.py", {"STEPS": "40", "NOISE": "4000"}
    runs.spec = {"failurePolicy": {"maxFailures": 3, "backoff": {"initial": "0s", "max": "0s"}}}
    ours, terminal = pty.openpty()
    driver = start(runs, *options, "--fault", "kill rank=1 step=10", terminal=terminal)
    os.close(terminal)
    try:
        eventually(lambda: condition(runs, "Complete") is not None, timeout=TIMEOUT, what="the end")
        found = status(runs)
        assert [it["cause"] for it in found["incidents"]] == ["AppError"]
        assert found["incidents"][0]["restartSeconds"] < 20
        lock = runs.state / "driver.lock"
        eventually(lambda: not lock.read_text(), timeout=TIMEOUT, what="nobody leads any more")
        shown = b""  # from now on somebody reads again
        with contextlib.suppress(OSError):  # so ends what was written to a terminal
            while data := os.read(ours, 65536):
                shown += data
        assert driver.wait(TIMEOUT) == 0, "the run has succeeded"
        assert b"Run tiny succeeded" in shown
    finally:
        os.close(ours)


@pytest.mark.case("script", "The output of `trainrun run` cannot be written")
@pytest.mark.parametrize(
    ("shell", "why"),
    [
        ("2> err > /dev/full", "No space left on device"),
        ("2> err | head -1; exit ${PIPESTATUS[0]}", "Broken pipe"),
    ],
)
def test_an_output_that_cannot_be_written_is_told_once_and_the_run_succeeds(
    runs: LocalRuns, shell: str, why: str
) -> None:
    runs.env = {"STEPS": "30"}
    driver = start(runs, "--verbose", shell=shell)
    assert driver.wait(TIMEOUT) == 0
    assert (runs.folder / "err").read_text() == (
        f"trainrun: stdout cannot be written: {why}. The training continues, and each worker's "
        "output.log has all its lines\n"
    )
    told = condition(runs, "OutputLost")
    assert told is not None
    assert why in told["message"]


def test_nothing_that_can_be_written_at_all_does_no_harm(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "20"}
    driver = start(runs, shell="<&- >&- 2>&-")
    assert driver.wait(TIMEOUT) == 0
    assert condition(runs, "Complete") is not None


@pytest.mark.case("operator", "Ctrl-C, SIGTERM or a closed terminal")
def test_a_terminal_that_is_closed_saves_and_stops_whatever_else_is_sent(runs: LocalRuns) -> None:
    runs.script, runs.env = "train.py", {"STEPS": "100000", "PAUSE": "0.02"}
    ours, terminal = pty.openpty()
    driver = start(runs, terminal=terminal)
    os.close(terminal)
    eventually(lambda: reached(runs, 7), timeout=TIMEOUT, what="step 7")
    os.close(ours)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        driver.send_signal(number)
    assert driver.wait(TIMEOUT) == 130
    found = status(runs)
    assert [it["status"] for it in found["conditions"] if it["type"] == "Suspended"] == ["True"]
    assert found["checkpoint"]["step"] >= 7
