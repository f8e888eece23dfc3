"""Pods are kept away from nodes, whatever else their template says of nodes."""

from __future__ import annotations

from typing import Any

from trainrun_operator.worlds.kubernetes.render import (
    PREFERRED,
    REQUIRED,
    keep_away,
    prefer_other_nodes,
)


def not_on(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "NotIn", "values": [node]}


def kept_away(spec: dict[str, Any], *nodes: str) -> dict[str, Any]:
    keep_away(spec, nodes)
    return spec


def test_a_pod_without_an_affinity_gets_one() -> None:
    term = {"matchFields": [not_on("n1"), not_on("n2")]}
    required = {REQUIRED: {"nodeSelectorTerms": [term]}}
    assert kept_away({}, "n1", "n2") == {"affinity": {"nodeAffinity": required}}


def test_every_term_of_the_users_is_narrowed_since_one_of_them_is_enough() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [zone]}, {"matchFields": [not_on("n9")]}]
    spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    found = kept_away(spec, "n1")["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert found == [
        {"matchExpressions": [zone], "matchFields": [not_on("n1")]},
        {"matchFields": [not_on("n9"), not_on("n1")]},
    ]


def test_what_else_the_affinity_says_is_kept() -> None:
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    rather = [{"weight": 1, "preference": {"matchExpressions": []}}]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": rather}
    spec = {"affinity": {"podAntiAffinity": apart, "nodeAffinity": preferred}}
    found = kept_away(spec, "n1")["affinity"]
    assert found["podAntiAffinity"] == apart
    assert found["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == rather


def test_a_pod_that_may_go_anywhere_is_left_as_it_is() -> None:
    assert kept_away({"affinity": None}) == {"affinity": None}


def test_a_node_that_is_better_not_used_makes_all_others_preferred() -> None:
    zone = {"weight": 1, "preference": {"matchExpressions": []}}
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {PREFERRED: [zone]}}}
    prefer_other_nodes(spec, ["n1", "n2"])
    ours = {"weight": 100, "preference": {"matchFields": [not_on("n1"), not_on("n2")]}}
    assert spec["affinity"]["nodeAffinity"] == {PREFERRED: [zone, ours]}
