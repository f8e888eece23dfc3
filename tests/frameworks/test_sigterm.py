"""Frameworks that save on SIGTERM by themselves, in scripts that nobody has changed; one rank.

A Hugging Face Trainer has `enable_jit_checkpoint`: its `train()` returns and the script ends with
0. Lightning has a handler, and `ModelCheckpoint(save_on_exception=True)` saves: `fit()` raises
SystemExit. Both go on from a folder of their own.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually
from tests.worlds.local.local_runs import Driver, Ended, LocalRuns

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 800.0
"""Seconds that a run may take: importing a framework takes ten on a busy machine."""

FRAMEWORKS = pytest.mark.parametrize(
    "script", ["sigterm_gpt2.py", "sigterm_lightning.py"], ids=["transformers", "lightning"]
)


@contextmanager
def runs_of(script: str, folder: Path) -> Iterator[LocalRuns]:
    (folder / "out").mkdir()
    runs = LocalRuns(
        folder=folder,
        script=str(Path(__file__).parent / script),
        env={"OUT": str(folder / "out")},
        spec={"failurePolicy": {"maxFailures": 1, "maxPreemptions": 0}},
        replicas=1,
    )
    try:
        yield runs
    finally:
        runs.close()


def begun(runs: LocalRuns) -> Driver:
    """It trains."""
    driver = runs.start()

    def trains() -> bool:
        assert driver.process.poll() is None, driver.out.read_text()[-3000:]
        return "begins at step 0" in driver.out.read_text()

    eventually(trains, timeout=LONGEST, what="the training begins")
    return driver


def to_its_end(driver: Driver) -> Ended:
    driver.process.wait(LONGEST)
    return driver.end()


def end_its_agent(runs: LocalRuns) -> None:
    """As a node does it that takes its worker away; but here nobody tells that it does."""
    agents = [
        pid
        for pid in runs.our_processes()
        if b"trainrun.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    (agent,) = agents
    os.kill(agent, signal.SIGTERM)


@FRAMEWORKS
def test_a_sigterm_costs_a_trainer_that_saves_on_it_no_saved_step(
    script: str, tmp_path: Path
) -> None:
    with runs_of(script, tmp_path) as runs:
        driver = begun(runs)
        end_its_agent(runs)
        ended = to_its_end(driver)
    assert ended.code == 0, ended.out[-3000:] + ended.err
    (incident,) = ended.incidents
    assert (incident["cause"], incident["budget"]) == ("Terminated", "failures")
    assert ended.status["failures"]["text"] == "1/1"
    first, second = steps(ended.out, "begins")
    assert (first, second > 0) == (0, True), ended.out[-3000:]
    # The attempt that got it ended on its own and was no success.
    assert steps(ended.out, "ends")[-1] > second


def test_a_stop_by_its_user_costs_one_none_either(tmp_path: Path) -> None:
    with runs_of("sigterm_gpt2.py", tmp_path) as runs:
        driver = begun(runs)
        driver.interrupt()
        stopped = to_its_end(driver)
        ended = to_its_end(runs.start())
    assert (stopped.code, ended.code) == (130, 0), ended.out[-3000:] + ended.err
    assert ended.incidents == []
    (until,), (since,) = steps(stopped.out, "ends"), steps(ended.out, "begins")
    # Where the signal comes within a step it saves what was before, and does the step after that.
    assert 0 < until - 1 <= since < steps(ended.out, "ends")[0]


def steps(out: str, what: str) -> list[int]:
    """Where the script says that it begins or ends, in each attempt."""
    return [int(step) for step in re.findall(rf"{what} at step (\d+)", out)]
