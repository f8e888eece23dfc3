"""What `helm test` brings into a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.chart.rendering import MATRIX, Manifest, of_kind, render, rights, the
from trainrun_operator.api.loading import load_trainrun


def hooks(values: dict[str, Any]) -> list[Manifest]:
    found = render(values, hooks=True)
    return [m for m in found if m["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_its_run_is_valid_and_its_pods_are_restricted(values: dict[str, Any]) -> None:
    for pod in of_kind(hooks(values), "Pod"):
        variables = {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}
        written = json.loads(variables["TRAINRUN"])
        run = load_trainrun(variables["TRAINRUN"], source="helm test")
        assert run.metadata.namespace in values.get("watchNamespaces", ["trainrun"])
        for spec in (pod["spec"], written["spec"]["workers"]["template"]["spec"]):
            (container,) = spec["containers"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert spec["enableServiceLinks"] is False


def test_its_pods_may_run_where_the_operators_may() -> None:
    tainted = [{"key": "example.com/system", "operator": "Exists"}]
    values = {"nodeSelector": {"pool": "system"}, "tolerations": tainted}
    pod = the(hooks(values), "Pod")["spec"]
    run = json.loads(pod["containers"][0]["env"][-1]["value"])

    for spec in (pod, run["spec"]["workers"]["template"]["spec"]):
        assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "system"}, tainted)


def test_it_may_touch_no_run_but_its_own_and_gives_its_rights_back() -> None:
    found = hooks({"watchNamespaces": ["team-a"]})

    role = the(found, "Role")
    assert role["metadata"]["namespace"] == "team-a"
    assert rights(role) == {
        ("trainruns.trainrun.dev", "create", ""),
        ("trainruns.trainrun.dev", "get", "trainrun-test"),
        ("trainruns.trainrun.dev", "delete", "trainrun-test"),
    }
    for manifest in found:
        deleted = manifest["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert ("hook-succeeded" in deleted) == (manifest["kind"] != "Pod")


def test_no_service_of_the_operator_selects_its_pod() -> None:
    labels = the(hooks({}), "Pod")["metadata"]["labels"]

    for service in of_kind(render({}), "Service"):
        selector = service["spec"].get("selector")
        assert selector is None or not selector.items() <= labels.items()


def test_it_needs_the_right_to_give_rights() -> None:
    assert hooks(MATRIX["bare"]) == []
