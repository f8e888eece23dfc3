"""Pods as they are made from a TrainRun: the user's template whole, and what the agent needs."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from trainrun.contract.agent_config import AgentConfig
from trainrun_operator.api.pod_template import expanded
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.core.run.boundary import CreateWorker
from trainrun_operator.core.run.config import config_of
from trainrun_operator.core.run.gang.avoiding import MOST
from trainrun_operator.worlds.kubernetes.observing.pods import is_ours, pod_fact
from trainrun_operator.worlds.kubernetes.render import FETCH, PREFERRED, OperatorPlace, worker_pod

Raw = dict[str, Any]

KEY = b"k" * 32
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PLACE = OperatorPlace(
    url="https://trainrun-agents.trainrun-system.svc:8443",
    operators=lambda: ("10.0.0.7:8443", "10.0.0.8:8443"),
    ca_pem=CA,
    signing_key=KEY,
)
ACTION = CreateWorker(name="digits-2-5", slot=2, created_for=5, template_hash="abc123")

RICH: Raw = {
    "metadata": {
        "labels": {"team": "vision", "trainrun.dev/slot": "99"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "finalizers": ["example.com/audit"],
        "creationTimestamp": None,
    },
    "spec": {
        "serviceAccountName": "trainer",
        "priorityClassName": "low",
        "hostNetwork": True,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 90,
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "initContainers": [
            {"name": "log", "image": "log:1", "restartPolicy": "Always"},
            {"name": "download", "image": "download:1"},
        ],
        "containers": [
            {"name": "log-shipper", "image": "log:1", "command": ["tail", "-f", "/dev/null"]},
            {
                "name": "worker",
                "image": "digits:1",
                "restartPolicy": "Always",
                "command": ["/usr/bin/python3.11", "-u"],
                "args": ["train.py", "--node", "$(TRAINRUN_NODE_NAME)"],
                "env": [
                    {"name": "NCCL_DEBUG", "value": "INFO"},
                    {"name": "WHERE", "value": "$(TRAINRUN_POD_IP)"},
                ],
                "envFrom": [{"configMapRef": {"name": "digits"}}],
                "resources": {
                    "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 8},
                    "requests": {"cpu": "8", "memory": "64Gi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            },
        ],
    },
}
"""A template that uses much of what a template can hold."""


def plain(*command: str, **container: Any) -> Raw:
    """The least a template needs."""
    return {"spec": {"containers": [{"name": "main", "command": list(command)} | container]}}


def a_run(template: Raw, **spec: Any) -> TrainRun:
    workers = {"replicas": 4, "processesPerWorker": 8, "template": template}
    return TrainRun.model_validate(
        {
            "metadata": {"name": "digits", "namespace": "team", "uid": "run-uid"},
            "spec": {
                "workers": workers | spec.pop("workers", {}),
                "storage": {"uri": "s3://bucket/runs"} | spec.pop("storage", {}),
            }
            | spec,
        }
    )


def rendered(template: Raw, **spec: Any) -> Raw:
    return pod_of(a_run(template, **spec), template)


def pod_of(run: TrainRun, template: Raw, action: CreateWorker = ACTION) -> Raw:
    return worker_pod(run, config_of(run), template, action, PLACE)


def test_a_pod_says_of_itself_which_nodes_it_is_kept_away_from() -> None:
    template = copy.deepcopy(RICH)
    pod = pod_of(a_run(template), template, replace(ACTION, avoid=("n1", "n2")))
    assert pod["metadata"]["annotations"]["trainrun.dev/avoids"] == "n1,n2"
    fact = pod_fact(pod)
    assert fact is not None
    assert fact.avoids == ("n1", "n2")
    assert "podAntiAffinity" in pod["spec"]["affinity"]
    assert "nodeAffinity" in pod["spec"]["affinity"]
    assert "affinity" in RICH["spec"]
    assert "nodeAffinity" not in template["spec"]["affinity"]


def test_a_replacement_after_the_loss_of_a_rack_knows_every_node_that_it_avoids() -> None:
    # One whose last name was cut was made again in each pass, for a minute.
    rack = tuple(f"ip-10-0-{n:03}-17.eu-central-1.compute.internal" for n in range(MOST))
    longest = tuple(f"{n:0253}" for n in range(MOST))
    for nodes in (rack, longest):
        fact = pod_fact(pod_of(a_run(RICH), RICH, replace(ACTION, avoid=nodes)))
        assert fact is not None
        assert fact.avoids == nodes


def test_a_pod_rather_goes_elsewhere_than_to_nodes_with_repeated_incidents() -> None:
    template = copy.deepcopy(RICH)
    pod = pod_of(a_run(template), template, replace(ACTION, disfavor=("n1",)))
    (*_, last) = pod["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert last["preference"]["matchFields"][0]["values"] == ["n1"]
    fact = pod_fact(pod)
    assert fact is not None
    assert fact.avoids == ()
    assert "nodeAffinity" not in template["spec"]["affinity"]


def training(pod: Raw, name: str = "worker") -> Raw:
    found: Raw = next(c for c in pod["spec"]["containers"] if c["name"] == name)
    return found


def variables(container: Raw) -> dict[str, Any]:
    return {entry["name"]: entry for entry in container["env"]}


def config_in(container: Raw) -> AgentConfig:
    """The agent's configuration as the kubelet hands it over."""
    value = variables(container)["TRAINRUN_AGENT_CONFIG"]["value"]
    return AgentConfig.from_json(expanded(value, {"HOME": "/root", "X": "y"}))


# --------------------------------------------------------------------------- who the pod belongs to


def test_a_pod_says_whose_worker_it_is_and_carries_our_seal() -> None:
    pod = rendered(RICH)
    metadata = pod["metadata"]
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert (metadata["name"], metadata["namespace"]) == ("digits-2-5", "team")
    assert metadata["labels"] == {
        "team": "vision",
        "app.kubernetes.io/managed-by": "trainrun",
        "trainrun.dev/run": "digits",
        "trainrun.dev/run-uid": "run-uid",
        "trainrun.dev/slot": "2",
        "trainrun.dev/creation": "5",
        "trainrun.dev/template-hash": "abc123",
    }
    signature = metadata["annotations"].pop("trainrun.dev/signature")
    assert len(signature) == 64
    assert metadata["annotations"] == {
        "sidecar.istio.io/inject": "false",
        "kubectl.kubernetes.io/default-container": "worker",
        "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    assert metadata["finalizers"] == ["example.com/audit"]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainRun",
            "name": "digits",
            "uid": "run-uid",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    assert "creationTimestamp" not in metadata


def test_the_template_may_choose_what_kubectl_logs_shows() -> None:
    template = plain("python", "train.py")
    chosen = {"kubectl.kubernetes.io/default-container": "log-shipper"}
    template["metadata"] = {"annotations": chosen}
    assert chosen.items() <= rendered(template)["metadata"]["annotations"].items()


def test_the_template_may_let_autoscalers_move_its_pods() -> None:
    template = plain("python", "train.py")
    chosen = {
        "karpenter.sh/do-not-disrupt": "false",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
    }
    template["metadata"] = {"annotations": chosen}
    assert chosen.items() <= rendered(template)["metadata"]["annotations"].items()


def test_a_pod_says_which_of_its_containers_trains() -> None:
    """The template may have changed since: who reads the pod must not ask the template."""
    fact = pod_fact(rendered(RICH))
    assert fact is not None
    assert fact.training == "worker"


def test_a_seal_is_good_for_this_pod_of_this_run_alone() -> None:
    pod = rendered(plain("python", "train.py"))
    fact = pod_fact(pod)
    assert fact is not None
    assert is_ours(fact, "run-uid", KEY)
    assert not is_ours(fact, "other-run", KEY)
    assert not is_ours(fact, "", KEY)
    assert not is_ours(fact, "run-uid", b"another key")
    stolen = (
        ("name", "digits-3-5"),
        ("namespace", "other-team"),
        ("labels", {**pod["metadata"]["labels"], "trainrun.dev/slot": "3"}),
        ("labels", {**pod["metadata"]["labels"], "trainrun.dev/creation": "6"}),
        ("labels", {**pod["metadata"]["labels"], "trainrun.dev/template-hash": "def"}),
        ("labels", {**pod["metadata"]["labels"], "trainrun.dev/run-uid": "other"}),
        ("ownerReferences", []),
        ("annotations", {"trainrun.dev/signature": "é"}),
        ("annotations", {}),
    )
    for field, value in stolen:
        changed = pod_fact(pod | {"metadata": pod["metadata"] | {field: value}})
        assert changed is not None
        assert not is_ours(changed, "run-uid", KEY), field


# ---------------------------------------------------------------------------- the template is kept


def test_the_users_template_is_kept_whole() -> None:
    before = copy.deepcopy(RICH)
    spec = rendered(RICH)["spec"]
    assert before == RICH, "the template itself is not touched"
    changed = {"containers", "volumes", "restartPolicy"}
    for field, value in RICH["spec"].items():
        if field not in changed:
            assert spec[field] == value, field
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0] == RICH["spec"]["containers"][0], "sidecars are not touched"
    assert spec["volumes"][0] == RICH["spec"]["volumes"][0]
    worker, given = training({"spec": spec}), RICH["spec"]["containers"][1]
    assert "restartPolicy" not in worker, "a container that starts anew would be another worker"
    ours = {"command", "args", "env", "volumeMounts", "restartPolicy"}
    assert {k: v for k, v in worker.items() if k not in ours} == {
        k: v for k, v in given.items() if k not in ours
    }
    assert worker["env"][-2:] == given["env"]
    assert worker["volumeMounts"][0] == given["volumeMounts"][0]


def test_nulls_in_a_template_are_read_as_absent() -> None:
    """As exported manifests have them."""
    empty = dict.fromkeys(("args", "env", "volumeMounts", "resources", "securityContext"))
    template = plain("python", "train.py", **empty)
    template["metadata"] = {"creationTimestamp": None, "labels": None, "annotations": None}
    template["spec"] |= dict.fromkeys(("volumes", "initContainers", "affinity"))
    pod = pod_of(a_run(plain("python", "train.py")), template)
    bare = rendered(plain("python", "train.py"))
    assert pod["metadata"] == bare["metadata"]
    assert pod["spec"]["volumes"] == bare["spec"]["volumes"]
    assert not pod["spec"]["initContainers"]
    ours = training(bare, "main")
    assert {key: training(pod, "main")[key] for key in ours} == ours


# ------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("words", "python"),
    [
        (["python", "train.py"], "python"),
        (["python3", "-m", "train"], "python3"),
        (["/opt/conda/bin/python3.12", "train.py"], "/opt/conda/bin/python3.12"),
        (["./train"], "python3"),
        (["bash", "-c", "python train.py"], "python3"),
        (["python2", "train.py"], "python3"),
        (["python3-config"], "python3"),
        (["$(PYTHON)", "train.py"], "python3"),
    ],
)
def test_the_agent_runs_in_the_scripts_own_python_where_that_is_known(
    words: list[str], python: str
) -> None:
    container = training(rendered(plain(*words)), "main")
    assert container["command"] == [python, "-I", "-S", "-c", FETCH, "--", *words]
    assert "args" not in container


def test_command_and_args_together_are_what_trains() -> None:
    container = training(rendered(RICH))
    assert container["command"] == [
        *("/usr/bin/python3.11", "-I", "-S", "-c", FETCH, "--"),
        *("/usr/bin/python3.11", "-u", "train.py", "--node", "$(TRAINRUN_NODE_NAME)"),
    ]


def test_arguments_alone_are_what_trains() -> None:
    template = plain()
    template["spec"]["containers"][0] = {"name": "main", "args": ["python", "train.py"]}
    container = training(rendered(template), "main")
    assert container["command"] == [
        *("python", "-I", "-S", "-c", FETCH, "--", "python", "train.py"),
    ]
    assert "args" not in container


def test_an_image_that_has_the_agent_fetches_none() -> None:
    template = plain("python3", "train.py")
    pod = rendered(template, workers={"agent": "InImage"})
    assert training(pod, "main")["command"] == [
        *("python3", "-m", "trainrun.agent", "--", "python3", "train.py")
    ]


# -------------------------------------------------------------------------------- the environment


def test_the_agent_is_told_who_it_is_and_where_the_operator_is() -> None:
    run = a_run(
        RICH,
        storage={"runName": "digits-v2", "endpointURL": "http://minio:9000", "region": "eu-1"},
        checkpoint={"initialFrom": "s3://bucket/base", "keep": 5, "maxPending": 4},
        health={"heartbeatTimeout": "12s"},
    )
    config = config_in(training(pod_of(run, RICH)))
    assert (config.run, config.run_uid, config.namespace) == ("digits", "run-uid", "team")
    assert (config.worker, config.slot, config.created_for) == ("digits-2-5", 2, 5)
    assert (config.operator_url, config.ca) == (PLACE.url, CA)
    assert config.operators == ("10.0.0.7:8443", "10.0.0.8:8443")
    assert config.token == ""
    assert config.token_file == "/var/run/secrets/trainrun/token"
    assert (config.directory, config.cache) == ("/trainrun/work", "/trainrun/cache")
    assert config.storage.uri == "s3://bucket/runs"
    assert config.storage.run_name == "digits-v2"
    assert (config.storage.endpoint_url, config.storage.region) == ("http://minio:9000", "eu-1")
    assert config.initial_from == "s3://bucket/base"
    assert (config.processes_per_worker, config.grace_seconds) == (8, 90.0)
    assert (config.settings.keep, config.settings.max_pending) == (5, 4)
    assert config.settings.heartbeat_timeout == 12.0
    assert config.settings.flush_timeout == config_of(run).flush_timeout.total_seconds()
    assert config.command == (), "it comes as arguments, where the kubelet fills in variables"


def test_a_template_without_a_grace_period_gets_the_thirty_seconds_of_kubernetes() -> None:
    template = plain("python", "train.py")
    assert config_in(training(rendered(template), "main")).grace_seconds == 30.0
    template["spec"]["terminationGracePeriodSeconds"] = 0
    assert config_in(training(rendered(template), "main")).grace_seconds == 0.0


def test_dollars_in_the_configuration_survive_the_kubelet() -> None:
    uri = "s3://bucket/$(HOME)/$$/$X/$$(X)"
    config = config_in(training(rendered(RICH, storage={"uri": uri})))
    assert config.storage.uri == uri


def test_address_and_node_come_from_the_pod() -> None:
    env = variables(training(rendered(RICH)))
    assert env["TRAINRUN_POD_IP"] == {
        "name": "TRAINRUN_POD_IP",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    assert env["TRAINRUN_NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_ours_stand_before_the_users_variables_so_that_those_can_refer_to_them() -> None:
    names = [entry["name"] for entry in training(rendered(RICH))["env"]]
    assert names.index("TRAINRUN_POD_IP") < names.index("WHERE")


def test_a_users_variable_never_replaces_one_of_ours() -> None:
    template = plain("python", "train.py", env=[{"name": "TRAINRUN_POD_IP", "value": "1.2.3.4"}])
    env = training(rendered(template), "main")["env"]
    assert [e for e in env if e["name"] == "TRAINRUN_POD_IP"] == [
        {"name": "TRAINRUN_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    ]


def test_storage_credentials_are_read_by_the_kubelet_not_by_us() -> None:
    env = variables(training(rendered(RICH, storage={"credentialsSecretRef": {"name": "s3"}})))
    references = {
        name: entry["valueFrom"]["secretKeyRef"]
        for name, entry in env.items()
        if name.startswith("AWS_")
    }
    assert references == {
        "AWS_ACCESS_KEY_ID": {"name": "s3", "key": "AWS_ACCESS_KEY_ID"},
        "AWS_SECRET_ACCESS_KEY": {"name": "s3", "key": "AWS_SECRET_ACCESS_KEY"},
        "AWS_SESSION_TOKEN": {"name": "s3", "key": "AWS_SESSION_TOKEN", "optional": True},
    }
    assert not any(name.startswith("AWS_") for name in variables(training(rendered(RICH))))


@pytest.mark.parametrize(
    ("scheme", "keys"),
    [
        ("gs", {"GOOGLE_SERVICE_ACCOUNT_KEY": False}),
        (
            "az",
            {
                "AZURE_STORAGE_ACCOUNT_NAME": False,
                "AZURE_STORAGE_ACCOUNT_KEY": True,
                "AZURE_STORAGE_SAS_TOKEN": True,
            },
        ),
    ],
)
def test_the_keys_of_the_secret_are_those_of_the_kind_of_store(
    scheme: str, keys: dict[str, bool]
) -> None:
    storage = {"uri": f"{scheme}://bucket/runs", "credentialsSecretRef": {"name": "keys"}}
    env = variables(training(rendered(RICH, storage=storage)))
    found = {
        name: entry["valueFrom"]["secretKeyRef"].get("optional", False)
        for name, entry in env.items()
        if "secretKeyRef" in entry.get("valueFrom", {}) and name.startswith(("AWS", "GOO", "AZU"))
    }
    assert found == keys


def test_sidecars_get_neither_token_nor_credentials() -> None:
    pod = rendered(RICH, storage={"credentialsSecretRef": {"name": "s3"}})
    for container in (*pod["spec"]["initContainers"], pod["spec"]["containers"][0]):
        text = json.dumps(container)
        assert "trainrun-token" not in text
        assert "AWS_" not in text


# ------------------------------------------------------------------------------------------ volumes


def test_the_agent_has_a_folder_and_a_token_of_its_own() -> None:
    pod = rendered(RICH)
    assert pod["spec"]["volumes"][1:] == [
        {"name": "trainrun", "emptyDir": {}},
        {
            "name": "trainrun-token",
            "projected": {
                "sources": [
                    {
                        "serviceAccountToken": {
                            "audience": "trainrun-agents",
                            "expirationSeconds": 3600,
                            "path": "token",
                        }
                    }
                ]
            },
        },
    ]
    assert training(pod)["volumeMounts"][1:] == [
        {"name": "trainrun", "mountPath": "/trainrun"},
        {"name": "trainrun-token", "mountPath": "/var/run/secrets/trainrun", "readOnly": True},
    ]


def test_a_volume_named_trainrun_in_the_template_chooses_the_disk() -> None:
    template = plain("python", "train.py", volumeMounts=[{"name": "trainrun", "mountPath": "/x"}])
    disk = {"name": "trainrun", "emptyDir": {"sizeLimit": "1Ti"}}
    template["spec"]["volumes"] = [disk]
    pod = rendered(template)
    assert [v["name"] for v in pod["spec"]["volumes"]] == ["trainrun", "trainrun-token"]
    assert pod["spec"]["volumes"][0] == disk
    mounts = training(pod, "main")["volumeMounts"]
    assert [(m["name"], m["mountPath"]) for m in mounts[:2]] == [
        ("trainrun", "/x"),
        ("trainrun", "/trainrun"),
    ]


@pytest.mark.parametrize(
    "path", ["/trainrun", "/trainrun/", "//trainrun", "trainrun", "/x/../trainrun/."]
)
def test_a_mount_in_the_place_of_the_agents_folder_makes_way_however_it_is_spelt(path: str) -> None:
    template = plain("python", "train.py", volumeMounts=[{"name": "mine", "mountPath": path}])
    template["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    (*_, container) = rendered(template)["spec"]["containers"]
    assert [(m["name"], m["mountPath"]) for m in container["volumeMounts"]] == [
        ("trainrun", "/trainrun"),
        ("trainrun-token", "/var/run/secrets/trainrun"),
    ]


@pytest.mark.parametrize("path", ["/trainrun/data", "/trainruns"])
def test_a_mount_beside_or_below_the_agents_folder_stays(path: str) -> None:
    template = plain("python", "train.py", volumeMounts=[{"name": "mine", "mountPath": path}])
    (*_, container) = rendered(template)["spec"]["containers"]
    assert {"name": "mine", "mountPath": path} in container["volumeMounts"]


def test_what_fetches_the_agent_survives_the_kubelets_references() -> None:
    """In commands the kubelet reads "$(NAME)" as a reference, and "$$" as one dollar."""
    assert "$" not in FETCH


def test_nothing_is_put_beside_the_users_containers() -> None:
    pod = rendered(plain("python", "train.py"))
    assert "initContainers" not in pod["spec"]
    assert len(pod["spec"]["containers"]) == 1


@pytest.mark.case("operator", "Workers cannot resolve the Service, and all operators are replaced")
def test_a_worker_in_its_nodes_network_finds_services_by_name() -> None:
    """The node's DNS, which Kubernetes asks otherwise, knows none."""

    def policy(**said: Any) -> Any:
        template = plain("python3", "train.py")
        template["spec"].update(said)
        return rendered(template)["spec"].get("dnsPolicy")

    assert policy(hostNetwork=True) == "ClusterFirstWithHostNet"
    assert policy(hostNetwork=True, dnsPolicy="Default") == "Default"
    assert policy() is None
