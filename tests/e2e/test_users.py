"""What users do with a run that trains: suspend it, change it, delete it, and read what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from testbed.faults import nodes
from tests.e2e.support.bed import TORCH_IMAGE
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.incidents import Before, succeeded, training
from tests.e2e.support.lasting import a_lasting_run
from tests.e2e.support.spreading import on_different_nodes
from tests.e2e.support.workers import delete_pod, kill_training, kill_worker
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation
    from tests.e2e.support.lasting import LastingRun

pytestmark = pytest.mark.cluster

HEALTH = {"heartbeatTimeout": "10s"}
STATUS_LIMIT = 16 * 1024
NOISY = ["--stories", 50]
OPERATOR_GONE = pytest.mark.rare(
    "tests/e2e/test_users.py::test_a_run_deleted_in_the_middle_of_a_restart_takes_its_pods_along"
)


@pytest.fixture(scope="module")
def run(installation: Installation) -> Iterator[LastingRun]:
    """Two workers that train until the last test that takes them; the tests take them in turn."""
    with a_lasting_run(installation.cluster, "users", replicas=2, gpus=0, health=HEALTH) as lasting:
        yield lasting


def images(run: ClusterRun) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in run.pods()}


def wait_until_without_pods(run: ClusterRun) -> None:
    eventually(lambda: run.pods() == [], timeout=90, what="its pods are gone")


def went_on(before: Before) -> Before:
    """Wait until the next attempt trains, from what was saved; nothing was counted for it."""
    run = before.run
    run.wait_for_attempt(before.attempt + 1, seconds=120)
    after = training(run)
    assert after.attempt == before.attempt + 1
    assert (after.failures, after.preemptions) == (before.failures, before.preemptions)
    assert run.incidents == []
    assert run.status["internal"]["startRecord"]["resumePoint"]["step"] >= before.committed
    return after


def test_a_suspended_run_gives_its_pods_back_and_resumes_with_another_image(
    run: LastingRun,
) -> None:
    before = training(run)
    run.patch({"suspend": True})
    status = run.wait_for_phase("Suspended", seconds=120)
    saved = status["checkpoint"]
    assert saved["step"] == run.newest_step()
    assert saved["step"] >= before.committed
    assert run.condition("Suspended")["status"] == "True"
    eventually(lambda: ("Suspended", "the run is suspended") in run.events())
    wait_until_without_pods(run)

    run.apply_again(image=TORCH_IMAGE)
    assert run.status["phase"] == "Suspended"
    run.patch({"suspend": False})
    went_on(before)
    assert run.status["internal"]["startRecord"]["resumePoint"]["step"] == saved["step"]
    assert images(run) == {TORCH_IMAGE}
    eventually(lambda: ("Resumed", "the run continues") in run.events())
    assert run.condition("Suspended")["status"] == "False"


def test_an_edited_template_replaces_every_worker_after_saving(run: LastingRun) -> None:
    before = training(run)
    told = run.reasons().count("TemplateChanged")
    edit = {"name": "EDITED", "value": f"in attempt {before.attempt}"}
    run.apply_again(container={"env": [edit]})
    after = went_on(before)
    assert before.replaced() == {0, 1}
    made_from = {
        pod["metadata"]["labels"]["trainrun.dev/template-hash"]
        for pod in run.pods()
        if "deletionTimestamp" not in pod["metadata"]  # those of before may not be gone yet
    }
    assert made_from == {run.status["internal"]["startRecord"]["templateHash"]}
    eventually(lambda: run.reasons().count("TemplateChanged") == told + 1)
    assert after.attempt == before.attempt + 1


def test_a_run_that_was_deleted_resumes_when_it_is_applied_again(run: LastingRun) -> None:
    before = training(run)
    run.delete()
    wait_until_without_pods(run)
    run.apply_again()
    after = training(run)
    resumed = run.status["internal"]["startRecord"]["resumePoint"]
    assert resumed["attempt"] == before.attempt
    # What its workers have stored after that is used as well.
    assert resumed["step"] >= before.committed
    (message,) = [message for reason, message in run.events() if reason == "ResumedExisting"]
    assert f"step {resumed['step']} of attempt {resumed['attempt']}" in message
    assert "StorageInUse" not in run.reasons(), "its workers gave the storage back"
    assert after.attempt == before.attempt + 1


@pytest.mark.after_all_of_its_file
def test_after_all_that_it_has_learned_what_an_undisturbed_run_learns(run: LastingRun) -> None:
    training(run)
    status = run.finish()
    assert status["failures"]["text"] == "0/3"
    assert run.incidents == []
    run.ends_with("Succeeded")


@pytest.mark.parametrize(
    "operator",
    [
        "there",
        pytest.param("gone", marks=OPERATOR_GONE),
    ],
)
def test_a_run_deleted_in_the_middle_of_a_restart_takes_its_pods_along(
    bed: Bed, installation: Installation, operator: str
) -> None:
    run = bed.run(gpus=0, args=["--attempts", 9], health=HEALTH)
    training(run)
    if operator == "gone":
        installation.scale(0)
    try:
        kill_training(run, 1)
        run.delete()
        wait_until_without_pods(run)
        assert run.newest_step() is not None, "what it has saved stays"
    finally:
        installation.scale(2)
        installation.wait_for_leader()


@pytest.mark.rare("tests/core/run/stages/test_finished.py")
def test_limits_of_time_and_of_kept_workers_are_obeyed(bed: Bed) -> None:
    small: dict[str, Any] = {"replicas": 1, "gpus": 0, "health": HEALTH}
    endless = ["--attempts", 9]
    short_lived = bed.run("short-lived", args=["--steps", 5], ttlAfterFinished="5s", **small)
    limited = bed.run("limited", args=endless, activeDeadline="45s", **small)
    tidy, curious = (
        bed.run(name, args=endless, retainFailedWorkers=kept, **small)
        for name, kept in (("tidy", 0), ("curious", 1))
    )
    for attempt in (1, 2):
        for run in (tidy, curious):
            run.wait_for_attempt(attempt)
            assert training(run).attempt == attempt
            kill_worker(run, 0)
    ended = {"tidy": set[str](), "curious": {"curious-0-2"}}
    for run in (tidy, curious):
        run.wait_for_attempt(3)
        eventually(
            lambda run=run: set(pods_that_ended(run)) == ended[run.name],
            timeout=60,
            what=f"{ended[run.name]} is kept of {run.name}",
        )

    eventually(lambda: bed.json("trainruns")["items"] and not exists(short_lived), timeout=60)
    wait_until_without_pods(short_lived)
    assert short_lived.newest_step() == 5

    limited.wait("the deadline", lambda s: s["phase"] == "Failed", seconds=120)
    failed = limited.condition("Failed")
    assert failed["reason"] == "DeadlineExceeded"
    assert "spec.activeDeadline (45 s) is over" in failed["message"]
    limited.ends_with("DeadlineExceeded")
    assert limited.incidents == []


def pods_that_ended(run: ClusterRun) -> list[str]:
    return [p["metadata"]["name"] for p in run.pods() if p["status"]["phase"] == "Failed"]


def exists(run: ClusterRun) -> bool:
    return run.name in {r["metadata"]["name"] for r in run.bed.json("trainruns")["items"]}


@pytest.mark.usefixtures("mended")
@pytest.mark.rare("tests/core/run/test_display.py")
def test_describe_tells_a_stranger_what_has_happened(bed: Bed, installation: Installation) -> None:
    run = bed.run(
        "bert",
        replicas=2,
        gpus=0,
        args=["--attempts", 4],
        pod=on_different_nodes("bert"),
        failurePolicy={"maxFailures": 3, "maxPreemptions": -1, "backoff": {"initial": "0s"}},
        health={"heartbeatTimeout": "5s"},
    )
    told = []
    before = training(run)
    kill_training(run, 1)
    told.append(before.one_incident("AppError"))
    before = training(run)
    delete_pod(run, 1)
    told.append(before.one_incident("Preempted"))
    node = run.pod(0)["spec"]["nodeName"]
    installation.lead_elsewhere(node)
    before = training(run)
    nodes.power_off(bed.cluster, node)
    told.append(before.one_incident("NodeLost"))
    succeeded(run)

    shown = run.describe()
    incidents, events = shown[shown.index("Incidents:") :].split("Events:")
    places = [incidents.index(incident["message"]) for incident in told]
    assert places == sorted(places)
    reasons = ["Accepted", "Started", "AppError", "SaveAsked", "Preempted", "NodeLost", "Succeeded"]
    places = [events.index(f" {reason} ") for reason in reasons]
    assert places == sorted(places)
    (line,) = bed.kubectl("get", "trainruns", "--no-headers").splitlines()
    assert line.split()[:6] == ["bert", "Succeeded", "2/2", str(run.newest_step()), "1/3", "3"]
    wide = bed.kubectl("get", "trainruns", "--no-headers", "--output", "wide")
    assert f"NodeLost   {node}" in wide


@pytest.mark.case("decisions", "Workers of several runs are lost on one node again and again")
@pytest.mark.rare("tests/core/run/test_status_size.py")
def test_the_status_stays_small_however_much_goes_wrong_and_a_node_shows_it(bed: Bed) -> None:
    killed = bed.run(
        "killed",
        replicas=1,
        gpus=0,
        args=["--pace", 0.01, "--kill-at", 7, "--bad-rank", 0, "--bad-attempts", 99],
        health=HEALTH,
    )
    run = bed.run(
        replicas=1,
        gpus=0,
        args=["--pace", 0.01, "--fail-at", 7, "--bad-rank", 0, "--bad-attempts", 99, *NOISY],
        failurePolicy={"maxFailures": 11, "backoff": {"initial": "0s"}},
        health=HEALTH,
    )
    status = run.wait_for_phase("Failed", seconds=180)
    assert status["failures"]["text"] == "12/11"
    assert len(run.incidents) == 10
    assert run.incidents[-1]["lastLines"][-1] == "about to fail"
    assert all("about to fail" in incident["message"] for incident in run.incidents)
    assert len(json.dumps(status)) < STATUS_LIMIT
    killed.wait_for_phase("Failed", seconds=180)
    node = killed.incidents[0]["node"]
    told = f"TrainRun {bed.namespace}/killed (AppError) occurred 3 or more times here"
    eventually(
        lambda: any(told in message for message in node_events(bed, node)),
        what=f"an event on node {node} that tells of its incidents",
    )


def node_events(bed: Bed, node: str) -> list[str]:
    """What `kubectl describe node` shows of TrainRuns."""
    selector = f"involvedObject.name%3D{node},reason%3DTrainRunIncidents"
    path = f"/api/v1/namespaces/default/events?fieldSelector={selector}"
    return [event["message"] for event in bed.api.get(path)["items"]]
