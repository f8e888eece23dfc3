"""The chart's value admissionPolicy.podSecurity, judged by what the API server itself makes of the
Pod Security standard: a namespace that enforces `restricted` gives the same verdict on each pod.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.chart.test_admission_policy import NOTHING, OWNER, Account, a_pod, under
from tests.worlds.kubernetes.sweeps import a_sweep
from tests.worlds.kubernetes.test_render import ACTION, PLACE, a_run, plain
from tests.worlds.kubernetes.test_trial_object import ACTION as TRIAL
from trainrun_operator.api.loading import read
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.core.run.config import config_of
from trainrun_operator.worlds.kubernetes.clerk_pod import ClerkImage, clerk_pod
from trainrun_operator.worlds.kubernetes.render import worker_pod
from trainrun_operator.worlds.kubernetes.sweep_objects import trial_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chart.rendering import Manifest
    from tests.kube.api_server import ApiServer

MUST = (
    'the pod template must conform to the Pod Security standard "restricted" here '
    "(the chart's value admissionPolicy.podSecurity): "
)
RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
POD: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is changed of a pod that conforms: of itself, its context, and that of a container."""

    said: str = ""
    """By the policy; nothing where the pod is taken."""
    spec: dict[str, Any]
    init: bool = False
    """Whether the changed container is an init container."""

    def pod(self, name: str) -> Manifest:
        spec = copy.deepcopy(self.spec)
        container = spec.pop("container", {})
        context = {**RESTRICTED, **container.pop("securityContext", {})}
        container = {"name": "changed", "image": "i", "securityContext": context, **container}
        annotations = spec.pop("annotations", {})
        spec["securityContext"] = {**POD, **spec.get("securityContext", {})}
        pod = a_pod(OWNER, container={"securityContext": RESTRICTED}, **spec)
        pod["spec"].setdefault("initContainers" if self.init else "containers", []).append(
            container
        )
        pod["metadata"] |= {"name": name, "annotations": annotations}
        return pod


def of_pod(said: str = "", **spec: Any) -> Case:
    return Case(said=said, spec=spec)


def of_container(said: str = "", *, init: bool = False, **container: Any) -> Case:
    return Case(said=said, spec={"container": container}, init=init)


def within(said: str = "", *, init: bool = False, **context: Any) -> Case:
    """In the securityContext of a container."""
    return of_container(said, init=init, securityContext=context)


def of_context(said: str = "", **context: Any) -> Case:
    """In that of the pod."""
    return of_pod(said, securityContext=context)


HOST = "hostNetwork, hostPID and hostIPC are not allowed"
DROP = "every container must have ALL in capabilities.drop"
ADD = "capabilities.add may have NET_BIND_SERVICE only"
ESCALATES = "allowPrivilegeEscalation must be false in every container"
ROOT = "runAsNonRoot must be true, of the pod or of every container"
ZERO = "runAsUser must not be 0"
SECCOMP = (
    "seccompProfile.type must be RuntimeDefault or Localhost, of the pod or of every container"
)
APPARMOR = "the AppArmor profile may be RuntimeDefault or Localhost only"
SELINUX = (
    "seLinuxOptions must not have a user, a role, or a type other than container_t, "
    "container_init_t, container_kvm_t and container_engine_t"
)
PROBES = "probes and lifecycle handlers must not name a host"
PROC = "procMount must be Default"
SYSCTLS = "sysctls may have those only that Kubernetes calls safe"
VOLUMES = (
    "volumes may be configMap, csi, downwardAPI, emptyDir, ephemeral, image, "
    "persistentVolumeClaim, projected and secret only"
)
KEY = "container.apparmor.security.beta.kubernetes.io/worker"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

CASES = {
    "plain": of_pod(),
    "host-network": of_pod(HOST, hostNetwork=True),
    "host-pid": of_pod(HOST, hostPID=True),
    "host-ipc": of_pod(HOST, hostIPC=True),
    "privileged": within(
        f"privileged containers are not allowed; {ESCALATES}",
        privileged=True,
        allowPrivilegeEscalation=True,
    ),
    "not-privileged": within(privileged=False),
    "host-port": of_container(
        "hostPort is not allowed", ports=[{"containerPort": 1, "hostPort": 1}]
    ),
    "host-port-of-init": of_container(
        "hostPort is not allowed", init=True, ports=[{"containerPort": 1, "hostPort": 1}]
    ),
    "port": of_container(ports=[{"containerPort": 1}]),
    "probe-of-a-host": of_container(PROBES, livenessProbe={"tcpSocket": {"port": 1, "host": "h"}}),
    "hook-to-a-host": of_container(
        PROBES, lifecycle={"preStop": {"httpGet": {"port": 1, "host": "h"}}}
    ),
    "probe": of_container(
        readinessProbe={"httpGet": {"port": 1}}, lifecycle={"preStop": {"exec": {"command": ["x"]}}}
    ),
    "nothing-dropped": within(DROP, capabilities={}),
    "one-dropped": within(DROP, capabilities={"drop": ["SYS_ADMIN"]}),
    "nothing-dropped-of-init": within(DROP, init=True, capabilities={}),
    "sys-admin": within(ADD, capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    "sys-module": within(ADD, capabilities={"drop": ["ALL"], "add": ["SYS_MODULE"]}),
    "rdma": within(ADD, capabilities={"drop": ["ALL"], "add": ["IPC_LOCK"]}),
    "added-to-init": within(ADD, init=True, capabilities={"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
    "bind": within(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "escalation": within(ESCALATES, allowPrivilegeEscalation=True),
    "escalation-unsaid": within(ESCALATES, allowPrivilegeEscalation=None),
    "escalation-of-init": within(ESCALATES, init=True, allowPrivilegeEscalation=None),
    "maybe-root": of_context(ROOT, runAsNonRoot=None),
    "root": of_context(ROOT, runAsNonRoot=False),
    "root-in-a-container": within(ROOT, runAsNonRoot=False),
    "root-in-init": within(ROOT, init=True, runAsNonRoot=False),
    "uid-0": of_context(ZERO, runAsUser=0),
    "uid-0-in-a-container": within(ZERO, runAsUser=0),
    "uid-0-in-init": within(ZERO, init=True, runAsUser=0),
    "uid-1000": of_context(runAsUser=1000),
    "root-in-a-user-namespace": of_pod(
        hostUsers=False, securityContext={"runAsNonRoot": False, "runAsUser": 0}
    ),
    "root-of-the-host": of_pod(
        f"{ROOT}; {ZERO}", hostUsers=True, securityContext={"runAsNonRoot": False, "runAsUser": 0}
    ),
    "unconfined": of_context(SECCOMP, seccompProfile={"type": "Unconfined"}),
    "unconfined-container": within(SECCOMP, seccompProfile={"type": "Unconfined"}),
    "no-seccomp": of_context(SECCOMP, seccompProfile=None),
    "seccomp-of-one-container": of_pod(
        SECCOMP,
        securityContext={"seccompProfile": None},
        container={"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
    ),
    "own-seccomp": of_context(seccompProfile={"type": "Localhost", "localhostProfile": "p"}),
    "apparmor": of_context(APPARMOR, appArmorProfile={"type": "Unconfined"}),
    "apparmor-of-a-container": within(APPARMOR, appArmorProfile={"type": "Unconfined"}),
    "apparmor-annotation": of_pod(APPARMOR, annotations={KEY: "unconfined"}),
    "own-apparmor": of_pod(
        annotations={KEY: "localhost/p"},
        securityContext={"appArmorProfile": {"type": "RuntimeDefault"}},
    ),
    "selinux-type": of_context(SELINUX, seLinuxOptions={"type": "spc_t"}),
    "selinux-user": within(SELINUX, seLinuxOptions={"user": "u"}),
    "selinux-role": within(SELINUX, init=True, seLinuxOptions={"role": "r"}),
    "selinux": of_context(seLinuxOptions={"type": "container_t", "level": "s0"}),
    "unmasked": of_pod(
        PROC, hostUsers=False, container={"securityContext": {"procMount": "Unmasked"}}
    ),
    "sysctl": of_context(SYSCTLS, sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "safe-sysctl": of_context(sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "1 2 3"}]),
    "host-path": of_pod(VOLUMES, volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "nfs": of_pod(VOLUMES, volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
    "volumes": of_pod(
        volumes=[
            {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}},
            {"name": "c", "csi": {"driver": "d"}},
            {"name": "d", "emptyDir": {"medium": "Memory"}},
            {"name": "e", "secret": {"secretName": "s"}},
            {"name": "f", "configMap": {"name": "c"}},
            {"name": "g", "image": {"reference": "r"}},
        ]
    ),
}
AS_A_WHOLE = "; ".join((DROP, ESCALATES, ROOT, SECCOMP))
"""What somebody reads whose template says nothing of security."""


@pytest.fixture(scope="module")
def restricted(apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Under this one value."""
    folder = tmp_path_factory.mktemp("restricted")
    with under(apiserver, folder, "restricted", {"podSecurity": "restricted"}) as account:
        yield account


@pytest.fixture(scope="module")
def enforced(apiserver: ApiServer) -> str:
    """A namespace that enforces the standard upon everybody."""
    apiserver.kubectl("create", "namespace", "enforced")
    label = "pod-security.kubernetes.io/enforce=restricted"
    apiserver.kubectl("label", "namespace", "enforced", label)
    return "enforced"


def refused(account: Account, pods: list[Manifest], *options: str) -> dict[str, str]:
    """Why, by the names of those pods that are not taken."""
    path = account.folder / f"pods-{len(options)}.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    try:
        account.server.kubectl(
            "create", "--dry-run=server", "--filename", str(path), *options, "--output=name"
        )
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).splitlines()
        found = (re.search(r'pods "(.+?)" is forbidden: (.*)', line) for line in lines)
        return {it[1]: it[2] for it in found if it}
    return {}


@pytest.fixture(scope="module")
def by_us(restricted: Account) -> dict[str, str]:
    pods = [case.pod(name) for name, case in CASES.items()]
    why = refused(restricted, pods, "--as=system:serviceaccount:trainrun:restricted-trainrun")
    return {name: said.rpartition("denied request: ")[2] for name, said in why.items()}


@pytest.fixture(scope="module")
def by_the_standard(restricted: Account, enforced: str) -> dict[str, str]:
    pods = [case.pod(name) for name, case in CASES.items()]
    why = refused(restricted, pods, "--namespace", enforced)
    assert all("violates PodSecurity" in said for said in why.values())
    return why


@pytest.mark.parametrize("name", CASES)
def test_one_value_asks_of_templates_what_the_restricted_standard_asks(
    by_us: dict[str, str], by_the_standard: dict[str, str], name: str
) -> None:
    said = CASES[name].said
    assert by_us.get(name, "") == (MUST + said if said else "")
    assert (name in by_us) == (name in by_the_standard)


def test_a_user_reads_at_once_all_that_a_template_lacks(restricted: Account) -> None:
    assert restricted.refusal(a_pod(OWNER)) == MUST + AS_A_WHOLE


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({"nodeName": "n1"}, "nodeName"),
        ({"priorityClassName": "system-node-critical"}, "criticalPriority"),
        ({"tolerations": [{"operator": "Exists"}]}, "everyTaint"),
    ],
)
def test_the_one_value_also_refuses_what_the_standard_leaves_to_others(
    restricted: Account, spec: dict[str, Any], value: str
) -> None:
    pod = Case(spec=spec).pod("worker")
    assert f"(the chart's value admissionPolicy.allow.{value})" in restricted.refusal(pod)


def test_a_value_that_is_set_beside_it_counts(apiserver: ApiServer, restricted: Account) -> None:
    allow = {**dict.fromkeys(NOTHING, True), "nodeName": None}
    values = {"podSecurity": "restricted", "allow": allow}
    with under(apiserver, restricted.folder, "tolerant", values) as account:
        pod = Case(spec={"tolerations": [{"operator": "Exists"}]}).pod("worker")
        assert account.refusal(pod) == ""
        assert "allow.nodeName" in account.refusal(Case(spec={"nodeName": "n1"}).pod("worker"))
        assert account.refusal(Case(spec={"hostPID": True}).pod("worker")) == MUST + HOST


@pytest.mark.parametrize("agent", ["Inject", "InImage"])
def test_a_worker_as_we_make_it_conforms_where_its_template_does(
    restricted: Account, enforced: str, agent: str
) -> None:
    template = plain("python", "train.py", image="train:1", securityContext=RESTRICTED)
    template["spec"] |= {"securityContext": POD, "serviceAccountName": "trainer"}
    run = a_run(template, workers={"agent": agent}, storage={"credentialsSecretRef": {"name": "s"}})
    pod = worker_pod(run, config_of(run), template, ACTION, PLACE)
    del pod["metadata"]["namespace"]
    assert restricted.refusal(pod, namespace=enforced) == ""


def of_sweep(**pod: Any) -> tuple[Manifest, Manifest]:
    """Its clerk, and a worker of a trial."""
    container = {"name": "worker", "image": "train", "command": ["python3", "train.py"]}
    containers = [{**container, "securityContext": RESTRICTED}]
    sweep = a_sweep(pod={"securityContext": POD, "containers": containers, **pod})
    clerk = clerk_pod(sweep, creation=1, image=ClerkImage(image="ours"), place=PLACE)
    trial = trial_manifest(sweep, TRIAL)
    trial["metadata"] |= {"uid": "run-1", "creationTimestamp": "2026-11-01T12:00:00Z"}
    run = read(trial, TRAINRUN, source="")
    worker = worker_pod(run, config_of(run), trial["spec"]["workers"]["template"], ACTION, PLACE)
    for each in (clerk, worker):
        del each["metadata"]["namespace"]
    return clerk, worker


def test_a_sweep_and_its_trials_conform_where_their_template_does(
    restricted: Account, enforced: str
) -> None:
    for pod in of_sweep():
        assert restricted.refusal(pod, namespace=enforced) == ""


def test_a_sweep_cannot_lend_what_a_run_cannot(restricted: Account) -> None:
    for pod in of_sweep(securityContext={**POD, "runAsUser": 0}):
        assert restricted.refusal(pod) == MUST + ZERO
    for pod in of_sweep(tolerations=[{"operator": "Exists"}]):
        assert "admissionPolicy.allow.everyTaint" in restricted.refusal(pod)
