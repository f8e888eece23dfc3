"""Two drivers of one run where no lock keeps them apart: only one leads, and it is not harmed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.stopping import stop_unlocked
from tests.worlds.local.local_runs import LocalRuns
from trainrun_operator.worlds.local.driver_lock import AlreadyLed, Leader, _read, acquire
from trainrun_operator.worlds.local.worker import kill_all


def of_another_machine(path: Path) -> Leader:
    """As a driver there has written it."""
    there = replace(Leader.this(), pid=4711, boot="another boot", host="elsewhere")
    path.write_text(json.dumps({name: getattr(there, name) for name in there.__slots__}))
    return there


@pytest.mark.case("operator", "The lock of a running `trainrun run` was removed")
@pytest.mark.parametrize("whole", [False, True])
def test_the_same_command_does_not_kill_a_live_run_whose_lock_was_removed(
    runs: LocalRuns, whole: bool
) -> None:
    # Saves nothing: without its folder a save would fail, and the run with it.
    runs.env = {"STEPS": "100000", "PAUSE": "0.02", "EVERY": "100000"}
    driver = runs.start()
    driver.wait_for_step(7)
    ours = set(runs.our_processes())
    if whole:
        runs.state.rename(runs.folder / "cleaned")
    else:
        (runs.state / "driver.lock").unlink()
    second = runs.run()
    assert second.code == 2
    assert f"run tiny is being led by process {driver.process.pid} on " in second.err
    assert driver.process.poll() is None
    if whole:
        return  # what its processes need to save is gone
    assert ours == set(runs.our_processes()), "nothing was ended"
    driver.process.send_signal(signal.SIGINT)
    ended = driver.end()
    assert ended.code == 130
    assert ended.incidents == []


@pytest.mark.slow
def test_a_lock_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "driver.lock"
    lock = acquire(path, run="tiny")
    path.unlink()
    eventually(path.exists, timeout=20, what="the lock is there again")
    with pytest.raises(AlreadyLed, match=f"process {os.getpid()}"):
        acquire(path, run="tiny")
    lock.release()
    acquire(path, run="tiny").release()


@pytest.mark.case("operator", "`trainrun run` is started twice on machines that do not share locks")
def test_a_driver_on_another_machine_is_left_alone_while_it_shows_life(tmp_path: Path) -> None:
    path = tmp_path / "driver.lock"
    of_another_machine(path)
    beat = threading.Timer(0.5, of_another_machine, [path])
    beat.start()
    with pytest.raises(AlreadyLed, match=r"led by process 4711 on elsewhere.*`kill 4711` there"):
        acquire(path, run="tiny", patience=20)
    beat.join()


def test_a_driver_on_another_machine_is_followed_when_it_has_been_quiet(tmp_path: Path) -> None:
    path = tmp_path / "driver.lock"
    there, begun = of_another_machine(path), time.monotonic()
    lock = acquire(path, run="tiny", patience=1.0)
    assert lock.before == there
    assert time.monotonic() - begun >= 1.0
    with path.open() as file:
        mine = _read(file)
    assert mine is not None
    assert mine.id != there.id
    lock.release()


def test_whoever_was_taken_for_dead_ends_when_it_goes_on(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "100000", "PAUSE": "0.02"}
    driver = runs.start()
    driver.wait_for_step(7)
    path = runs.state / "status.json"
    stop_unlocked(driver.process.pid, path.with_suffix(".guard"))  # it does not write now
    stored = json.loads(path.read_text())
    text = json.dumps({**stored, "resourceVersion": stored["resourceVersion"] + 1})
    path.write_text(text)
    kill_all(runs.state / "nodes")  # as whoever takes over does
    driver.process.send_signal(signal.SIGCONT)
    ended = driver.end()
    assert ended.code == 2
    assert "another process has taken over run tiny" in ended.err
    assert path.read_text() == text
    assert runs.our_processes() == []
