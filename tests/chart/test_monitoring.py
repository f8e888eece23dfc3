"""Alerts and dashboard: they speak of what the operator exports, and alerts fire when they should.

promtool is built by `make test-alerts`; without it the tests of alerts that fire are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.chart.rendering import ROOT, Manifest, of_kind, render, the
from tests.docs.documents import anchor_of
from tests.support.builders import BEGIN, a_config, a_run
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import CheckpointStatus, Ending, Incident, Progress
from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.kube.informer import ListState

RULE = "monitoring.coreos.com/v1/PrometheusRule"
CASES = Path(__file__).with_name("alerts_test.yaml")
OF_TARGETS = {"job", "namespace"}
"""Labels that Prometheus itself adds."""


def rules() -> list[Manifest]:
    rule = the(render({"alerts": {"enabled": True}}, known=(RULE,)), "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    found: list[Manifest] = group["rules"]
    return found


def panels() -> list[Manifest]:
    config = the(render({"dashboard": {"enabled": True}}), "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    found: list[Manifest] = json.loads(config["data"]["trainrun.json"])["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression, with the texts that show its labels."""
    for rule in rules():
        yield rule["expr"], " ".join(rule["annotations"].values())
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def promtool() -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "trainrun" / "bin" / "promtool"
    found = str(built) if built.is_file() else shutil.which("promtool")
    if found is None:
        pytest.skip("NO PROMTOOL, so no alert was tested: `make test-alerts` builds it")
    return found


def exported() -> dict[str, set[str]]:
    """The labels of each metric that an operator exports to which everything has happened once."""
    incident = Incident(attempt=1, cause="AppError", counted=True, time=BEGIN, recovery_seconds=2.0)
    incident = replace(incident, stages={"import": 1.5})
    status = replace(a_run().running(1).status, phase="Running", restarts=1, incidents=(incident,))
    checkpoint = CheckpointStatus(uri="file:///c", step=1, attempt=1, time=BEGIN)
    status = replace(status, checkpoint=checkpoint, progress=Progress(step=1, time=BEGIN))
    status = replace(status, spent={"useful": 1.0})
    refused = ListState("/api/v1/nodes")
    refused.trouble = "403"

    metrics = Metrics()
    metrics.follow(lambda: [("ml/llama", status, a_config(max_failures=3), lambda: None)])
    metrics.listings = lambda: [refused]
    metrics.wrote(TrainRunStatus(ending=Ending(attempt=1, kind="Incident", time=BEGIN)), status)
    metrics.operator_error("ReconcileFailed")
    metrics.api_call("get", "200")
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_every_metric_and_label_in_alerts_and_dashboard_is_exported() -> None:
    labels = exported()

    for expression, shown in expressions():
        selectors = re.findall(r"\b(trainrun_\w+)(?:\{([^}]*)\})?", expression)
        assert selectors, expression
        known = set()
        for metric, matchers in selectors:
            assert metric in labels
            assert set(re.findall(r"(\w+)=", matchers)) <= labels[metric] | OF_TARGETS, expression
            known |= labels[metric]
        named = set(re.findall(r"{{ ?(?:\$labels\.)?(\w+) ?}}", shown))
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            named |= {name.strip() for name in grouping.split(",")}
        assert named <= known, expression


def test_each_alert_has_a_section_in_the_runbooks_that_says_what_to_look_at() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}

    assert sections.keys() == {rule["alert"] for rule in rules()}
    for rule in rules():
        section = sections[rule["alert"]]
        assert len(section.split()) <= 120, rule["alert"]
        assert "Look" in section
        assert "\nDo" in section
        assert "kubectl" in section
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{anchor_of(rule['alert'])}"


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    tests = yaml.safe_load(CASES.read_text())["tests"]
    cases: list[dict[str, Any]] = [case for test in tests for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules()}

    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    groups = {"groups": [{"name": "trainrun", "rules": rules()}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    shutil.copy(CASES, tmp_path)

    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", CASES.name]):
        done = subprocess.run(
            [promtool(), *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_need_a_cluster_that_knows_them_and_take_what_the_user_sets() -> None:
    given = {"labels": {"release": "prometheus"}, "matchers": 'pod=~"x.*"', "runbooks": "https://r"}
    values = {"alerts": {"enabled": True, "slowRecoverySeconds": 60, **given}}

    assert of_kind(render(values), "PrometheusRule") == []
    rule = the(render(values, known=(RULE,)), "PrometheusRule")
    found = {one["alert"]: one for one in rule["spec"]["groups"][0]["rules"]}
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    leader, slow = found["TrainRunNoLeader"], found["TrainRunRecoverySlow"]
    assert leader["expr"] == '(sum(trainrun_leader{pod=~"x.*"}) or vector(0)) < 1'
    assert leader["annotations"]["runbook_url"] == "https://r#trainrunnoleader"
    assert slow["expr"].endswith("> 60")
