"""The scale subresource, as what reads it: Kubernetes' own controller of PodDisruptionBudgets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.binaries import binary
from tests.kube.api_server import ApiServer
from tests.support.eventually import eventually
from tests.support.trainruns import TrainRuns
from tests.worlds.kubernetes.sweeps import a_document
from tests.worlds.kubernetes.test_render import PLACE
from trainrun_operator.api.loading import read
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.core.run.boundary import CreateWorker
from trainrun_operator.core.run.config import config_of
from trainrun_operator.worlds.kubernetes.clerk_pod import ClerkImage, clerk_pod
from trainrun_operator.worlds.kubernetes.render import worker_pod

Json = dict[str, Any]

SWEEPS = Path(__file__).parents[3] / "crds" / TRAINSWEEP.file_name


@pytest.fixture(scope="module")
def disruptions(apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The controller, with the rights that Kubernetes gives it."""
    runs = TrainRuns(apiserver, "default")
    runs.install()
    # It looks for new kinds every half a minute only.
    runs.install(SWEEPS, name=TRAINSWEEP.name)
    folder = tmp_path_factory.mktemp("disruptions")
    config = apiserver.kubeconfig(folder / "config")
    options = {
        "kubeconfig": config,
        "controllers": "disruption-controller",
        "leader-elect": "false",
        "secure-port": "0",
        "use-service-account-credentials": "true",
    }
    command = [binary("kube-controller-manager"), *(f"--{k}={v}" for k, v in options.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command], stdout=log, stderr=log
        )
    yield
    process.kill()
    process.wait()


def at(runs: TrainRuns, path: str) -> Json:
    found: Json = json.loads(runs.kubectl("get", f"--raw={path}"))
    return found


def scale_of(runs: TrainRuns, name: str = "digits") -> Json:
    return at(runs, TRAINRUN.path(runs.namespace, name) + "/scale")


def create(runs: TrainRuns, document: Json) -> Json:
    """As it is, in the namespace of these."""
    path = runs.server.directory / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))
    made: Json = json.loads(runs.kubectl("create", "--filename", str(path), "--output=json"))
    return made


def working(runs: TrainRuns, pod: Json) -> None:
    """A pod that its kubelet calls ready."""
    pod["spec"].setdefault("serviceAccountName", "default")
    pod["metadata"]["namespace"] = runs.namespace
    name = create(runs, pod)["metadata"]["name"]
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    patch = json.dumps({"status": ready})
    runs.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", f"--patch={patch}")


def gang(runs: TrainRuns, name: str, size: int) -> list[str]:
    """A run and its workers, whose names it returns."""
    raw = runs.get(name)
    run = read({k: v for k, v in raw.items() if k != "status"}, TRAINRUN, source="")
    template = raw["spec"]["workers"]["template"]
    template["spec"]["containers"][0].setdefault("image", "i")
    actions = [
        CreateWorker(name=f"{name}-{slot}-1", slot=slot, created_for=1, template_hash="h")
        for slot in range(size)
    ]
    for action in actions:
        working(runs, worker_pod(run, config_of(run), template, action, PLACE))
    return [action.name for action in actions]


def budget(runs: TrainRuns, name: str, **spec: Any) -> None:
    selector = spec.pop("selector", {})
    head = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    create(runs, {**head, "spec": {"selector": selector, **spec}})


def computed(runs: TrainRuns, name: str) -> tuple[int, int, int]:
    """Expected, healthy, and how many may be taken away."""
    found = json.loads(runs.kubectl("get", "pdb", name, "--output=json")).get("status") or {}
    return tuple(
        found.get(key, -1) for key in ("expectedPods", "currentHealthy", "disruptionsAllowed")
    )


def becomes(runs: TrainRuns, name: str, counts: tuple[int, int, int]) -> None:
    eventually(
        lambda: computed(runs, name) == counts,
        timeout=30,
        what=f"{name} is {counts}",
    )


def evicted(runs: TrainRuns, name: str) -> bool:
    """Whether a drain would get rid of this pod now."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = runs.server.directory / "eviction.json"
    path.write_text(json.dumps(body))
    raw = f"/api/v1/namespaces/{runs.namespace}/pods/{name}/eviction"
    try:
        runs.kubectl("create", f"--raw={raw}", "--filename", str(path))
    except subprocess.CalledProcessError as error:
        if "disruption budget" not in error.stderr:
            raise
        return False
    return True


def test_a_run_has_a_scale_that_says_how_many_workers_it_has_and_which(
    trainruns: TrainRuns,
) -> None:
    run = trainruns.create(workers={"replicas": 3})
    uid = run["metadata"]["uid"]
    found = scale_of(trainruns)
    assert (found["kind"], found["metadata"]["uid"]) == ("Scale", uid)
    assert (found["spec"], found["status"]) == ({"replicas": 3}, {"replicas": 0})
    workers = {"ready": 2, "total": 3, "selector": f"trainrun.dev/run-uid={uid}"}
    trainruns.apply_status({"workers": workers}, manager="operator")
    assert scale_of(trainruns)["status"] == {"replicas": 2, "selector": workers["selector"]}
    names = gang(trainruns, "digits", 2)
    found = trainruns.kubectl("get", "pods", "--output=name", f"--selector={workers['selector']}")
    assert found.split() == [f"pod/{name}" for name in names]


def test_a_run_cannot_be_scaled(trainruns: TrainRuns) -> None:
    trainruns.create(workers={"replicas": 3})
    with pytest.raises(subprocess.CalledProcessError) as refused:
        trainruns.kubectl("scale", "trainrun/digits", "--replicas=2")
    assert "spec.workers.replicas" in refused.value.stderr
    assert "cannot be changed" in refused.value.stderr
    trainruns.kubectl("scale", "trainrun/digits", "--replicas=3")
    assert scale_of(trainruns)["spec"] == {"replicas": 3}


@pytest.mark.usefixtures("disruptions")
def test_a_budget_of_cluster_policies_lets_one_worker_go_at_a_time(trainruns: TrainRuns) -> None:
    trainruns.create(workers={"replicas": 4})
    names = gang(trainruns, "digits", 4)
    budget(trainruns, "one", maxUnavailable=1)
    becomes(trainruns, "one", (4, 4, 1))
    assert evicted(trainruns, names[0])
    becomes(trainruns, "one", (4, 3, 0))
    assert not evicted(trainruns, names[1])


@pytest.mark.case("nodes", "A PodDisruptionBudget selects workers or clerks", counted="its cause")
@pytest.mark.usefixtures("disruptions")
@pytest.mark.parametrize(
    ("spec", "allowed"),
    [({"maxUnavailable": "50%"}, 2), ({"minAvailable": "75%"}, 1), ({"maxUnavailable": 0}, 0)],
    ids=str,
)
def test_a_budget_in_percent_counts_the_workers_of_the_run(
    trainruns: TrainRuns, spec: Json, allowed: int
) -> None:
    trainruns.create(workers={"replicas": 4})
    gang(trainruns, "digits", 4)
    budget(trainruns, "share", **spec)
    becomes(trainruns, "share", (4, 4, allowed))


@pytest.mark.usefixtures("disruptions")
def test_a_budget_over_a_namespace_counts_the_clerks_of_its_sweeps_as_well(
    trainruns: TrainRuns,
) -> None:
    trainruns.create(workers={"replicas": 2})
    gang(trainruns, "digits", 2)
    document = a_document()
    del document["metadata"]["namespace"], document["metadata"]["uid"]
    raw = create(trainruns, document)
    scale = at(trainruns, TRAINSWEEP.path(trainruns.namespace, "search") + "/scale")
    assert scale["spec"] == {"replicas": 1}
    sweep = read({k: v for k, v in raw.items() if k != "status"}, TRAINSWEEP, source="")
    clerk = clerk_pod(sweep, creation=1, image=ClerkImage(image="i"), place=PLACE)
    clerk["spec"]["containers"][0]["volumeMounts"].pop(0)
    working(trainruns, clerk)
    budget(trainruns, "all", maxUnavailable=1)
    becomes(trainruns, "all", (3, 3, 1))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        trainruns.kubectl("scale", "trainsweep/search", "--replicas=2")
    assert "spec.clerk.replicas" in refused.value.stderr
