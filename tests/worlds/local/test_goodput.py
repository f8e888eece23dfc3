"""What a run of this machine says of its time, against the clock of its own script."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from trainrun_operator.cli.commands import trainrun

if TYPE_CHECKING:
    from tests.worlds.local.local_runs import LocalRuns


def test_goodput_is_within_a_point_of_what_the_script_has_seen(runs: LocalRuns) -> None:
    runs.script, runs.replicas = "timed.py", 1
    runs.env = {"STEPS": "80", "PAUSE": "0.1"}
    runs.spec = {"failurePolicy": {"maxFailures": 2}}
    ended = runs.run("--fault", "kill rank=0 step=37")
    assert ended.code == 0, ended.err
    times: dict[int, dict[int, float]] = defaultdict(dict)
    for attempt, step, moment in runs.steps(0):
        times[attempt][step] = float(moment)
    resumed = min(times[2]) - 1
    useful = sum(
        done[max(step for step in done if attempt == 2 or step <= resumed)] - done[min(done)]
        for attempt, done in times.items()
        if attempt == 2 or resumed > min(done)
    )
    result = CliRunner().invoke(trainrun, ["explain", str(runs.storage / "tiny"), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    whole = sum(told["seconds"].values())
    assert told["goodput"] == pytest.approx(useful / whole, abs=0.01), told["seconds"]
    first, second = [chapter for chapter in told["chapters"] if "workers" in chapter]
    assert first["incident"]["cause"] == "AppError"
    assert first["incident"]["rank"] == 0
    assert (second["verdict"], second["reached"]) == ("Succeeded", 80)
