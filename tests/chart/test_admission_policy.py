"""The chart's ValidatingAdmissionPolicy before a real API server, as the operator's account."""

from __future__ import annotations

import copy
import json
import secrets
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.chart.rendering import Manifest, of_kind, render
from tests.support.eventually import eventually
from tests.worlds.kubernetes.sweeps import a_sweep
from tests.worlds.kubernetes.test_render import ACTION, PLACE, a_run, plain
from trainrun_operator.core.run.config import config_of
from trainrun_operator.worlds.kubernetes.clerk_pod import ClerkImage, clerk_pod
from trainrun_operator.worlds.kubernetes.render import worker_pod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube.api_server import ApiServer

OWNER = {
    "apiVersion": "trainrun.dev/v1alpha1",
    "kind": "TrainRun",
    "name": "digits",
    "uid": "00000000-0000-0000-0000-000000000001",
    "controller": True,
}
NOTHING = {
    "privileged": False,
    "hostPath": False,
    "hostNamespaces": False,
    "nodeName": False,
    "criticalPriority": False,
    "everyTaint": False,
}
KINDS = (
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ClusterRole",
    "ClusterRoleBinding",
)
SOON = 60.0


def a_pod(*owners: dict[str, Any], **spec: Any) -> Manifest:
    """A pod with these owners, and what its template asked for besides a container."""
    container = {"name": "worker", "image": "train:1"} | spec.pop("container", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "worker-", "ownerReferences": list(owners)},
        "spec": {"serviceAccountName": "trainer", "containers": [container], **spec},
    }


WORKER = a_pod(OWNER)


@dataclass(frozen=True, kw_only=True)
class Account:
    """The operator's account, under the policy of some values."""

    server: ApiServer
    folder: Path
    release: str

    def create(self, pod: Manifest, *, namespace: str = "default", dry: bool = True) -> str:
        """The name of the pod; CalledProcessError if it is refused."""
        path = self.folder / f"{secrets.token_hex(4)}.json"
        path.write_text(json.dumps(pod))
        options = ("--dry-run=server",) if dry else ()
        made = self.server.kubectl(
            *("create", "--namespace", namespace, "--filename", str(path), "--output=json"),
            *(*options, *self._as_it),
        )
        return str(json.loads(made)["metadata"]["name"])

    def refusal(self, pod: Manifest, *, namespace: str = "default") -> str:
        """Why the pod is refused; empty if it is not."""
        try:
            self.create(pod, namespace=namespace)
        except subprocess.CalledProcessError as error:
            return _reason(error)
        return ""

    def refusal_to_delete(self, name: str, *, namespace: str = "default") -> str:
        """Why the pod may not be deleted; empty if it was."""
        try:
            self.server.kubectl(
                *("delete", "pod", name, "--namespace", namespace, "--wait=false"), *self._as_it
            )
        except subprocess.CalledProcessError as error:
            return _reason(error)
        return ""

    @property
    def _as_it(self) -> tuple[str, ...]:
        return (f"--as=system:serviceaccount:trainrun:{self.release}-trainrun",)


def _reason(error: subprocess.CalledProcessError) -> str:
    """What the policy said; an error of another kind as it is."""
    text = str(error.stderr).strip()
    assert "is forbidden" in text, text
    return text.rpartition("denied request: ")[2]


@contextmanager
def under(server: ApiServer, folder: Path, release: str, policy: Manifest) -> Iterator[Account]:
    """The account of a release of its own, while its policy is in force."""
    manifests = render({"admissionPolicy": {"enabled": True, **policy}}, release=release)
    path = folder / f"{release}.json"
    items = [each for kind in KINDS for each in of_kind(manifests, kind)]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    server.kubectl("apply", "--server-side", "--filename", str(path))
    account = Account(server=server, folder=folder, release=release)
    eventually(lambda: account.refusal(a_pod()), timeout=SOON, what="the policy is not in force")
    yield account
    server.kubectl("delete", "--filename", str(path))  # other tests use this server, too


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.fixture(scope="module")
def wide(apiserver: ApiServer, folder: Path) -> Iterator[Account]:
    """Templates may ask for everything."""
    with under(apiserver, folder, "wide", {}) as account:
        yield account


@pytest.fixture(scope="module")
def narrow(apiserver: ApiServer, folder: Path) -> Iterator[Account]:
    """Templates may ask for nothing."""
    policy = {"allow": NOTHING, "serviceAccounts": ["trainer"]}
    with under(apiserver, folder, "narrow", policy) as account:
        yield account


OWNED = (
    "the operator of TrainRun may create and delete only pods that a TrainRun or a TrainSweep owns"
)
ASKING = {
    "privileged": (
        {"container": {"securityContext": {"privileged": True}}},
        "no worker of a TrainRun may have a privileged container here "
        "(the chart's value admissionPolicy.allow.privileged)",
    ),
    "a privileged init container": (
        {"initContainers": [{"name": "i", "image": "i", "securityContext": {"privileged": True}}]},
        "no worker of a TrainRun may have a privileged container here "
        "(the chart's value admissionPolicy.allow.privileged)",
    ),
    "hostPath": (
        {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        "no worker of a TrainRun may mount folders of its node here "
        "(the chart's value admissionPolicy.allow.hostPath)",
    ),
    "hostNetwork": (
        {"hostNetwork": True},
        "no worker of a TrainRun may use hostNetwork, hostPID or hostIPC here "
        "(the chart's value admissionPolicy.allow.hostNamespaces)",
    ),
    "hostPID": (
        {"hostPID": True},
        "no worker of a TrainRun may use hostNetwork, hostPID or hostIPC here "
        "(the chart's value admissionPolicy.allow.hostNamespaces)",
    ),
    "nodeName": (
        {"nodeName": "n1"},
        "no worker of a TrainRun may pass the scheduler by with nodeName here "
        "(the chart's value admissionPolicy.allow.nodeName)",
    ),
    "a node's own priority": (
        {"priorityClassName": "system-node-critical"},
        "no worker of a TrainRun may have a priority class of the system here "
        "(the chart's value admissionPolicy.allow.criticalPriority)",
    ),
    "the priority of a cluster's own pods": (
        {"priorityClassName": "system-cluster-critical"},
        "no worker of a TrainRun may have a priority class of the system here "
        "(the chart's value admissionPolicy.allow.criticalPriority)",
    ),
    "a toleration of every taint": (
        {"tolerations": [{"operator": "Exists"}]},
        "no worker of a TrainRun may tolerate every taint, or that of the control plane, here "
        "(the chart's value admissionPolicy.allow.everyTaint)",
    ),
    "a toleration of every taint of one effect": (
        {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]},
        "no worker of a TrainRun may tolerate every taint, or that of the control plane, here "
        "(the chart's value admissionPolicy.allow.everyTaint)",
    ),
    "the control plane": (
        {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},
        "no worker of a TrainRun may tolerate every taint, or that of the control plane, here "
        "(the chart's value admissionPolicy.allow.everyTaint)",
    ),
    "another service account": (
        {"serviceAccountName": "admin"},
        "no worker of a TrainRun may use the service account admin here "
        "(the chart's value admissionPolicy.serviceAccounts)",
    ),
}


@pytest.mark.parametrize(("spec", "why"), ASKING.values(), ids=ASKING)
def test_what_templates_may_ask_for_is_bounded_by_values(
    wide: Account, narrow: Account, spec: dict[str, Any], why: str
) -> None:
    assert narrow.refusal(a_pod(OWNER, **copy.deepcopy(spec))) == why
    assert wide.refusal(a_pod(OWNER, **copy.deepcopy(spec))) == ""


def test_a_plain_worker_is_made_and_deleted_under_the_narrowest_policy(narrow: Account) -> None:
    template = plain("python", "train.py", image="train:1")
    template["spec"]["serviceAccountName"] = "trainer"
    template["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    run = a_run(template)
    pod = worker_pod(run, config_of(run), template, ACTION, PLACE)
    del pod["metadata"]["namespace"]
    name = narrow.create(pod, dry=False)
    assert narrow.refusal_to_delete(name) == ""


def test_a_sweep_gets_its_clerk_under_the_narrowest_policy(narrow: Account) -> None:
    pod = clerk_pod(a_sweep(), creation=1, image=ClerkImage(image="ours"), place=PLACE)
    del pod["metadata"]["namespace"]
    name = narrow.create(pod, dry=False)
    assert narrow.refusal_to_delete(name) == ""


@pytest.mark.parametrize(
    "owners",
    [
        (),
        ({**OWNER, "controller": False},),
        ({**OWNER, "apiVersion": "batch/v1", "kind": "Job"},),
        ({**OWNER, "apiVersion": "example.com/v1"},),
    ],
    ids=["nobody's", "not controlled", "a job's", "another TrainRun's"],
)
def test_only_pods_that_a_trainrun_or_a_sweep_owns_are_made_and_deleted(
    wide: Account, owners: tuple[dict[str, Any], ...]
) -> None:
    pod = a_pod(*owners)
    assert wide.refusal(pod) == OWNED
    path = wide.folder / f"{secrets.token_hex(4)}.json"
    path.write_text(json.dumps(pod))
    made = wide.server.kubectl("create", "--filename", str(path), "--output=json")
    assert wide.refusal_to_delete(json.loads(made)["metadata"]["name"]) == OWNED


def test_nothing_is_made_or_deleted_in_kube_system(wide: Account) -> None:
    why = "the operator of TrainRun may neither create nor delete pods in kube-system"
    assert wide.refusal(WORKER, namespace="kube-system") == why
    path = wide.folder / "in-kube-system.json"
    path.write_text(json.dumps(WORKER))
    made = wide.server.kubectl(
        *("create", "--namespace", "kube-system", "--filename", str(path), "--output=json")
    )
    name = json.loads(made)["metadata"]["name"]
    assert wide.refusal_to_delete(name, namespace="kube-system") == why


def test_no_worker_gets_the_account_of_the_operator(wide: Account) -> None:
    wide.server.kubectl("create", "namespace", "trainrun")
    spec = {"serviceAccountName": "wide-trainrun"}
    assert wide.refusal(a_pod(OWNER, **spec), namespace="trainrun") == (
        "no worker of a TrainRun may use the operator's own service account"
    )
    assert wide.refusal(WORKER, namespace="trainrun") == ""
    assert wide.refusal(a_pod(OWNER, **spec)) == "", (
        "a name in another namespace is another account"
    )


def test_a_pod_made_before_the_policy_became_narrower_can_be_deleted(
    wide: Account, narrow: Account
) -> None:
    name = wide.create(a_pod(OWNER, hostNetwork=True, serviceAccountName="admin"), dry=False)
    assert narrow.refusal_to_delete(name) == ""


def test_others_are_not_concerned(narrow: Account) -> None:
    path = narrow.folder / "anybody.json"
    path.write_text(json.dumps(a_pod(hostNetwork=True)))
    assert narrow.server.kubectl("create", "--dry-run=server", "--filename", str(path))


def test_without_the_value_there_is_no_policy() -> None:
    kinds = {manifest["kind"] for manifest in render({})}
    assert kinds.isdisjoint({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
