"""`enable_jit_checkpoint` of Hugging Face's Trainer: it saves on SIGTERM, by itself."""

from __future__ import annotations

import re
from pathlib import Path

from tests.frameworks.jit_gpt2 import STEPS
from tests.support.eventually import eventually
from tests.worlds.local.local_runs import LocalRuns

LONGEST = 800.0
"""Seconds that a run may take: importing transformers takes ten on a busy machine."""


def test_a_trainer_that_saves_on_sigterm_goes_on_from_there(tmp_path: Path) -> None:
    runs = LocalRuns(
        folder=tmp_path,
        script=str(Path(__file__).parent / "jit_gpt2.py"),
        env={"OUT": str(tmp_path / "out")},
        spec={"checkpoint": {"onNotice": "Signal"}},
        replicas=1,
    )
    try:
        first = runs.start()
        eventually(lambda: "begins at step 0" in first.out.read_text(), timeout=LONGEST)
        first.interrupt()
        first.process.wait(LONGEST)
        stopped = first.end()
        second = runs.start()
        second.process.wait(LONGEST)
        ended = second.end()
    finally:
        runs.close()
    assert (stopped.code, ended.code) == (130, 0), ended.out[-3000:] + ended.err
    assert ended.incidents == []
    # Where the signal comes within a step it saves what was before, and does the step after that.
    assert step(stopped.out, "begins") == 0
    assert 0 < step(stopped.out, "ends") - 1 <= step(ended.out, "begins") < STEPS
    assert step(ended.out, "ends") == STEPS


def step(out: str, what: str) -> int:
    """Where the script says that it begins or ends."""
    told = re.search(rf"{what} at step (\d+)", out)
    assert told, out[-3000:]
    return int(told[1])
