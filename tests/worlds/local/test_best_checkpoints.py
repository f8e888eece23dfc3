"""A run that keeps its best checkpoints, and how its user gets at the best one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from trainrun_operator.cli.commands import trainrun

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worlds.local.local_runs import LocalRuns


def call(*words: str) -> Result:
    return CliRunner().invoke(trainrun, ["checkpoints", *words])


def test_the_best_checkpoints_are_kept_and_the_best_one_is_marked_and_fetched(
    runs: LocalRuns, tmp_path: Path
) -> None:
    runs.script = "scored.py"
    runs.spec = {"checkpoint": {"keep": 2, "scoreMetric": "accuracy", "scoreOrder": "Max"}}
    kept = [f"step-{step:09}-attempt-1" for step in (2, 3, 5, 6)]
    runs.env = {"STORED": f"{runs.storage}/tiny/checkpoints", "KEPT": " ".join(kept)}
    assert runs.run().code == 0
    file = str(runs.folder / "trainrun.yaml")

    listed = call(file).output.splitlines()

    assert [line.split()[-1] for line in listed[1:6]] == ["accuracy", "0.9", "0.5", "0.4", "0.3"]
    assert [line[:2].strip() for line in listed[2:6]] == ["+", "", "", "*"]
    assert listed[-1] == "  + the best by accuracy (Max)"
    assert call("get", file, "best", str(tmp_path / "model")).exit_code == 0
    assert (tmp_path / "model/rank-1.txt").read_text() == "2"

    least = call(f"{runs.storage.as_uri()}/tiny", "--score", "accuracy:Min", "--json")
    shown = json.loads(least.output)

    assert shown["score"] == {"metric": "accuracy", "order": "Min"}
    assert [entry["best"] for entry in shown["checkpoints"]] == [False, False, False, True]
    assert shown["checkpoints"][0]["metrics"] == {"accuracy": 0.9}
    assert shown["checkpoints"][0]["metadata"] == {"said by": 0}
