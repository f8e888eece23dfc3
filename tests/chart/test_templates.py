"""What the chart makes of its values."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.chart.rendering import CHART, MATRIX, ROOT, of_component, of_kind, render, run_helm, the
from trainrun_operator.cluster.endpoint import PORT_NAME
from trainrun_operator.cluster.settings import read_settings
from trainrun_operator.worlds.kubernetes.observing.nodes import DEFAULT_NOTICES

MONITOR = "monitoring.coreos.com/v1/ServiceMonitor"
RULE = "monitoring.coreos.com/v1/PrometheusRule"
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def deployment(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    return the(of_component(render(values, **more), "operator"), "Deployment")


def pod(values: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment(values)["spec"]["template"]["spec"]
    return spec


def container(values: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(values)["containers"]
    found: dict[str, Any] = only
    return found


def environment(values: dict[str, Any]) -> dict[str, str]:
    """As the operator sees it in a pod `p` of the namespace `trainrun`."""
    fields = {"metadata.name": "p", "metadata.namespace": "trainrun", "status.podIP": "10.1.2.3"}
    return {
        entry["name"]: entry["value"]
        if "value" in entry
        else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for entry in container(values)["env"]
    }


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_helm_finds_nothing_to_complain_about(values: dict[str, Any]) -> None:
    done = run_helm("lint", "--strict", "--kube-version", "1.31.0", values=values)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_every_object_is_whole_and_stands_once(values: dict[str, Any]) -> None:
    manifests = render(values, known=(MONITOR, RULE))

    keys = [
        (m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in manifests
    ]
    assert len(keys) == len(set(keys))
    for manifest in manifests:
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "trainrun"
        assert manifest["metadata"]["labels"]["helm.sh/chart"] == "trainrun-0.1.0"
        assert ("namespace" in manifest["metadata"]) != (manifest["kind"] in CLUSTER_WIDE)


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_the_operator_runs_with_restricted_rights(values: dict[str, Any]) -> None:
    # What the Pod Security standard `restricted` asks for, and a read-only root file system.
    spec = pod(values)
    (operator,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert operator["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC", "initContainers"}.isdisjoint(spec)
    assert [set(volume) - {"name"} for volume in spec["volumes"]] == [{"emptyDir"}]
    assert operator["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_selectors_select_the_pods(values: dict[str, Any]) -> None:
    manifests = of_component(render(values, known=(MONITOR,)), "operator")
    labels = the(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        m["spec"].get("selector", m["spec"].get("podSelector"))
        for m in manifests
        if m["kind"] in {"Deployment", "PodDisruptionBudget", "NetworkPolicy"}
    ]
    metrics = the(
        manifests, "Service", the(manifests, "Deployment")["metadata"]["name"] + "-metrics"
    )

    for selector in [s["matchLabels"] for s in selectors] + [metrics["spec"]["selector"]]:
        assert selector.items() <= labels.items()
        # An upgrade cannot change a Deployment's selector: no version may stand in it.
        assert selector.keys() == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
    for monitor in of_kind(manifests, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= metrics["metadata"]["labels"].items()
        agents = the(manifests, "Service", "trainrun-agents")
        assert not wanted.items() <= agents["metadata"]["labels"].items()


def test_two_operators_stand_by_for_each_other_on_different_nodes() -> None:
    spec = deployment({})["spec"]

    assert spec["replicas"] == 2
    assert spec["strategy"]["type"] == "RollingUpdate"
    (term,) = pod({})["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    (spread,) = pod({})["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert pod({})["terminationGracePeriodSeconds"] == 30


def test_a_drain_of_nodes_takes_one_operator_at_a_time() -> None:
    assert the(render({}), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_agents_service_has_no_selector() -> None:
    # Whoever leads writes its own address: a standby must not be reached.
    service = the(render({}, release="other"), "Service", "trainrun-agents")

    assert "selector" not in service["spec"]
    assert [(p["name"], p["port"]) for p in service["spec"]["ports"]] == [(PORT_NAME, 8443)]


def test_probes_ask_the_health_port() -> None:
    operator = container({})
    ports = {port["name"]: port["containerPort"] for port in operator["ports"]}

    assert ports == {"agents": 8443, "health": 8080}
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert operator[probe]["httpGet"] == {"path": path, "port": "health"}


def test_the_operator_understands_its_environment() -> None:
    settings = read_settings(environment({}))

    assert settings.identity == "p"
    assert settings.address == "10.1.2.3"
    assert settings.url == "https://trainrun-agents.trainrun.svc:8443"
    assert settings.health_port == 8080
    assert settings.namespaces == ()
    assert settings.nodes
    assert settings.notice_taints == DEFAULT_NOTICES
    assert settings.log_format == "json"


def test_the_operator_understands_other_values() -> None:
    settings = read_settings(
        environment(
            {
                "watchNamespaces": ["team-a", "team-b"],
                "adopt": ["old", "older"],
                "nodes": {"noticeTaints": ["example.com/a", "b"]},
                "logFormat": "text",
            }
        )
    )

    assert settings.namespaces == ("team-a", "team-b")
    assert settings.adopts == {"old", "older"}
    assert not settings.nodes
    assert [taint.key for taint in settings.notice_taints][-2:] == ["example.com/a", "b"]
    assert settings.log_format == "text"


def test_variables_that_the_chart_sets_are_those_that_the_operator_reads() -> None:
    source = (ROOT / "operator" / "trainrun_operator" / "cluster" / "settings.py").read_text()

    assert [name for name in environment({}) if f'"{name}"' not in source] == []


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, "docker.io/trainrun/operator:0.1.0"),
        ({"image": {"tag": "dev"}}, "docker.io/trainrun/operator:dev"),
        (
            {"image": {"digest": "sha256:" + "0" * 64, "tag": "dev"}},
            "docker.io/trainrun/operator@sha256:" + "0" * 64,
        ),
        (
            {"global": {"imageRegistry": "registry.example.com/mirror"}},
            "registry.example.com/mirror/trainrun/operator:0.1.0",
        ),
        (
            {"global": {"imageRegistry": "localhost:5000/"}, "image": {"repository": "a/b"}},
            "localhost:5000/a/b:0.1.0",
        ),
        ({"image": {"repository": "localhost:5000/a/b"}}, "localhost:5000/a/b:0.1.0"),
    ],
)
def test_the_image_comes_from_where_the_values_say(values: dict[str, Any], image: str) -> None:
    assert container(values)["image"] == image


def test_pull_secrets_of_an_umbrella_chart_are_used_too() -> None:
    assert pod(MATRIX["everything"])["imagePullSecrets"] == [
        {"name": "everybodys"},
        {"name": "mine"},
    ]


def test_what_the_user_sets_for_the_pods_is_there() -> None:
    spec = pod(MATRIX["everything"])
    metadata = deployment(MATRIX["everything"])["spec"]["template"]["metadata"]

    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert spec["affinity"] == {"nodeAffinity": {}}
    assert spec["topologySpreadConstraints"] == [{"maxSkew": 1}]
    assert metadata["annotations"] == {"a": "b"}
    assert metadata["labels"]["c"] == "d"
    assert environment(MATRIX["everything"])["MALLOC_ARENA_MAX"] == "2"


def test_a_lost_node_is_given_up_soon() -> None:
    assert {(t["key"], t["tolerationSeconds"]) for t in pod({})["tolerations"]} == {
        ("node.kubernetes.io/not-ready", 30),
        ("node.kubernetes.io/unreachable", 30),
    }


def test_a_service_monitor_needs_a_cluster_that_knows_it() -> None:
    values = {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}

    assert of_kind(render(values), "ServiceMonitor") == []
    monitor = the(render(values, known=(MONITOR,)), "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]


def test_the_network_policy_lets_agents_in_and_only_names_and_the_api_server_out() -> None:
    policy = the(render({"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [
        {"ports": [{"port": "agents", "protocol": "TCP"}]},
        {"ports": [{"port": "health", "protocol": "TCP"}]},
    ]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [
        [443, 6443],
        [53, 53],
    ]


def test_nothing_optional_is_there_by_default() -> None:
    kinds = {manifest["kind"] for manifest in render({}, known=(MONITOR, RULE))}

    assert {"NetworkPolicy", "ServiceMonitor", "PrometheusRule", "ConfigMap"}.isdisjoint(kinds)


def test_helm_makes_no_certificate_and_no_secret() -> None:
    sources = "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))

    assert of_kind(render({}), "Secret") == []
    assert "genCA" not in sources
    assert "genSignedCert" not in sources
    assert "genSelfSignedCert" not in sources
    # Random values and look-ups change from one rendering to the next, which GitOps tools dislike.
    assert "rand" not in sources.replace("operand", "")
    assert "lookup" not in sources


def test_the_crds_of_the_chart_are_those_of_the_project() -> None:
    ours = {path.name: path.read_text() for path in (ROOT / "crds").iterdir()}
    charts = {path.name: path.read_text() for path in (CHART / "files" / "crds").iterdir()}

    assert charts == ours, "run `make crds`"


@pytest.mark.parametrize("keep", [True, False])
def test_crds_are_installed_unchanged_and_kept_when_the_chart_goes(keep: bool) -> None:
    found = {
        m["metadata"]["name"]: m
        for m in of_kind(render({"crds": {"keep": keep}}), "CustomResourceDefinition")
    }

    for path in (ROOT / "crds").iterdir():
        crd = yaml.safe_load(path.read_text())
        installed = found.pop(crd["metadata"]["name"])
        assert installed["spec"] == crd["spec"]
        policy = installed["metadata"].get("annotations", {}).get("helm.sh/resource-policy")
        assert policy == ("keep" if keep else None)
    assert found == {}


def test_crds_can_be_left_to_somebody_else() -> None:
    assert of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition") == []
