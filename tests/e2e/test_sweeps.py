"""Searches in a cluster: trials are TrainRuns, the log lies in the store, whatever dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from testbed.faults import nodes
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.cluster_sweep import ClusterSweep, parameters, trainsweep, written_once
from tests.e2e.support.workers import kill_training
from tests.support.eventually import eventually
from trainrun_operator.cli.commands import trainrun

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation

pytestmark = pytest.mark.cluster


@pytest.mark.case("sweeps", "The operator is killed during a sweep")
def test_a_search_finds_the_best_of_six_trials_though_a_rank_its_clerk_and_its_operator_die(
    bed: Bed, installation: Installation
) -> None:
    sweep = ClusterSweep(bed, args=("--steps=60",))
    trial = sweep.wait_for_trial("Running")
    sweep.wait("a trial has reported", lambda s: s.get("trials", {}).get("open"))
    kill_training(ClusterRun(bed, trial), 1)

    (clerk,) = sweep.clerks()
    bed.kubectl("delete", "pod", clerk, "--wait=false", "--grace-period=0", "--force")
    leader = installation.wait_for_leader()
    installation.kubectl("delete", "pod", leader, "--wait=false", "--grace-period=0", "--force")

    status = sweep.wait_for_phase("Succeeded")
    assert status["trials"]["text"] == "6/6"
    assert status["trials"]["succeeded"] == 6
    assert sweep.condition("Complete")["status"] == "True"
    view, records = sweep.log()
    written_once(records)
    assert len(view.sessions) == 1
    assert sum(it.restarts for it in view.trials.values()) >= 1
    values = {n: it.value for n, it in view.trials.items()}
    assert status["best"]["trial"] == min(values, key=lambda n: values[n] or 0.0)
    eventually(lambda: sweep.clerks() == [], timeout=60, what="the clerk has left")
    assert sweep.trials() == {}


@pytest.mark.case("sweeps", "The clerk is killed, or its node")
@pytest.mark.usefixtures("mended")
def test_a_search_goes_on_when_the_node_of_its_clerk_loses_power(
    bed: Bed, installation: Installation
) -> None:
    sweep = ClusterSweep(bed, args=("--steps=60",), budget={"trials": 2}, maxConcurrent=1)
    sweep.wait_for_trial("Running")
    (clerk,) = sweep.clerks()
    node = sweep.node_of(clerk)
    installation.lead_elsewhere(node)
    nodes.power_off(bed.cluster, node)

    status = sweep.wait_for_phase("Succeeded", seconds=300)
    assert status["trials"]["text"] == "2/2"
    written_once(sweep.log()[1])


@pytest.mark.case("sweeps", "A TrainSweep is deleted and applied again")
@pytest.mark.rare(
    "tests/simulation/sweep/test_each_crash.py::"
    "test_a_sweep_that_is_deleted_and_applied_again_goes_on_with_its_trials"
)
def test_the_same_search_applied_again_goes_on_with_what_is_there(bed: Bed) -> None:
    options: dict[str, Any] = {"maxConcurrent": 3, "sampler": {"name": "TPE"}}
    sweep = ClusterSweep(bed, budget={"trials": 3}, **options)
    sweep.wait("all trials are open", lambda s: s.get("trials", {}).get("open") == 3)
    sweep.wait_for_trial("Running")
    before = parameters(sweep.log()[1])
    bed.kubectl("delete", "trainsweep", "search")

    bed.apply(trainsweep(bed, budget={"trials": 4}, **options))
    status = sweep.wait_for_phase("Succeeded")
    view, records = sweep.log()
    written_once(records)
    assert status["trials"]["text"] == "4/4"
    assert len(view.sessions) == 2
    assert {n: parameters(records)[n] for n in before} == before
    assert not any(trial.fallback for trial in view.trials.values()), "it was asked"


def called(*words: str) -> str:
    """What the command line says to a user of this cluster."""
    result = CliRunner().invoke(trainrun, [*words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_trial_that_is_paused_is_saved_and_goes_on_when_it_is_let_go(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(bed.cluster.kubeconfig))
    for name, value in bed.credentials.items():
        monkeypatch.setenv(name, value)
    where = f"{bed.namespace}/search"
    sweep = ClusterSweep(bed, args=("--steps=60",), budget={"trials": 2}, maxConcurrent=1)
    assert sweep.wait_for_trial("Running") == "search-00000"
    paused = called("sweep", "pause", where, "0")
    assert paused == f"{where}: trial 0 is paused; the operator applies this now\n"
    sweep.wait("the next one runs", lambda s: s.get("running") == [1])
    assert sweep.trials()["search-00000"]["spec"]["suspend"] is True

    sweep.patch({"stoppedTrials": [1]})
    sweep.wait("the second was stopped", lambda s: s["trials"].get("stopped") == 1)
    assert "trial 0 is not paused" in called("sweep", "resume", where, "0")
    status = sweep.wait_for_phase("Succeeded")
    assert status["trials"]["succeeded"] == 1
    assert "2/2 ended: 1 succeeded, 1 stopped" in called("sweep", "status", where)
    assert f"Sweep search succeeded ({status['reason']})" in called("explain", where)
    assert sweep.log()[0].trials[0].step == 60


@pytest.mark.case("sweeps", "A clerk cannot start, runs out of memory or cannot reach the store")
def test_a_sweep_that_cannot_be_says_so_where_its_user_looks(bed: Bed) -> None:
    sweep = ClusterSweep(bed, firstTrials=[{"lr": 5.0}])
    status = sweep.wait("a word about it", lambda s: s.get("reason") == "InvalidSpec")
    assert "spec.firstTrials[0].lr" in status["message"]
    assert sweep.trials() == {}

    bed.kubectl("delete", "trainsweep", "search")
    elsewhere = trainsweep(bed)
    elsewhere["spec"]["storage"]["uri"] = "s3://no-such-bucket-here/sweeps"
    bed.apply(elsewhere)
    status = sweep.wait("it is refused", lambda s: s.get("reason") == "StorageMisconfigured")
    assert "no-such-bucket-here" in status["message"]
