"""Values: what is refused, what is documented, and what Helm tells after an installation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.chart.rendering import CHART, MATRIX, parsed, refusal, render, run_helm
from trainrun_operator.api.loading import load_trainrun

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 1}, "additional properties 'replica' not allowed"),
        ({"image": {"version": "1"}}, "additional properties 'version' not allowed"),
        ({"crds": {"enabled": True}}, "additional properties 'enabled' not allowed"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"replicas": -1}, "at '/replicas': minimum: got -1, want 0"),
        ({"logFormat": "xml"}, "at '/logFormat': value must be one of 'json', 'text'"),
        ({"watchNamespaces": "team-a"}, "at '/watchNamespaces': got string, want array"),
        ({"watchNamespaces": ["Team"]}, "at '/watchNamespaces/0': 'Team' does not match"),
        ({"watchNamespaces": ["a", "a"]}, "at '/watchNamespaces': items at 0 and 1 are equal"),
        ({"image": {"digest": "abc"}}, "at '/image/digest': 'abc' does not match"),
        ({"nodes": {"enabled": "yes"}}, "at '/nodes/enabled': got string, want"),
        ({"nodes": {"noticeTaints": ["a,b"]}}, "at '/nodes/noticeTaints/0': 'a,b' does not match"),
        ({"networkPolicy": {"apiServerPorts": []}}, "at '/networkPolicy/apiServerPorts': minItems"),
        (
            {"admissionPolicy": {"podSecurity": "Restricted"}},
            "at '/admissionPolicy/podSecurity': value must be one of '', 'restricted'",
        ),
        (
            {"admissionPolicy": {"podSecurity": "restricted"}},
            "admissionPolicy.enabled must be true where admissionPolicy.podSecurity is set",
        ),
        ({"page": {"basePath": "runs/"}}, "at '/page/basePath': 'runs/' does not match"),
        ({"page": {"stores": [{"uri": "s3://b"}]}}, "missing properties 'namespace', 'secret'"),
        (
            {"page": {"stores": [{"uri": "gs://b", "namespace": "a", "secret": "k"}]}},
            "at '/page/stores/0/uri': 'gs://b' does not match",
        ),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name is needed"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)


def test_an_umbrella_chart_may_use_its_own_global_values_and_its_condition() -> None:
    assert render({"enabled": True, "global": {"storageClass": "fast", "imageRegistry": "r.io"}})


def test_an_older_cluster_is_refused() -> None:
    done = run_helm("template", "trainrun", "--kube-version", "1.30.9", values={})

    assert "chart requires kubeVersion: >=1.31.0-0" in done.stderr


@pytest.mark.parametrize("version", ["1.31.0", "1.33.4-gke.1", "1.36.3"])
def test_clusters_since_1_31_are_taken(version: str) -> None:
    done = run_helm("template", "trainrun", "--kube-version", version, values={})

    assert done.returncode == 0, done.stderr


def test_the_schema_takes_the_defaults_and_names_every_value() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)

    assert set(keys(VALUES)) <= set(described(SCHEMA))
    # `enabled` is the one that only umbrella charts set; claims are rare.
    assert {k for k in described(SCHEMA) if k.count(".") == 0} - VALUES.keys() == {"enabled"}


def test_the_helm_of_the_testbed_renders_for_the_kubernetes_of_the_testbed() -> None:
    """It believed in Kubernetes 1.20, which the chart refuses."""
    done = run_helm("template", "trainrun", values={})
    assert done.returncode == 0, done.stderr


def test_every_value_is_described() -> None:
    assert [
        name for name, schema in described(SCHEMA).items() if not schema.get("description")
    ] == []


def test_after_an_installation_helm_tells_how_to_start_a_run(tmp_path: Path) -> None:
    notes = notes_of({}, tmp_path)

    assert "serves TrainRuns in all namespaces" in notes
    assert "wait trainrun/first --for=condition=Complete" in notes
    assert "WARNING" not in notes
    assert "NOTE" not in notes


def test_the_run_in_the_notes_is_valid(tmp_path: Path) -> None:
    notes = notes_of(MATRIX["namespaced"], tmp_path)
    text = notes.partition("<<EOF\n")[2].partition("EOF")[0]

    assert load_trainrun(text, source="the notes").metadata.name == "first"
    assert yaml.safe_load(text)["metadata"]["namespace"] == "team-a"


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        (MATRIX["bare"], "the operator can do nothing before somebody gives its service account"),
        (MATRIX["bare"], "install and upgrade the CRDs by hand"),
        ({"crds": {"keep": False}}, "`helm uninstall` will delete every TrainRun of the cluster"),
        ({"serviceMonitor": {"enabled": True}}, "this cluster knows no ServiceMonitor"),
        ({"replicas": 1}, "with 1 replica(s), runs are not looked after while"),
        (MATRIX["namespaced"], "NOTE: the operator may not read nodes"),
        (MATRIX["namespaced"], "A run in any other namespace is told nothing"),
    ],
)
def test_the_notes_warn_of_what_will_be_missed(
    values: dict[str, Any], warning: str, tmp_path: Path
) -> None:
    assert warning in notes_of(values, tmp_path)


def keys(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict) and key not in {"requests", "limits"}:
            yield from keys(value, f"{prefix}{key}.")


def described(schema: dict[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Dotted name -> its schema."""
    found: dict[str, dict[str, Any]] = {}
    for name, inner in schema.get("properties", {}).items():
        found[f"{prefix}{name}"] = inner
        found |= described(inner, f"{prefix}{name}.")
    return found


def notes_of(values: dict[str, Any], folder: Path) -> str:
    """NOTES.txt, which Helm shows only while it talks to a cluster: here as a ConfigMap."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    notes = chart / "templates" / "NOTES.txt"
    (chart / "templates" / "_notes.tpl").write_text(
        '{{- define "notes" }}' + notes.read_text() + "{{ end }}"
    )
    (chart / "templates" / "notes.yaml").write_text(
        'kind: Notes\nmetadata: {labels: {}}\ntext: {{ include "notes" . | quote }}\n'
    )
    done = run_helm("template", "trainrun", "--kube-version", "1.31.0", values=values, chart=chart)
    assert done.returncode == 0, done.stderr
    (found,) = [m for m in parsed(done.stdout) if m["kind"] == "Notes"]
    return str(found["text"])
