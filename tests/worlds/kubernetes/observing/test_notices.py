"""Notices: what the API server shows before a worker is taken away."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.builders import an_agent
from tests.worlds.kubernetes.facts_of import fact, heard, noticed
from tests.worlds.kubernetes.raw_objects import (
    Raw,
    a_node,
    a_taint,
    before,
    deleted,
    disrupted,
    ended,
    running,
    tolerating,
)
from trainrun.contract.agent_state import Notice
from trainrun_operator.worlds.base import AgentContact
from trainrun_operator.worlds.kubernetes.observing.nodes import node_fact, notice_taints
from trainrun_operator.worlds.kubernetes.observing.worker_observation import LastSeenTimes

SPOT = a_taint("aws-node-termination-handler/spot-itn", "1777632000")
SPOT_TEXT = (
    "node n1 is a spot instance that is being reclaimed (taint "
    "aws-node-termination-handler/spot-itn=1777632000:NoSchedule)"
)
EVERYTHING = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("PreemptionByScheduler", "preempted by the scheduler: make room"),
        ("EvictionByEvictionAPI", "evicted: make room"),
        ("DeletionByTaintManager", "evicted for a taint of its node: make room"),
        ("TerminationByKubelet", "ended by its node: make room"),
        ("SomethingNew", "SomethingNew: make room"),
    ],
)
def test_a_disruption_is_a_notice_as_long_as_the_grace_lasts(reason: str, text: str) -> None:
    pod = disrupted(deleted(running(), ago=2), reason, "make room", seconds=2)
    found = fact(pod, a_node(), heard())
    assert noticed(found) == (text, 2.0, 28.0)
    assert (found.phase, found.deleting, found.loss) == ("Running", True, None)


def test_a_disruption_is_a_notice_before_the_deletion_follows() -> None:
    found = fact(disrupted(running(), "EvictionByEvictionAPI"), a_node(), heard())
    assert noticed(found) == ("evicted", 2.0, None)
    assert not found.deleting


def test_a_disruption_that_did_not_come_about_is_no_notice() -> None:
    pod = disrupted(running(), "PreemptionByScheduler")
    pod["status"]["conditions"][-1]["status"] = "False"
    assert fact(pod, a_node(), heard()).notice is None


def test_a_disruption_without_a_reason_is_a_notice() -> None:
    assert noticed(fact(disrupted(running(), ""), a_node(), heard()))[0] == "DisruptionTarget"


def test_an_eviction_from_a_node_that_does_not_answer_is_no_notice() -> None:
    """Nobody carries it out there: the agent's silence decides whether the worker is lost."""
    pod = disrupted(deleted(running()), "DeletionByTaintManager")
    found = fact(pod, a_node(ready="Unknown"), heard())
    assert (found.notice, found.deleting) == (None, True)
    assert found.suspect_node == "node n1 is NotReady: Kubelet stopped posting node status."
    assert noticed(fact(pod, a_node(), heard()))[0] == "evicted for a taint of its node"


def test_a_pod_deleted_by_hand_is_under_notice_until_its_grace_ends() -> None:
    pod = deleted(running(), ago=10, grace=30)
    assert noticed(fact(pod, a_node(), heard())) == ("pod was deleted", 10.0, 20.0)
    assert noticed(fact(pod, a_node(), heard(40), passed=60)) == ("pod was deleted", 70.0, 0.0)


def test_a_deletion_that_reaches_its_node_late_leaves_the_whole_grace_from_then() -> None:
    """After a partition, deletionTimestamp is long over when the kubelet first hears of it."""
    pod = disrupted(deleted(running(), ago=400), "DeletionByTaintManager", seconds=400)
    text = "evicted for a taint of its node"
    assert noticed(fact(pod, a_node(), heard())) == (text, 0.0, None)
    told = Notice(reason="SIGTERM", age=2, remaining=28)
    agent = AgentContact(state=an_agent(notice=told), silent_for=timedelta(seconds=1))
    assert noticed(fact(pod, a_node(), agent)) == (text, 2, 28)


def test_removing_what_is_left_of_an_ended_pod_is_no_notice() -> None:
    pod = deleted(ended(finishedAt=before(9)), ago=5, grace=0)
    assert fact(pod, a_node(), heard()).notice is None


def test_a_pod_that_ended_after_its_deletion_was_under_notice() -> None:
    pod = deleted(ended(finishedAt=before(4)), ago=5)
    assert noticed(fact(pod, a_node(), heard()))[0] == "pod was deleted"
    without_a_time = deleted(ended(finishedAt=None), ago=5)
    assert noticed(fact(without_a_time, a_node(), heard()))[0] == "pod was deleted"


def test_a_taint_of_the_table_is_a_notice_that_ages_from_when_it_was_first_seen() -> None:
    sightings = LastSeenTimes()
    assert fact(running(), a_node(), heard(), sightings=sightings).notice is None
    node = a_node(SPOT)
    first = fact(running(), node, heard(), passed=1, sightings=sightings)
    assert noticed(first) == (SPOT_TEXT, 0.0, 120.0)
    later = fact(running(), node, heard(), passed=31, sightings=sightings)
    assert noticed(later) == (SPOT_TEXT, 30.0, 90.0)
    assert noticed(fact(running(), node, heard(), passed=300, sightings=sightings))[2] == 0.0


def test_a_taint_that_comes_back_is_a_new_notice() -> None:
    sightings = LastSeenTimes()
    for passed, node in ((0, a_node(SPOT)), (60, a_node()), (90, a_node(SPOT))):
        found = fact(running(), node, heard(), passed=passed, sightings=sightings)
    assert noticed(found)[1] == 0.0


def test_a_node_whose_end_has_no_known_time_leaves_the_time_open() -> None:
    node = a_node(a_taint("karpenter.sh/disrupted"))
    assert noticed(fact(running(), node, heard())) == (
        "node n1 is being replaced by Karpenter (taint karpenter.sh/disrupted:NoSchedule)",
        0.0,
        None,
    )


def test_a_taint_that_an_operator_was_told_of_is_a_notice() -> None:
    node = a_node(a_taint("example.com/reclaim"))
    assert fact(running(), node, heard()).notice is None
    found = fact(running(), node, heard(), notices=notice_taints(["example.com/reclaim@9s"]))
    text = "node n1 is going away (taint example.com/reclaim:NoSchedule)"
    assert noticed(found) == (text, 0.0, 9.0)


def test_a_pod_that_tolerates_everything_hears_of_a_taint_that_comes_later() -> None:
    sightings, pod = LastSeenTimes(), tolerating(running(), **EVERYTHING)
    fact(pod, a_node(), heard(), sightings=sightings)
    found = fact(pod, a_node(SPOT), heard(), passed=5, sightings=sightings)
    assert noticed(found)[0] == SPOT_TEXT


def test_a_pod_that_was_placed_in_spite_of_a_taint_is_not_told_of_it() -> None:
    """Else a template that tolerates everything is replaced without end on such a node."""
    sightings, pod = LastSeenTimes(), tolerating(running(), **EVERYTHING)
    for passed in (0, 5, 500):
        found = fact(pod, a_node(SPOT), heard(), passed=passed, sightings=sightings)
        assert found.notice is None


def test_another_no_execute_taint_is_a_notice_as_far_as_it_is_not_tolerated() -> None:
    taint = a_taint("example.com/repair", "gpu", "NoExecute", timeAdded=before(10))
    text = "node n1 has the taint example.com/repair=gpu:NoExecute"
    limited = tolerating(
        running(), key="example.com/repair", operator="Exists", tolerationSeconds=60
    )
    assert noticed(fact(running(), a_node(taint), heard())) == (text, 10.0, 20.0)
    assert noticed(fact(limited, a_node(taint), heard())) == (text, 10.0, 80.0)
    assert fact(tolerating(running(), **EVERYTHING), a_node(taint), heard()).notice is None


def test_a_no_execute_taint_leaves_the_grace_of_the_pod_to_save_in() -> None:
    pod = running()
    pod["spec"]["terminationGracePeriodSeconds"] = 90
    node = a_node(a_taint("example.com/repair", "gpu", "NoExecute", timeAdded=before(0)))
    assert noticed(fact(pod, node, heard()))[2] == 90.0


@pytest.mark.parametrize("key", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"])
def test_the_taints_of_a_node_that_is_not_ready_are_no_notice(key: str) -> None:
    node = a_node(a_taint(key, effect="NoExecute", timeAdded=before(400)), ready="Unknown")
    assert fact(running(), node, heard()).notice is None


@pytest.mark.parametrize("node", [a_node(), a_node(spec={"unschedulable": True})])
def test_a_node_that_is_ready_or_merely_cordoned_is_no_notice(node: Raw) -> None:
    found = fact(running(), node, heard())
    assert (found.notice, found.loss, found.suspect_node) == (None, None, "")


def test_a_node_object_that_is_being_deleted_is_a_notice() -> None:
    node = a_node(metadata={"deletionTimestamp": before(7)})
    assert noticed(fact(running(), node, heard())) == ("node n1 is being deleted", 7.0, None)


def test_a_deleted_node_whose_agent_still_answers_leaves_time_to_save() -> None:
    gone, sightings = node_fact(a_node()).as_gone(), LastSeenTimes()
    fact(running(), gone, heard(), sightings=sightings)
    found = fact(running(), gone, heard(), passed=15, sightings=sightings)
    assert noticed(found) == ("node n1 was deleted", 15.0, 25.0)
    assert (found.loss, found.suspect_node) == (None, "node n1 was deleted")
    assert noticed(fact(running(), gone, heard(), passed=99, sightings=sightings))[2] == 0.0


def test_what_was_decided_about_the_pod_is_told_before_what_is_known_of_its_node() -> None:
    pod = disrupted(deleted(running()), "PreemptionByScheduler")
    assert noticed(fact(pod, a_node(SPOT), heard()))[0] == "preempted by the scheduler"


def test_an_ended_worker_hears_nothing_of_its_node() -> None:
    assert fact(ended(), a_node(SPOT), heard()).notice is None


def test_a_clock_that_is_ahead_of_ours_makes_no_negative_ages() -> None:
    pod = disrupted(running(), "EvictionByEvictionAPI", seconds=-3)
    found = fact(pod, a_node(), heard())
    assert noticed(found)[1] == 0.0
