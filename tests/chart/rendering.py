"""The chart as Helm renders it, parsed.

Helm is built by `make cluster-tools`; a machine without it and without Go skips these tests loudly.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.binaries import TOOLS, binary
from testbed.errors import ClusterUnavailable

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "trainrun"

Manifest = dict[str, Any]

MATRIX: dict[str, Manifest] = {
    "defaults": {},
    "namespaced": {"watchNamespaces": ["team-a", "team-b"]},
    "everything": {
        "nodes": {"noticeTaints": ["example.com/going-away"]},
        "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]},
        "admissionPolicy": {
            "enabled": True,
            "allow": {
                "privileged": False,
                "hostPath": False,
                "hostNamespaces": False,
                "nodeName": False,
                "criticalPriority": False,
                "everyTaint": False,
            },
            "serviceAccounts": ["trainer", "default"],
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "extraEnv": [{"name": "MALLOC_ARENA_MAX", "value": "2"}],
        "serviceAccount": {"annotations": {"example.com/role": "x"}},
        "imagePullSecrets": ["mine"],
        "global": {"imagePullSecrets": ["everybodys"]},
    },
    "page": {
        "page": {
            "enabled": True,
            "hosts": ["runs.example.com"],
            "basePath": "/runs",
            "from": [{"podSelector": {}}],
            "stores": [
                {"uri": "s3://bucket/a", "namespace": "team-a", "secret": "a-keys"},
                {
                    "uri": "s3://bucket/b",
                    "namespace": "team-b",
                    "secret": "b-keys",
                    "endpointURL": "https://minio.example.com",
                    "region": "eu-1",
                },
            ],
        },
        "networkPolicy": {"enabled": True},
    },
    "kueue": {"kueue": {"enabled": True}},
    "restricted": {"admissionPolicy": {"enabled": True, "podSecurity": "restricted"}},
    "single": {"replicas": 1, "fullnameOverride": "operator"},
    "bare": {
        "crds": {"install": False},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "given"},
        "podDisruptionBudget": {"enabled": False},
    },
}
"""Values that between them reach every branch of the templates."""


@cache
def helm() -> str:
    """The binary: what the cluster tool builds, else one on PATH, else a loud skip."""
    built = TOOLS.target / "helm"
    found = str(built) if built.is_file() else shutil.which("helm")
    if found is None:
        try:
            found = str(binary("helm"))
        except ClusterUnavailable as reason:
            pytest.skip(f"NO HELM, so the chart was not tested: {reason}")
    return found


def run_helm(
    *arguments: str, values: Mapping[str, Any], chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """`helm ARGUMENTS` with these values; neither cluster nor configuration of the host is used."""
    return subprocess.run(
        [helm(), *arguments, str(chart), "--namespace", "trainrun", "--values", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        env={"HOME": "/nonexistent", "PATH": os.environ["PATH"], "KUBECONFIG": "/nonexistent"},
    )


def render(
    values: Mapping[str, Any],
    *,
    release: str = "trainrun",
    known: tuple[str, ...] = (),
    hooks: bool = False,
) -> list[Manifest]:
    """All objects; `known` are further kinds that the cluster serves. With `hooks`, also those of
    `helm test`."""
    return list(parsed(_rendered(json.dumps(values), release, known, hooks=hooks)))


@cache
def _rendered(values: str, release: str, known: tuple[str, ...], *, hooks: bool) -> str:
    more = [] if hooks else ["--no-hooks"]
    apis = [part for kind in known for part in ("--api-versions", kind)]
    done = run_helm(
        "template", release, "--kube-version", "1.31.0", *apis, *more, values=json.loads(values)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def parsed(text: str) -> Iterator[Manifest]:
    # The CRD is long, and libyaml ten times as fast.
    return (found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found)


def refusal(values: Mapping[str, Any]) -> str:
    """What Helm says to values that it must not take."""
    done = run_helm("template", "trainrun", "--kube-version", "1.31.0", values=values)
    assert done.returncode != 0, f"{values} were taken"
    return done.stderr


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def the(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """The only object of a kind, or of a kind and name."""
    (found,) = [m for m in of_kind(manifests, kind) if name in ("", m["metadata"]["name"])]
    return found


def of_component(manifests: list[Manifest], component: str) -> list[Manifest]:
    """The objects of the operator, or of the page."""
    label = "app.kubernetes.io/component"
    return [m for m in manifests if m["metadata"]["labels"].get(label) == component]


def rights(role: Manifest) -> set[tuple[str, str, str]]:
    """(resource, verb, name or "") of all that a role allows."""
    return {
        (f"{resource}.{group}".removesuffix("."), verb, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
