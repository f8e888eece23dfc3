"""Which taints announce the end of a node, and how the table is changed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.docs.documents import ROOT, section, tables
from trainrun.errors import InvalidSpec
from trainrun_operator.worlds.kubernetes.observing.nodes import (
    DEFAULT_NOTICES,
    SWITCHED_OFF,
    NoticeTaint,
    Taint,
    Toleration,
    announced,
    notice_taints,
    patience,
)


def a_taint(key: str, value: str = "", effect: str = "NoSchedule") -> Taint:
    return Taint(key=key, value=value, effect=effect)


@pytest.mark.parametrize("notice", DEFAULT_NOTICES, ids=lambda notice: notice.key)
def test_every_taint_of_the_table_announces_the_end_of_its_node(notice: NoticeTaint) -> None:
    taint = a_taint(notice.key, notice.value or "1777632000")
    assert announced([a_taint("example.com/other"), taint], notice_taints()) == (taint, notice)


@pytest.mark.parametrize(
    "taint",
    [
        a_taint("cloud.google.com/gke-spot", "true"),
        a_taint("cloud.google.com/gke-preemptible", "true"),
        a_taint("kubernetes.azure.com/scalesetpriority", "spot"),
        a_taint("nvidia.com/gpu", "present"),
        a_taint("DeletionCandidateOfClusterAutoscaler", "1777632000", "PreferNoSchedule"),
        a_taint("aws-node-termination-handler/rebalance-recommendation"),
        a_taint("AggregatedNodeHealth", "True"),
        a_taint("node.kubernetes.io/unschedulable"),
        a_taint("node.kubernetes.io/not-ready", effect="NoExecute"),
    ],
    ids=lambda taint: taint.key,
)
def test_static_taints_and_mere_intentions_announce_nothing(taint: Taint) -> None:
    assert announced([taint], notice_taints()) is None


def test_an_operator_may_be_told_of_further_taints() -> None:
    table = notice_taints(["example.com/reclaim=soon:NoSchedule@90s", "example.com/any"])
    assert table[: len(DEFAULT_NOTICES)] == DEFAULT_NOTICES
    assert table[-2] == NoticeTaint(
        key="example.com/reclaim",
        value="soon",
        effect="NoSchedule",
        means="is going away",
        seconds=90,
    )
    assert announced([a_taint("example.com/reclaim", "later")], table) is None
    assert announced([a_taint("example.com/reclaim", "soon", "NoExecute")], table) is None
    assert announced([a_taint("example.com/reclaim", "soon")], table) is not None
    assert announced([a_taint("example.com/any", "x", "NoExecute")], table) is not None


def test_a_default_taint_can_be_left_out_or_replaced() -> None:
    disrupted = a_taint("karpenter.sh/disrupted")
    assert announced([disrupted], notice_taints(["-karpenter.sh/disrupted"])) is None
    assert announced([disrupted], notice_taints(["karpenter.sh/disrupted=yes"])) is None
    assert notice_taints(["-example.com/unknown"]) == DEFAULT_NOTICES


@pytest.mark.parametrize("entry", ["", "a b", "key:Sometimes", "key@soon", "=x", "key@90"])
def test_what_is_no_taint_is_refused_with_an_example(entry: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        notice_taints([entry])
    assert str(refused.value).startswith(f"{entry!r} is not a taint; write key, key=value,")


def test_a_taint_is_written_as_kubectl_writes_it() -> None:
    assert str(a_taint("a", "b")) == "a=b:NoSchedule"
    assert str(a_taint("a", effect="NoExecute")) == "a:NoExecute"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(exists=True), True),
        (Toleration(exists=True, effect="NoExecute"), True),
        (Toleration(exists=True, effect="NoSchedule"), False),
        (Toleration(key="a", exists=True), True),
        (Toleration(key="other", exists=True), False),
        (Toleration(key="a", value="b"), True),
        (Toleration(key="a", value="c"), False),
        (Toleration(), False),
    ],
)
def test_tolerations_match_as_the_scheduler_matches_them(
    toleration: Toleration, tolerated: bool
) -> None:
    assert toleration.tolerates(a_taint("a", "b", "NoExecute")) is tolerated


def test_how_long_a_pod_stays_on_a_tainted_node() -> None:
    taint = Taint(key="a", effect="NoExecute", added=datetime(2026, 1, 1, tzinfo=UTC))
    everything = Toleration(exists=True)
    assert patience(taint, []) == 0.0
    assert patience(taint, [everything]) is None
    limited = Toleration(key="a", exists=True, seconds=60)
    assert patience(taint, [everything, limited]) == 60.0
    assert patience(taint, [Toleration(key="a", exists=True, seconds=-5)]) == 0.0


def test_the_documented_table_is_the_table() -> None:
    text = (ROOT / "docs" / "failure-model.md").read_text()
    notices, losses = tables(section(text, "## Notices from nodes"))
    documented = {
        (row[0].strip("`"), float(row[2].removesuffix(" s")) if row[2] != "-" else None)
        for row in notices
    }
    in_code = {(f"{n.key}={n.value}" if n.value else n.key, n.seconds) for n in DEFAULT_NOTICES}
    assert documented == in_code
    assert {row[0].strip("`") for row in losses} == set(SWITCHED_OFF)
