"""The checkpoints of a run by its name in a cluster: looked for in the namespace that is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.checkpoints import Bench
from tests.support.trainruns import TrainRuns
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun_operator.cli.commands import trainrun


def checkpoints(*words: str | Path) -> Result:
    return CliRunner().invoke(trainrun, ["checkpoints", *map(str, words)])


@pytest.fixture
def trained(trainruns: TrainRuns, tmp_path: Path) -> RunStore:
    """The TrainRun `digits`, in a namespace that is not that of the kubeconfig, has saved twice."""
    trainruns.install()
    storage = (tmp_path / "runs").as_uri()
    trainruns.create(storage={"uri": storage})
    bench = Bench(run=RunStore(open_store(storage), "digits"), scratch=tmp_path / "scratch")
    bench.resolve(1)
    bench.commit(step=700)
    bench.commit(step=800)
    return bench.run


def test_checkpoints_of_a_run_in_another_namespace_are_listed_fetched_and_set_aside(
    trained: RunStore, trainruns: TrainRuns, tmp_path: Path
) -> None:
    where = ("digits", "-n", trainruns.namespace)
    listed = checkpoints(*where, "--json")
    assert listed.exit_code == 0, listed.output
    assert [found["step"] for found in json.loads(listed.stdout)["checkpoints"]] == [700, 800]
    assert checkpoints(*where, "--can-resume").output.startswith(f"yes: {trained.uri}")
    assert checkpoints("set-aside", "digits", "800", *where[1:]).exit_code == 0
    fetched = checkpoints("get", "digits", tmp_path / "model", *where[1:])
    assert "step-000000700-attempt-1" in fetched.output


def test_a_name_without_its_namespace_is_looked_for_where_the_kubeconfig_says(
    trained: RunStore,
) -> None:
    listed = checkpoints("digits")
    assert listed.exit_code == 2
    assert trained.uri not in listed.output


def test_a_run_that_is_on_in_a_cluster_is_not_said_to_have_stopped(trainruns: TrainRuns) -> None:
    """`status NAME` said "was stopped in phase Running", and nothing of a run that nobody leads."""
    trainruns.install()
    trainruns.create()

    def shown() -> str:
        words = ["status", "digits", "-n", trainruns.namespace]
        return " ".join(CliRunner().invoke(trainrun, words).output.split())

    assert shown().startswith("Run digits: no operator has looked at it yet: check that")
    trainruns.apply_status({"phase": "Running", "observedGeneration": 1}, manager="operator")
    assert shown().startswith("Run digits: Running, led by the operator ")
