"""An unmodified Hugging Face Trainer shows how far it is, and when it will end."""

from __future__ import annotations

import json
from pathlib import Path

from tests.frameworks.unmodified_gpt2 import SAVED, STEP_SECONDS, STEPS
from tests.worlds.local.local_runs import LocalRuns

LONGEST = 800.0
"""Seconds that a run may take: importing transformers takes ten on a busy machine."""


def test_a_trainer_that_reports_nothing_is_shown_by_what_it_posts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    # A proxy that does not exist: posts to the agent must not go there.
    proxy = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    runs = LocalRuns(
        folder=tmp_path,
        script=str(Path(__file__).parent / "unmodified_gpt2.py"),
        env={"OUT": str(out), **proxy},
        spec={"failurePolicy": {"maxFailures": 1}},
        replicas=1,
    )
    driver = runs.start()
    driver.process.wait(LONGEST)
    ended = driver.end()
    runs.close()
    assert ended.code == 0, ended.out[-3000:] + ended.err
    assert [incident["cause"] for incident in ended.incidents] == ["AppError"]
    assert "step" not in ended.status["progress"]
    posted = ended.status["posted"]
    assert (posted["totalSteps"], posted["percent"], posted["remainingSeconds"]) == (STEPS, 100, 0)
    assert STEPS - posted["step"] < 20  # the last post of a step is up to five seconds old
    assert isinstance(posted["metrics"]["train_loss"], float)

    states = [json.loads(line) for line in ended.out.splitlines() if '"state"' in line]
    resumed = [s["posted"] for s in states if s["attempt"] == 2 and s["posted"]]
    estimates = [
        (p["step"], p["remainingSeconds"])
        for p in resumed
        if p["step"] and p["remainingSeconds"] and p["percent"] < 100
    ]
    assert estimates, resumed
    for step, remaining in estimates:
        # transformers itself posts a tenth of it: it counts the steps of the attempt before.
        assert step > SAVED
        assert remaining >= int((STEPS - step) * STEP_SECONDS)
