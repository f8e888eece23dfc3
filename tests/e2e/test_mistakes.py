"""What users get wrong: the status says what is missing, and a run goes on once it is there."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.e2e.support.audit import refused_creations
from tests.e2e.support.bed import PYTHON_IMAGE, a_bed
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.incidents import succeeded, training, uids
from tests.e2e.support.pretending import copied, pretended_worker
from tests.e2e.support.workers import kill_worker
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import Json
    from tests.e2e.support.installation import Installation

pytestmark = pytest.mark.cluster

FOREIGN_KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "else"}
NO_CONFIG_MAP = {"envFrom": [{"configMapRef": {"name": "nowhere"}}]}
MORE_THAN_ALLOWED = {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}

MISTAKES: dict[str, dict[str, Any]] = {
    "wrong-secret": {"storage": {"credentialsSecretRef": {"name": "nowhere"}}},
    "wrong-keys": {"storage": {"credentialsSecretRef": {"name": "foreign"}}},
    "wrong-bucket": {"storage": {"uri": "s3://there-is-no-such-bucket/runs"}},
    "wrong-image": {"image": "localhost/trainrun/no-such-image:1"},
    "wrong-config-map": {"container": NO_CONFIG_MAP},
    "wrong-account": {"pod": {"serviceAccountName": "nobody"}},
    "too-large": {"gpus": 9},
    "invalid": {"container": MORE_THAN_ALLOWED},
}
PATIENT = {"health": {"heartbeatTimeout": "10s"}}
COMMON: dict[str, Any] = {"replicas": 1, "gpus": 0, "args": ["--steps", 10], **PATIENT}


@pytest.fixture(scope="module")
def mistaken(installation: Installation) -> Iterator[Bed]:
    """Runs with a mistake each, by name; all are applied at once, for all of them take a while."""
    with a_bed(installation.cluster, "mistakes") as bed:
        bed.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "foreign"},
                "stringData": FOREIGN_KEYS,
            }
        )
        bed.apply(*(bed.trainrun(name, **COMMON | mistake) for name, mistake in MISTAKES.items()))
        yield bed


def waits_for(run: ClusterRun, reason: str, *words: str) -> None:
    """Wait until the status says why no worker is there; nothing is counted for it."""
    status = run.wait(
        f"WorkersReady to say {reason}",
        lambda s: said(s, "WorkersReady")["reason"] == reason,
        seconds=120,
    )
    condition = run.condition("WorkersReady")
    assert (condition["status"], status["reason"]) == ("False", reason)
    assert condition["observedGeneration"] == 1
    for word in words:
        assert word in condition["message"]
    eventually(lambda: run.reasons().count(reason) == 1, what="it is told by one event")
    assert nothing_counted(status)


def said(status: Json, kind: str) -> Json:
    """A condition; an empty one where there is none."""
    found = [c for c in status.get("conditions", []) if c["type"] == kind]
    return found[0] if found else {"status": "", "reason": "", "message": ""}


def nothing_counted(status: Json) -> bool:
    return not status["failures"].get("counted") and not status.get("incidents")


def phases(run: ClusterRun) -> set[str]:
    return {pod["status"]["phase"] for pod in run.pods()}


def goes_on_when_mended(run: ClusterRun) -> None:
    """The mistake was taken back: the run succeeds, and it has cost nothing."""
    status = succeeded(run)
    assert nothing_counted(status)


def test_a_secret_that_is_not_there_is_named_and_waited_for(mistaken: Bed) -> None:
    run = ClusterRun(mistaken, "wrong-secret")
    waits_for(run, "ConfigError", "1 of 1 worker waiting", 'secret "nowhere" not found')

    secret = mistaken.json("secret", "storage")
    metadata = {"name": "nowhere"}
    mistaken.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **data_of(secret)})
    goes_on_when_mended(run)


def data_of(secret: Json) -> Json:
    return {"data": secret["data"]}


def test_a_config_map_that_is_not_there_is_named(mistaken: Bed) -> None:
    run = ClusterRun(mistaken, "wrong-config-map")
    waits_for(run, "ConfigError", 'configmap "nowhere" not found')


def test_an_image_that_is_not_there_is_named_and_may_be_corrected(mistaken: Bed) -> None:
    run = ClusterRun(mistaken, "wrong-image")
    waits_for(run, "ImagePull", "localhost/trainrun/no-such-image:1")

    mistaken.apply(mistaken.trainrun(run.name, **COMMON, image=PYTHON_IMAGE))
    goes_on_when_mended(run)


def test_a_service_account_that_is_not_there_is_named(mistaken: Bed) -> None:
    run = ClusterRun(mistaken, "wrong-account")
    waits_for(run, "Forbidden", "1 of 1 worker cannot be created", "nobody")


def test_more_gpus_than_any_node_has_is_told_and_may_be_corrected(mistaken: Bed) -> None:
    run = ClusterRun(mistaken, "too-large")
    waits_for(run, "Unschedulable", "3 Insufficient nvidia.com/gpu")

    mistaken.apply(mistaken.trainrun(run.name, **COMMON))
    goes_on_when_mended(run)


def test_a_template_that_makes_no_pod_fails_with_the_servers_words(mistaken: Bed) -> None:
    run = ClusterRun(mistaken, "invalid")
    status = run.wait_for_phase("Failed")
    words = "must be less than or equal to cpu limit"
    valid, failed = run.condition("TemplateValid"), run.condition("Failed")
    assert (valid["status"], valid["reason"]) == ("False", "InvalidTemplate")
    assert words in valid["message"]
    assert (failed["status"], failed["reason"]) == ("True", "InvalidTemplate")
    assert words in failed["message"]
    run.ends_with("InvalidTemplate")
    assert nothing_counted(status)
    assert run.pods() == []


def with_container(document: Json, container: Json) -> Json:
    """Another one stands before the one that trains: the habit of PyTorchJobs."""
    template = document["spec"]["workers"]["template"]["spec"]
    template["containers"].insert(0, {"image": PYTHON_IMAGE, **container})
    return document


@pytest.mark.case(
    "nodes",
    "The template has several containers, and none is called worker",
    counted="a new run fails",
)
def test_of_two_containers_one_has_to_say_that_it_trains(bed: Bed) -> None:
    document = bed.trainrun(**COMMON, container={"name": "pytorch"})
    bed.apply(with_container(document, {"name": "log-shipper", "command": ["sleep", "1"]}))
    run = ClusterRun(bed, "run")
    run.wait_for_phase("Failed")
    valid = run.condition("TemplateValid")
    assert (valid["status"], valid["reason"]) == ("False", "InvalidTemplate")
    assert valid["message"] == (
        'spec.containers: log-shipper, pytorch: none of these is named "worker"; rename the '
        "container that trains to worker"
    )
    assert run.pods() == []


@pytest.mark.case("nodes", "A container beside the training fails")
def test_a_container_that_dies_beside_the_training_is_named(bed: Bed) -> None:
    dies = {"name": "pytorch", "command": ["sh", "-c", "exit 3"]}
    bed.apply(with_container(bed.trainrun(**COMMON), dies))
    run = ClusterRun(bed, "run")
    succeeded(run)
    told = run.condition("ContainerFailed")
    name = run.pod(0)["metadata"]["name"]
    assert told["message"] == (
        f"container pytorch of worker {name} ended with exit code 3; see kubectl logs {name} "
        "-c pytorch"
    )
    assert run.reasons().count("ContainerFailed") == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [("wrong-keys", "InvalidAccessKeyId"), ("wrong-bucket", "there-is-no-such-bucket")],
)
def test_a_storage_that_refuses_us_fails_the_run_after_a_while(
    mistaken: Bed, name: str, words: str
) -> None:
    run = ClusterRun(mistaken, name)
    status = run.wait_for_phase("Failed", seconds=120)
    ready, failed = run.condition("StorageReady"), run.condition("Failed")
    assert (ready["status"], ready["reason"]) == ("False", "StorageMisconfigured")
    assert (failed["status"], failed["reason"]) == ("True", "StorageMisconfigured")
    assert words in failed["message"]
    run.ends_with("StorageMisconfigured")
    assert nothing_counted(status)


@pytest.mark.rare("tests/cluster/test_refused_workers.py")
def test_a_quota_is_told_and_makes_no_storm(bed: Bed) -> None:
    quota: Json = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    bed.apply({**quota, "spec": {"hard": {"pods": "1"}}})
    run = bed.run(**COMMON | {"replicas": 2})
    waits_for(run, "QuotaExceeded", "1 of 2 workers cannot be created", "exceeded quota: small")

    def tries() -> list[float]:
        return refused_creations(bed.cluster, bed.namespace, resource="pods")

    eventually(lambda: len(tries()) >= 5, timeout=60, what="four pauses between tries")
    moments = tries()[:5]
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    # Each is twice as long as the one before; a busy machine only makes them longer.
    assert all(pause > 0.9 * 2**number for number, pause in enumerate(pauses))

    bed.apply({**quota, "spec": {"hard": {"pods": "2"}}})
    goes_on_when_mended(run)


@pytest.mark.case("strangers", "A foreign pod has the name of the next worker")
@pytest.mark.rare("tests/worlds/kubernetes/test_pretended_workers.py")
def test_a_pod_that_pretends_to_be_a_worker_is_refused(bed: Bed) -> None:
    run = bed.run(args=["--attempts", 2], **PATIENT)
    before = training(run)
    # With its own token, the next number of creation, and all else as the operator writes it.
    pretender = pretended_worker(run.pod(1), name="run-1-2")
    bed.apply(pretender)
    bed.kubectl("wait", "pod/run-1-2", "--for=jsonpath={.status.phase}=Running", "--timeout=90s")
    eventually(
        lambda: "does not accept this agent" in run.log("run-1-2"),
        timeout=90,
        what="it is told that it is no worker",
    )
    assert "this operator did not create it" in run.log("run-1-2")
    before.nothing_happened()

    kill_worker(run, 1)
    before.one_incident("Unknown")
    assert run.pod(1)["metadata"]["name"] == "run-1-3"
    assert before.replaced() == {1}
    assert uids(run)[1] != bed.json("pod", "run-1-2")["metadata"]["uid"]
    succeeded(run)


@pytest.mark.case("strangers", "Somebody copies a worker with kubectl")
@pytest.mark.rare("tests/worlds/kubernetes/test_pretended_workers.py")
def test_copies_of_a_worker_end_nothing_and_hide_nothing(
    bed: Bed, installation: Installation
) -> None:
    run = bed.run(args=["--attempts", 2], **PATIENT)
    before = training(run)
    worker = run.pod(1)
    with a_bed(installation.cluster, "neighbour") as neighbour:
        for namespace, name in ((bed, "run-1-1-copy"), (neighbour, "run-1-1")):
            owned = namespace is bed
            namespace.apply(copied(worker, name=name, command=["false"], owned=owned))
            namespace.kubectl(
                "wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Failed", "--timeout=90s"
            )
        eventually(lambda: run.reasons().count("PodIgnored") == 2, timeout=60)
        before.nothing_happened()

        kill_worker(run, 1)
        before.one_incident("Unknown")
        assert before.replaced() == {1}
    succeeded(run)


def test_a_script_that_cannot_load_the_checkpoint_harms_none(bed: Bed) -> None:
    options: dict[str, Any] = {"gpus": 0, "failurePolicy": {"maxFailures": 1}, **PATIENT}
    run = bed.run(args=["--attempts", 99], **options)
    training(run)
    bed.apply(bed.trainrun(args=["--attempts", 99, "--cannot-load"], **options))

    status = run.wait_for_phase("Failed", seconds=120)
    assert status["failures"]["text"] == "2/1"
    assert run.condition("Failed")["reason"] == "MaxFailuresExceeded"
    assert "KeyError: 'weights'" in run.incidents[-1]["message"]
    points = [incident["resumedFrom"] for incident in run.incidents if "resumedFrom" in incident]
    step = status["internal"]["startRecord"]["resumePoint"]["step"]
    assert points == [status["internal"]["startRecord"]["resumePoint"]]
    assert run.newest_step() == step, "the checkpoint that it could not load is the newest still"

    eventually(lambda: phases(run) == {"Failed"}, timeout=60, what="its workers have left")
    run.delete()
    bed.apply(bed.trainrun(**options))
    status = succeeded(run)
    assert status["internal"]["startRecord"]["resumePoint"]["step"] == step
    assert nothing_counted(status)
