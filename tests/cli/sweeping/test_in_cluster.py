"""A search by its name in a cluster: what is told of it, on a real API server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.sweeping.cluster_sweeps import ClusterSweeps, call
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.support.sweeps import asked, reported, told
from tests.support.trainruns import TrainRuns
from trainrun.sweep.records import Ask, End, Record
from trainrun_operator.api.base import API_VERSION

SOME: tuple[Record, ...] = (
    *(Ask(trial, {"lr": 0.01 * (trial + 1)}) for trial in range(3)),
    told(0, value="0.5", step=2),
    told(1, "Errored", reason="AppError", message="why\nmore", restarts=1),
    reported(2, s1=0.25),
)
RUNNING = {"phase": "Running", "reason": "TrialsAtWork", "message": "1 trial at work"}


@pytest.fixture
def cluster(sweeps: Sweeps, trainruns: TrainRuns, monkeypatch: pytest.MonkeyPatch) -> ClusterSweeps:
    monkeypatch.chdir(sweeps.folder)
    made = ClusterSweeps(sweeps, trainruns)
    made.install()
    return made


def sweep(*words: str | Path | int) -> Result:
    return call("sweep", *words)


def squeezed(text: str) -> str:
    """Without spaces: a path that is longer than a line is broken anywhere."""
    return "".join(text.split())


def clerk(status: str, reason: str, message: str) -> dict[str, Any]:
    when = "2026-11-03T10:00:00Z"
    it = {"type": "ClerkReady", "status": status, "reason": reason, "message": message}
    return {**it, "lastTransitionTime": when, "observedGeneration": 1}


def test_what_is_told_of_a_name_is_what_is_told_of_its_folder(cluster: ClusterSweeps) -> None:
    cluster.create(*SOME)
    for verb in ("trials", "best", "can-restore"):
        by_name = sweep(verb, cluster.where)
        assert by_name.exit_code == 0, by_name.output
        assert by_name.output == sweep(verb, cluster.folder).output
    as_rows = sweep("trials", "lr", "-n", cluster.objects.namespace, "--json")
    assert [json.loads(line)["trial"] for line in as_rows.output.splitlines()] == [0, 1, 2]
    table = sweep("export", cluster.where, "--csv", "-")
    assert table.output == sweep("export", cluster.folder, "--csv", "-").output
    assert sweep("plot", cluster.where).output == "lr.html\n"
    assert "<html" in (cluster.sweeps.folder / "lr.html").read_text()


def test_a_name_describes_the_search_that_it_can_restore(cluster: ClusterSweeps) -> None:
    cluster.sweeps.write(*SOME)
    cluster.sweeps.spec = {"sampler": {"seed": 7}}
    cluster.create()
    found = sweep("can-restore", cluster.where)
    assert found.exit_code == 3
    assert "holds a search with another sampler.seed" in found.output


def test_the_status_has_the_operators_words_and_what_the_log_knows(cluster: ClusterSweeps) -> None:
    cluster.create(*SOME)
    cluster.says(**RUNNING, running=[2], conditions=[clerk("True", "Ready", "")])
    found = sweep("status", cluster.where)
    assert found.output.splitlines() == [
        f"TrainSweep {cluster.where}: Running (TrialsAtWork): 1 trial at work",
        "  trials       2/4 ended: 1 succeeded, 1 errored, 1 open",
        "  time         1.0 s with trials at work",
        "  best         trial 2: loss 0.25 at step 1",
        "               lr=0.03",
        "  running      2",
        "  sessions     1",
        "  last ended   trial 1 Errored: AppError: why; 1 restart",
        "               trial 0 Succeeded: loss 0.5 at step 2",
    ]
    told_all = json.loads(sweep("status", cluster.where, "--json").output)
    assert (told_all["object"], told_all["budget"]) == (cluster.where, 4)
    assert told_all["status"]["phase"] == "Running"
    assert told_all["status"]["asked"] == 3, "of the log, which is newer"
    assert told_all["status"]["conditions"][0]["type"] == "ClerkReady"


def test_the_status_needs_no_keys_of_the_storage(cluster: ClusterSweeps) -> None:
    cluster.create(*SOME)
    shutil.rmtree(cluster.sweeps.storage)
    ended = {"trial": 1, "state": "Errored", "reason": "AppError", "message": "why", "restarts": 2}
    value = {"value": "0.8493827160493827", "text": "0.849383"}
    best = {"trial": 0, **value, "step": 9, "params": {"lr": 0.1}}
    cluster.says(
        **RUNNING, asked=3, trials={"open": 1, "text": "2/4"}, best=best, lastEnded=[ended]
    )
    found = sweep("status", cluster.where)
    assert found.exit_code == 0, found.output
    *lines, remark = found.output.splitlines()
    assert lines == [
        f"TrainSweep {cluster.where}: Running (TrialsAtWork): 1 trial at work",
        "  trials       2/4 ended: 1 open",
        "  best         trial 0: loss 0.849383 at step 9",
        "               lr=0.1",
        "  last ended   trial 1 Errored: AppError: why; 2 restarts",
    ]
    assert remark.startswith("  the log cannot be read: ")
    told_all = json.loads(sweep("status", cluster.where, "--json").output)
    assert told_all["status"]["best"]["value"] == best["value"]
    assert "0.849383 " in cluster.objects.kubectl("get", "trainsweep", "lr")
    assert told_all["remark"].startswith("the log cannot be read: ")
    assert "sessions" not in told_all
    for refused in (sweep("trials", cluster.where), call("explain", cluster.where)):
        assert refused.exit_code == 1
        assert refused.output.count("\n") == 1
        assert f"`trainrun sweep status {cluster.where}` needs no credentials)" in refused.output


def test_a_sweep_that_cannot_begin_says_what_it_waits_for(cluster: ClusterSweeps) -> None:
    cluster.create()
    assert "Pending (NotLed): no operator has looked at it yet" in (
        sweep("status", cluster.where).output
    )
    conditions = [clerk("False", "StorageUnavailable", "no such bucket")]
    cluster.sweeps.storage.mkdir()
    cluster.says(
        phase="Pending", reason="StorageUnavailable", message="none", conditions=conditions
    )
    found = sweep("status", cluster.where)
    assert found.output.splitlines() == [
        f"TrainSweep {cluster.where}: Pending (StorageUnavailable): none",
        "  trials       0 ended: none yet",
        "  no clerk     StorageUnavailable: no such bucket",
    ]
    refused = sweep("best", cluster.where)
    assert refused.exit_code == 2
    assert f"there is no log yet; `trainrun sweep status {cluster.where}` shows" in refused.output


def test_a_search_is_explained_by_its_name(cluster: ClusterSweeps) -> None:
    cluster.create(*SOME)
    why = "the clerk's pod is gone"
    cluster.says(**RUNNING, conditions=[clerk("False", "ClerkLost", why)])
    found = call("explain", cluster.where)
    assert found.exit_code == 0, found.output
    text = " ".join(found.output.split())
    for part in (
        f"Sweep {cluster.where} is Running (TrialsAtWork): 1 trial at work; 3 trials with "
        "parameters, 1 open.",
        f"! ClerkReady is False (ClerkLost): {why}",
        "trial 1 errored (AppError) after 1 restart: why",
        "Best: trial 2, loss 0.25 at step 1, so far",
        "set spec.resume.resumeErrored: true and spec.resume.token: 1, then apply its file again "
        f"(or change it with `kubectl edit trainsweep lr -n {cluster.objects.namespace}`)",
    ):
        assert squeezed(part) in squeezed(text), text
    assert "no process on this machine" not in text
    as_json = json.loads(call("explain", "lr", "-n", cluster.objects.namespace, "--json").output)
    known = as_json["object"]
    assert (known["namespace"], known["name"]) == (cluster.objects.namespace, "lr")
    assert (known["phase"], known["conditions"][0]["reason"]) == ("Running", "ClerkLost")
    assert as_json["trials"]["asked"] == 3


@pytest.mark.parametrize(
    ("spec", "words"),
    [({"suspend": True}, ""), ({"pausedTrials": [0, 2]}, " 2")],
)
def test_what_holds_a_search_back_is_told_with_the_command(
    cluster: ClusterSweeps, spec: dict[str, Any], words: str
) -> None:
    cluster.sweeps.spec = spec
    cluster.create(*SOME)
    cluster.says(phase="Suspended", reason="Suspended", message="all are saved")
    text = call("explain", cluster.where).output
    assert squeezed(f"to continue: trainrun sweep resume {cluster.where}{words}-") in squeezed(text)


def test_a_search_that_nobody_leads_says_so(cluster: ClusterSweeps) -> None:
    cluster.create(*SOME)
    text = squeezed(call("explain", cluster.where).output)
    assert squeezed("is Pending (NotLed): no operator has looked at it yet") in text
    assert squeezed("no operator leads it: check that one is installed in this cluster") in text


def test_an_end_is_lifted_by_applying_the_file_again(cluster: ClusterSweeps) -> None:
    cluster.create(asked(0), told(0), End("Succeeded", "AllTrialsEnded", "all have ended"))
    text = squeezed(call("explain", cluster.where).output)
    assert squeezed("raise spec.budget.trials; then apply its file again (or change") in text


def test_a_run_and_a_sweep_of_one_name_are_told_apart(cluster: ClusterSweeps) -> None:
    cluster.create(*SOME)
    container = {"name": "w", "image": "x", "command": ["python", "t.py"]}
    template = {"spec": {"containers": [container]}}
    run = {
        "apiVersion": API_VERSION,
        "kind": "TrainRun",
        "metadata": {"name": "lr"},
        "spec": {
            "storage": {"uri": cluster.sweeps.storage.as_uri(), "runName": "run"},
            "workers": {"replicas": 1, "template": template},
        },
    }
    file = cluster.sweeps.folder / "run.json"
    file.write_text(json.dumps(run))
    cluster.objects.create_from(file)
    found = call("explain", cluster.where)
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("Run run ")
    assert found.stderr == (
        f"note: this is the TrainRun; there is a TrainSweep {cluster.where} too: trainrun explain "
        f"{cluster.folder.as_uri()}\n"
    )
    assert "TrainSweep" not in call("status", cluster.where).output
    assert sweep("best", cluster.where).output.startswith("trial 2: loss 0.25")


@pytest.mark.parametrize("verb", ["status", "logs", "checkpoints"])
def test_what_is_for_runs_points_to_what_is_for_sweeps(cluster: ClusterSweeps, verb: str) -> None:
    cluster.create(*SOME)
    for where in (cluster.where, str(cluster.sweeps.file())):
        found = call(verb, where)
        assert found.exit_code == 2
        assert found.output == (
            f"error: {where} is a TrainSweep, and this command takes a run, such as one of its "
            f"trials. See its state with `trainrun sweep status {where}`, its story with `trainrun "
            f"explain {where}`\n"
        )


def test_a_sweep_of_a_cluster_has_a_page(cluster: ClusterSweeps, tmp_path: Path) -> None:
    cluster.create(*SOME)
    page = tmp_path / "sweep.html"
    assert call("explain", cluster.where, "--html", str(page)).exit_code == 0
    assert "What to do next" in page.read_text()


def test_a_file_or_a_folder_of_that_name_goes_first(cluster: ClusterSweeps) -> None:
    cluster.create(*SOME)
    namespace = cluster.objects.namespace
    shutil.copytree(cluster.folder, Path(namespace) / "lr")
    (Path(namespace) / "lr" / "log" / "000000007.json").unlink()  # the reports of trial 2
    assert sweep("best", cluster.where).output.startswith("trial 0: loss 0.5")
    assert sweep("best", "lr", "--storage", cluster.sweeps.storage.as_uri()).output.startswith(
        "trial 2: loss 0.25"
    )


def test_a_name_that_is_not_there_is_one_line(cluster: ClusterSweeps) -> None:
    namespace = cluster.objects.namespace
    listed = f"in namespace {namespace}; `kubectl get trainsweeps -A` lists all, -n or NAMESPACE/"
    for verb in ("status", "pause"):
        found = sweep(verb, "none", "-n", namespace)
        assert found.exit_code == 2
        assert found.output.startswith(f"error: there is no TrainSweep none {listed}NAME names")
        assert found.output.count("\n") == 1
    for verb in ("explain", "logs", "status"):
        neither = call(verb, f"{namespace}/none")
        assert neither.exit_code == 2
        assert f"there is neither a TrainRun nor a TrainSweep none in {listed[3:13]}" in (
            neither.output
        )
