"""What the operator may do, exactly: more is a hole, less is an operator that stands still."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import MATRIX, Manifest, of_component, of_kind, render, rights, the
from trainrun_operator.api.crd import RESOURCES
from trainrun_operator.worlds.kubernetes.installation import LEASE_NAME

WORK = {
    *((name, verb, "") for resource in RESOURCES for name, verb in resource.rights()),
    *(("pods", verb, "") for verb in ("get", "list", "watch", "create", "delete")),
    ("events", "create", ""),
}
OWN = {
    ("leases.coordination.k8s.io", "create", ""),
    ("leases.coordination.k8s.io", "get", LEASE_NAME),
    ("leases.coordination.k8s.io", "update", LEASE_NAME),
    ("secrets", "create", ""),
    ("secrets", "get", "trainrun-ca"),
    ("secrets", "update", "trainrun-ca"),
    ("endpointslices.discovery.k8s.io", "create", ""),
    ("endpointslices.discovery.k8s.io", "get", "trainrun-agents-leader"),
    ("endpointslices.discovery.k8s.io", "update", "trainrun-agents-leader"),
    ("endpointslices.discovery.k8s.io", "delete", "trainrun-agents-leader"),
    ("services", "get", "trainrun-agents"),
}
NODES = {("nodes", verb, "") for verb in ("list", "watch")}
NODE_LEASES = {("leases.coordination.k8s.io", "get", "")}
TOKENS = {("tokenreviews.authentication.k8s.io", "create", "")}


def granted(manifests: list[Manifest]) -> dict[tuple[str, str], set[tuple[str, str, str]]]:
    """(namespace or "" for everywhere, role) -> what the operator's account is bound to."""
    manifests = of_component(manifests, "operator")
    account = {
        "kind": "ServiceAccount",
        "name": the(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"],
        "namespace": "trainrun",
    }
    found = {}
    for binding in of_kind(manifests, "RoleBinding") + of_kind(manifests, "ClusterRoleBinding"):
        namespace = binding["metadata"].get("namespace", "")
        if binding["metadata"]["name"].endswith("-kueue"):
            continue
        assert binding["subjects"] == [account]
        (role,) = [
            role
            for role in of_kind(manifests, binding["roleRef"]["kind"])
            if role["metadata"]["name"] == binding["roleRef"]["name"]
            and role["metadata"].get("namespace", "") == namespace
        ]
        found[namespace, role["metadata"]["name"]] = rights(role)
    return found


def test_the_rights_for_a_whole_cluster_are_exactly_these() -> None:
    assert granted(render({})) == {
        ("", "trainrun.trainrun"): WORK,
        ("", "trainrun.trainrun-tokens"): TOKENS,
        ("", "trainrun.trainrun-nodes"): NODES,
        ("trainrun", "trainrun"): OWN,
        ("kube-node-lease", "trainrun.trainrun-nodes"): NODE_LEASES,
    }


def test_the_rights_for_single_namespaces_are_exactly_these() -> None:
    assert granted(render(MATRIX["namespaced"])) == {
        ("team-a", "trainrun.trainrun-work"): WORK,
        ("team-b", "trainrun.trainrun-work"): WORK,
        ("", "trainrun.trainrun-tokens"): TOKENS,
        ("trainrun", "trainrun"): OWN,
    }


def test_the_only_cluster_role_of_single_namespaces_reviews_tokens() -> None:
    roles = of_kind(render(MATRIX["namespaced"]), "ClusterRole")

    assert [role["metadata"]["name"] for role in roles] == ["trainrun.trainrun-tokens"]


def test_its_own_namespace_may_be_one_of_those_it_watches() -> None:
    assert granted(render({"watchNamespaces": ["trainrun"]})).keys() == {
        ("trainrun", "trainrun.trainrun-work"),
        ("trainrun", "trainrun"),
        ("", "trainrun.trainrun-tokens"),
    }


def test_nodes_can_be_left_out_of_a_whole_cluster() -> None:
    assert granted(render({"nodes": {"enabled": False}})).keys() == {
        ("", "trainrun.trainrun"),
        ("", "trainrun.trainrun-tokens"),
        ("trainrun", "trainrun"),
    }


def test_nodes_can_be_read_for_single_namespaces_too() -> None:
    found = granted(render({**MATRIX["namespaced"], "nodes": {"enabled": True}}))

    assert found["", "trainrun.trainrun-nodes"] == NODES
    assert found["kube-node-lease", "trainrun.trainrun-nodes"] == NODE_LEASES
    assert found["default", "trainrun.trainrun-nodes"] == {("events", "create", "")}


def test_events_on_nodes_need_no_right_of_their_own_where_the_operator_works_in_default() -> None:
    values = {"watchNamespaces": ["default"], "nodes": {"enabled": True}}

    assert granted(render(values))["default", "trainrun.trainrun-work"] == WORK
    assert ("default", "trainrun.trainrun-nodes") not in granted(render(values))


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_no_right_is_a_wildcard_and_no_foreign_secret_can_be_read(values: dict[str, Any]) -> None:
    for (namespace, _), allowed in granted(render(values)).items():
        for resource, verb, name in allowed:
            assert "*" not in resource + verb
            if resource == "secrets":
                assert (namespace, verb, name) in {
                    ("trainrun", "create", ""),
                    ("trainrun", "get", "trainrun-ca"),
                    ("trainrun", "update", "trainrun-ca"),
                }


def test_without_rbac_no_role_is_made() -> None:
    kinds = {manifest["kind"] for manifest in render(MATRIX["bare"])}

    assert {
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "ServiceAccount",
    }.isdisjoint(kinds)


def test_who_may_edit_a_namespace_may_edit_its_runs() -> None:
    manifests = render({})
    view, edit = (
        the(manifests, "ClusterRole", "trainrun.trainrun-view"),
        the(manifests, "ClusterRole", "trainrun.trainrun-edit"),
    )

    assert aggregated(view) == {"view", "edit", "admin"}
    assert aggregated(edit) == {"edit", "admin"}
    assert {verb for _, verb, _ in rights(view)} == {"get", "list", "watch"}
    assert {resource for resource, _, _ in rights(edit)} == {row.name for row in RESOURCES}
    assert {verb for _, verb, _ in rights(edit)} >= {"create", "update", "patch", "delete"}
    assert {resource for resource, _, _ in rights(view)} == {
        *(name for row in RESOURCES for name, _ in row.rights()),
        *(f"{row.plural}/scale.trainrun.dev" for row in RESOURCES),
    }
    assert "status" not in str(edit["rules"])


def test_user_roles_can_be_had_for_single_namespaces_too() -> None:
    manifests = render({**MATRIX["namespaced"], "rbac": {"aggregateToUserRoles": True}})

    assert the(manifests, "ClusterRole", "trainrun.trainrun-edit")


def test_kueue_may_read_whose_pods_the_workers_are_and_nothing_else() -> None:
    manifests = render({"kueue": {"enabled": True, "namespace": "queues"}})
    binding = the(manifests, "ClusterRoleBinding", "trainrun.trainrun-kueue")

    assert binding["roleRef"]["name"] == "trainrun.trainrun-kueue"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": "queues"}
    ]
    assert rights(the(manifests, "ClusterRole", "trainrun.trainrun-kueue")) == {
        (f"{resource}.trainrun.dev", verb, "")
        for resource in ("trainruns", "trainsweeps")
        for verb in ("get", "list", "watch")
    }


def aggregated(role: Manifest) -> set[str]:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    return {
        key.removeprefix(prefix) for key in role["metadata"]["labels"] if key.startswith(prefix)
    }
