"""The id by which trackers know a run, over its whole life."""

from __future__ import annotations

import json
import shutil

from click.testing import CliRunner

from tests.worlds.local.local_runs import LocalRuns
from trainrun_operator.cli.commands import trainrun


def ids(runs: LocalRuns) -> list[tuple[int, str]]:
    """What rank 1 was told in each attempt."""
    rows = runs.steps(1)
    return [(attempt, what[3:]) for attempt, _, what in rows if what.startswith("id ")]


def test_a_run_keeps_its_id_over_restarts_and_when_its_file_is_applied_anew(
    runs: LocalRuns,
) -> None:
    runs.spec = {"failurePolicy": {"maxFailures": 1}}
    runs.env = {"FAIL_AT": "7", "FAIL_ATTEMPTS": "2"}
    failed = runs.run()
    assert failed.code == 1
    shutil.rmtree(runs.state)  # as from another machine: another TrainRun of the same file
    again = runs.run()
    assert again.code == 0, again.out[-3000:]
    found = ids(runs)
    (run_id,) = {told for _, told in found}
    assert run_id
    assert [attempt for attempt, _ in found] == [1, 2, 3]
    assert again.status["runId"] == failed.status["runId"] == run_id

    shown = CliRunner().invoke(trainrun, ["checkpoints", f"{runs.storage}/tiny", "--json"])
    assert json.loads(shown.output)["runId"] == run_id


def test_a_run_of_another_name_has_another_id(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "1"}
    first = runs.run().status["runId"]
    runs.spec = {"storage": {"runName": "other"}}
    assert runs.run().status["runId"] not in ("", first)
