"""`trainrun sweep pause|stop|resume` of a name in a cluster, on a real API server."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import Result

from tests.cli.sweeping.cluster_sweeps import ClusterSweeps, call
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.kube.api_server import POWERLESS_TOKEN
from tests.support.kubeconfigs import written_kubeconfig
from tests.support.sweeps import asked, reported, told

if TYPE_CHECKING:
    from tests.kube.api_server import ApiServer
    from tests.support.trainruns import TrainRuns


def ask(*words: str | Path | int) -> Result:
    return call("sweep", *words)


@pytest.fixture
def cluster(sweeps: Sweeps, trainruns: TrainRuns) -> ClusterSweeps:
    """Of five trials one has ended, two are open, two have not begun."""
    sweeps.spec = {"budget": {"trials": 5}}
    made = ClusterSweeps(sweeps, trainruns)
    made.install()
    made.create(asked(0), asked(1), asked(2), told(0), reported(2, s1=0.25))
    return made


def test_pausing_changes_that_field_alone(cluster: ClusterSweeps) -> None:
    before = cluster.raw()
    paused = ask("pause", "lr", 1, "-n", cluster.objects.namespace)
    assert paused.exit_code == 0, paused.output
    assert paused.output == (
        f"{cluster.where}: trial 1 is paused; no operator leads the sweep yet; the first one that "
        "does will apply this\n"
    )
    after = cluster.raw()
    assert after["spec"] == {**before["spec"], "pausedTrials": [1]}
    (mine,) = [it for it in after["metadata"]["managedFields"] if it["manager"] == "trainrun"]
    assert list(mine["fieldsV1"]["f:spec"]) == ["f:pausedTrials"]
    again = ask("pause", cluster.where, 1)
    assert again.output == f"{cluster.where}: nothing to change: trial 1 is paused\n"
    assert cluster.raw()["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


def test_a_paused_trial_is_resumed_or_stopped_for_good(cluster: ClusterSweeps) -> None:
    cluster.says(phase="Running", reason="TrialsAtWork")
    ask("pause", cluster.where, 1, 2, 3)
    resumed = ask("resume", cluster.where, 2)
    now = "the operator applies this now"
    assert resumed.output == f"{cluster.where}: trial 2 is not paused; {now}\n"
    assert cluster.lists() == (False, [1, 3], None)
    assert "trial 3 is stopped for good" in ask("stop", cluster.where, 3).output
    assert cluster.lists() == (False, [1], [3])
    for verb, said in (("pause", "paused"), ("resume", "resumed")):
        refused = ask(verb, cluster.where, 3)
        assert refused.exit_code == 2
        assert f"trial 3 cannot be {said}: spec.stoppedTrials" in refused.output
    assert cluster.lists() == (False, [1], [3])


def test_without_a_number_the_whole_sweep_waits_and_goes_on(cluster: ClusterSweeps) -> None:
    assert "all trials save and wait" in ask("pause", cluster.where).output
    ask("pause", cluster.where, 1)
    noted = ask("resume", cluster.where, 1)
    command = f"`trainrun sweep resume {cluster.where}`"
    assert f"note: spec.suspend is true: no trial continues until {command}" in noted.output
    ask("pause", cluster.where, 1)
    assert cluster.lists() == (True, [1], None)
    assert "all trials may continue" in ask("resume", cluster.where).output
    assert cluster.lists() == (False, [], None)


def test_trials_that_have_ended_or_do_not_exist_are_told_of(cluster: ClusterSweeps) -> None:
    stopped = ask("stop", cluster.where, 0, 4)
    assert stopped.output.splitlines()[:2] == [
        "note: trial 0 has ended (Succeeded)",
        "note: trial 4 has not started yet",
    ]
    assert cluster.lists()[2] == [4]
    refused = ask("pause", cluster.where, 1, 5)
    assert refused.exit_code == 2
    assert "there is no trial 5: the budget is 5 trials, numbered from 0" in refused.output
    assert cluster.lists()[1] is None


def test_as_json_it_says_what_was_changed(cluster: ClusterSweeps) -> None:
    done = json.loads(ask("stop", cluster.where, 0, 1, "--json").output)
    assert done == {
        "sweep": cluster.where,
        "changed": {"stoppedTrials": [1]},
        "outcome": "trial 1 is stopped for good",
        "notes": ["trial 0 has ended (Succeeded)"],
    }
    assert json.loads(ask("stop", cluster.where, 1, "--json").output)["changed"] == {}


def test_without_the_keys_of_the_storage_the_operators_words_count(cluster: ClusterSweeps) -> None:
    shutil.rmtree(cluster.sweeps.storage)
    ended = {"trial": 0, "state": "Diverged", "reason": "NotANumber"}
    cluster.says(phase="Running", running=[1], lastEnded=[ended])
    known = ask("pause", cluster.where, 0, 1)
    assert known.output.splitlines() == [
        "note: trial 0 has ended (Diverged)",
        f"{cluster.where}: trial 1 is paused; the operator applies this now",
    ]
    unknown = ask("pause", cluster.where, 3)
    assert "these trials may have ended: the log cannot be read" in unknown.output
    assert cluster.lists()[1] == [1, 3]


def test_who_may_not_is_told_which_role_would_let_him(
    cluster: ClusterSweeps, apiserver: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = apiserver.kubeconfig(tmp_path / "nobody", token=POWERLESS_TOKEN)
    monkeypatch.setenv("KUBECONFIG", str(config))
    role = f"in namespace {cluster.objects.namespace} (`kubectl auth can-i"
    blind = ask("pause", cluster.where, 1)
    assert blind.exit_code == 2
    assert blind.output.count("\n") == 1
    assert 'cannot get resource "trainsweeps"' in blind.output
    assert f"ask the cluster's administrator for the role view {role} get" in blind.output

    objects = cluster.objects
    resource = "--resource=trainsweeps.trainrun.dev"
    objects.kubectl("create", "role", "looks", "--verb=get", resource)
    objects.kubectl("create", "rolebinding", "looks", "--role=looks", "--user=nobody")
    may_look = ask("pause", cluster.where, 1)
    assert may_look.exit_code == 2
    assert 'cannot patch resource "trainsweeps"' in may_look.output
    assert f"for the role edit {role} patch" in may_look.output
    assert "trial 0: loss 0" in ask("best", cluster.where).output
    assert "Sweep " in call("explain", cluster.where).output, "also where runs may not be read"


def test_a_cluster_without_sweeps_is_told_so(
    own_apiserver: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own_apiserver.kubeconfig(tmp_path / "config")))
    found = ask("pause", "default/lr", 1)
    assert found.exit_code == 2
    assert "this cluster has no CRD for TrainSweep (" in found.output
    assert "install the operator's chart there, or choose another cluster" in found.output


def test_a_cluster_that_does_not_answer_or_is_not_configured_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(written_kubeconfig(tmp_path / "away", url)))
        for words in (("sweep", "pause", "team/lr"), ("sweep", "best", "lr"), ("explain", "lr")):
            away = call(*words)
            assert away.exit_code == 2
            assert away.output.startswith("error: the cluster of your kubeconfig does not answer (")
            assert "check whether `kubectl cluster-info` reaches it" in away.output
            assert away.output.count("\n") == 1
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    none = ask("pause", "team/lr", 1)
    assert none.exit_code == 2
    assert f"no cluster: {tmp_path / 'none'} does not exist; " in none.output
