"""Losses: what the API server knows of the end of a worker or of its node."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.builders import an_agent
from tests.worlds.kubernetes.facts_of import NEVER, fact, heard, lost
from tests.worlds.kubernetes.raw_objects import (
    Raw,
    a_node,
    a_taint,
    before,
    deleted,
    disrupted,
    ended,
    placed,
    running,
    status,
    tolerating,
)
from trainrun.contract import variables
from trainrun.contract.agent_state import Notice
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.worlds.base import AgentContact
from trainrun_operator.worlds.kubernetes.observing.nodes import node_fact
from trainrun_operator.worlds.kubernetes.observing.worker_observation import LastSeenTimes

TOLD = AgentContact(
    state=an_agent(notice=Notice(reason="SIGTERM", age=2)), silent_for=timedelta(seconds=1)
)
"""Its agent has told that it got SIGTERM."""


def failed(reason: str, message: str = "", *statuses: Raw) -> Raw:
    """A pod that the kubelet has ended or refused as a whole."""
    return placed(*statuses, phase="Failed", reason=reason, message=message)


# -------------------------------------------------------------------------- decided from outside


def test_a_worker_that_had_failed_by_itself_is_not_preempted_by_the_drain_that_follows() -> None:
    """The taint manager and drains put DisruptionTarget on ended pods as well."""
    pod = disrupted(deleted(ended(finishedAt=before(20)), ago=5), "DeletionByTaintManager")
    found = fact(pod, a_node(), heard())
    assert (found.loss, found.notice, found.exit_code) == (None, None, 1)
    init = (status("data", terminated={"exitCode": 3, "finishedAt": before(20)}),)
    pod = disrupted(placed(phase="Failed", init=init), "EvictionByEvictionAPI")
    message = "init container data of worker digits-0-1 failed with exit code 3"
    assert lost(fact(pod, a_node())) == (Cause.START_FAILED, message)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("PreemptionByScheduler", "preempted by the scheduler"),
        ("EvictionByEvictionAPI", "evicted"),
        ("DeletionByTaintManager", "evicted for a taint of its node"),
    ],
)
def test_a_worker_that_was_taken_away_was_preempted(reason: str, text: str) -> None:
    pod = disrupted(deleted(ended(exitCode=143)), reason, "by somebody", seconds=12)
    found = fact(pod, a_node(), heard())
    assert lost(found) == (Cause.PREEMPTED, f"worker digits-0-1 was {text}: by somebody")
    assert found.loss is not None
    assert found.loss.age == timedelta(seconds=12)
    assert (found.phase, found.exit_code) == ("Ended", 143)


def test_a_pod_evicted_by_its_kubelet_was_evicted() -> None:
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 9Mi."
    pod = disrupted(failed("Evicted", message), "TerminationByKubelet", message)
    text = f"worker digits-0-1 was evicted by node n1: {message}"
    assert lost(fact(pod, a_node(), heard())) == (Cause.EVICTED, text)
    assert lost(fact(failed("Evicted", message), a_node(), heard())) == (Cause.EVICTED, text)


def test_an_eviction_says_so_also_where_the_kubelet_gives_no_reason() -> None:
    pod = disrupted(ended(), "TerminationByKubelet")
    text = "worker digits-0-1 was evicted by node n1: no reason given"
    assert lost(fact(pod, a_node(), heard())) == (Cause.EVICTED, text)
    assert lost(fact(failed("Evicted"), a_node(), heard())) == (Cause.EVICTED, text)


@pytest.mark.parametrize(
    "message",
    [
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        "Container worker exceeded its local ephemeral storage limit 1Gi. ",
        'Usage of EmptyDir volume "trainrun" exceeds the limit "1Gi". ',
    ],
)
def test_an_eviction_for_the_pods_own_use_of_disk_is_not_charged_to_preemptions(
    message: str,
) -> None:
    """The kubelet sends SIGTERM, and SIGKILL a second later, before it says why."""
    pod = failed("Evicted", message, status(terminated={"exitCode": 137}))
    cause, text = lost(fact(pod, a_node(), TOLD))
    assert cause is Cause.TERMINATED
    assert text == f"worker digits-0-1 was evicted by node n1: {message.strip()}"


def test_a_node_that_shuts_down_in_order_preempts() -> None:
    message = "Pod was terminated in response to imminent node shutdown."
    pod = disrupted(failed("Terminated", message), "TerminationByKubelet", message)
    text = f"node n1 shuts down: {message}"
    assert lost(fact(pod, a_node(), heard())) == (Cause.PREEMPTED, text)


def test_room_for_a_critical_pod_preempts() -> None:
    message = "Preempted in order to admit critical pod"
    pod = disrupted(failed("Preempting", message), "TerminationByKubelet", message)
    text = "worker digits-0-1 made room for a critical pod on node n1"
    assert lost(fact(pod, a_node(), heard())) == (Cause.PREEMPTED, text)


# ------------------------------------------------------------------------------------- the node


def garbage_collected(phase: str = "Failed") -> Raw:
    pod = disrupted(placed(status(running={}), phase=phase), "DeletionByPodGC", "no node")
    return deleted(pod, grace=0)


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_a_pod_without_a_node_was_lost_with_it(phase: str) -> None:
    found = fact(garbage_collected(phase), None, heard(40))
    assert lost(found) == (Cause.NODE_LOST, "node n1 is gone: its object was deleted")
    assert found.loss is not None
    assert found.loss.unreachable


def test_a_node_that_was_cordoned_before_it_went_was_taken_away_on_purpose() -> None:
    node = node_fact(a_node(spec={"unschedulable": True})).as_gone()
    message = "node n1 was cordoned and removed"
    for pod in (garbage_collected(), running()):
        assert lost(fact(pod, node, heard(40))) == (Cause.PREEMPTED, message)


def test_a_worker_on_a_deleted_node_is_lost_once_its_agent_does_not_answer() -> None:
    gone, sightings = node_fact(a_node()).as_gone(), LastSeenTimes()
    assert fact(running(), gone, heard(14), sightings=sightings).loss is None
    found = fact(running(), gone, heard(16), passed=2, sightings=sightings)
    assert lost(found) == (Cause.NODE_LOST, "node n1 is gone: its object was deleted")
    assert found.loss is not None
    assert (found.loss.age, found.loss.unreachable) == (timedelta(seconds=2), True)


@pytest.mark.parametrize(
    "key",
    ["node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"],
)
def test_what_ran_on_a_node_that_is_switched_off_is_lost_at_once(key: str) -> None:
    taint = a_taint(key, "nodeshutdown", "NoExecute", timeAdded=before(6))
    found = fact(running(), a_node(taint, ready="Unknown"), heard())
    message = f"node n1 is switched off (taint {key}=nodeshutdown:NoExecute)"
    assert lost(found) == (Cause.NODE_LOST, message)
    assert found.loss is not None
    assert (found.loss.age, found.loss.unreachable) == (timedelta(seconds=6), True)
    assert found.notice is None


def test_a_pod_that_is_placed_on_a_node_that_is_off_is_not_replaced_in_a_tight_loop() -> None:
    pod = tolerating(placed(), operator="Exists")
    node = a_node(a_taint("node.kubernetes.io/out-of-service", effect="NoSchedule"))
    sightings = LastSeenTimes()
    assert fact(pod, node, sightings=sightings).loss is None
    found = fact(pod, node, passed=16, sightings=sightings)
    assert found.loss is not None
    assert found.loss.age == timedelta(seconds=16)


def test_a_node_that_is_not_ready_is_suspected_and_nothing_is_lost() -> None:
    found = fact(running(), a_node(ready="Unknown"), heard(25))
    assert (found.loss, found.notice, found.phase) == (None, None, "Running")
    assert found.suspect_node == "node n1 is NotReady: Kubelet stopped posting node status."


def test_a_worker_that_had_ended_before_is_not_lost_with_its_node() -> None:
    gone = node_fact(a_node()).as_gone()
    assert fact(ended(), gone, heard(40)).loss is None


@pytest.mark.parametrize(
    "terminated",
    [
        {"exitCode": 255, "reason": "Unknown"},
        {"exitCode": 137, "reason": "ContainerStatusUnknown"},
    ],
)
def test_a_worker_whose_node_came_back_without_it_was_lost_with_its_node(
    terminated: dict[str, Any],
) -> None:
    found = fact(ended(**terminated), a_node(), heard(90))
    reason = terminated["reason"]
    message = f"node n1 was restarted or lost its containers ({reason})"
    assert lost(found) == (Cause.NODE_LOST, message)
    assert found.loss is not None
    assert (found.loss.age, found.loss.unreachable) == (timedelta(seconds=5), False)


def test_a_pod_that_its_restarted_node_does_not_admit_again_was_lost_with_it() -> None:
    message = "Allocate failed due to no healthy devices present; cannot allocate nvidia.com/gpu"
    pod = failed("UnexpectedAdmissionError", message, status(terminated={"exitCode": 0}))
    text = f"node n1 refused worker digits-0-1 (UnexpectedAdmissionError): {message}"
    assert lost(fact(pod, a_node(), heard(90))) == (Cause.NODE_LOST, text)
    assert lost(fact(pod, a_node(), NEVER)) == (Cause.NODE_LOST, text)


# ------------------------------------------------------------------------------------- starting


def test_a_pod_that_its_node_refuses_has_failed_to_start() -> None:
    pod = failed("OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu")
    assert lost(fact(pod, a_node())) == (
        Cause.START_FAILED,
        "node n1 refused worker digits-0-1 (OutOfnvidia.com/gpu): "
        "Node didn't have enough resource: nvidia.com/gpu",
    )
    bare = failed("NodeAffinity")
    assert lost(fact(bare, a_node()))[1] == "node n1 refused worker digits-0-1 (NodeAffinity)"


def test_an_init_container_that_failed_is_named_with_its_last_words() -> None:
    init = (
        status("first", terminated={"exitCode": 0, "reason": "Completed"}),
        status("data", terminated={"exitCode": 3, "reason": "Error", "message": "no such bucket"}),
    )
    waiting = status(waiting={"reason": "PodInitializing"})
    pod = placed(waiting, phase="Failed", init=init)
    message = "init container data of worker digits-0-1 failed with exit code 3: no such bucket"
    assert lost(fact(pod, a_node())) == (Cause.START_FAILED, message)


def test_an_init_container_that_ran_out_of_memory_says_so() -> None:
    init = (status("data", terminated={"exitCode": 137, "reason": "OOMKilled"}),)
    pod = placed(phase="Failed", init=init)
    message = "init container data of worker digits-0-1 was killed: out of memory"
    assert lost(fact(pod, a_node())) == (Cause.START_FAILED, message)


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_command_that_cannot_be_executed_is_a_failed_start(reason: str) -> None:
    message = 'exec: "python3": executable file not found in $PATH'
    found = fact(ended(exitCode=128, reason=reason, message=message), a_node())
    assert lost(found) == (Cause.START_FAILED, f"worker digits-0-1 cannot start: {message}")
    bare = fact(ended(exitCode=128, reason=reason), a_node())
    assert lost(bare)[1] == f"worker digits-0-1 cannot start: {reason}"


def test_an_agent_that_was_never_heard_leaves_its_last_words() -> None:
    message = "trainrun.agent: Python 3.10 or newer is needed, this is 3.8"
    found = fact(ended(exitCode=2, message=message), a_node())
    text = f"worker digits-0-1 ended with exit code 2: {message}"
    assert lost(found) == (Cause.UNKNOWN, text)
    text = (
        "worker digits-0-1 ended with exit code 1: it left no message, and its agent sent no "
        "heartbeat"
    )
    assert lost(fact(ended(), a_node())) == (Cause.UNKNOWN, text)


def test_a_worker_that_was_deleted_before_its_agent_was_heard_was_taken_away() -> None:
    found = fact(deleted(ended(exitCode=143)), a_node())
    assert found.loss is None
    assert found.notice is not None


# ----------------------------------------------------------------------------------- containers


def test_a_worker_killed_for_memory_is_out_of_memory() -> None:
    found = fact(ended(exitCode=137, reason="OOMKilled"), a_node(), heard())
    message = "worker digits-0-1 was killed by the kernel: out of memory"
    assert lost(found) == (Cause.OUT_OF_MEMORY, message)


def test_an_agent_that_survived_a_childs_end_for_memory_knows_better_why_it_ended() -> None:
    """The kubelet says OOMKilled for any later exit of a container with one killed child."""
    found = fact(ended(exitCode=3, reason="OOMKilled"), a_node(), heard())
    assert (found.loss, found.exit_code) == (None, 3)


@pytest.mark.parametrize(("phase", "code"), [("Failed", 1), ("Succeeded", 0), ("Running", 1)])
def test_an_exit_code_alone_is_no_loss(phase: str, code: int) -> None:
    found = fact(ended(phase, exitCode=code), a_node(), heard())
    assert (found.phase, found.exit_code, found.loss) == ("Ended", code, None)


def test_a_deadline_in_the_template_is_told_as_such() -> None:
    message = "Pod was active on the node longer than the specified deadline"
    pod = failed("DeadlineExceeded", message, status(terminated={"exitCode": 143}))
    text = f"worker digits-0-1 reached activeDeadlineSeconds of its pod template: {message}"
    assert lost(fact(pod, a_node(), TOLD)) == (Cause.TERMINATED, text)
    early = failed("DeadlineExceeded", message, status(waiting={"reason": "PodInitializing"}))
    assert lost(fact(early, a_node())) == (Cause.TERMINATED, text)


@pytest.mark.case(
    "nodes",
    "A pod ends itself: a probe, a deadline, a limit, SIGTERM from inside",
    counted="maxFailures",
)
@pytest.mark.parametrize(
    ("probes", "likely"),
    [
        ((), "a process in it sent the signal"),
        (("livenessProbe",), "its livenessProbe has failed"),
        (("livenessProbe", "startupProbe"), "its livenessProbe or startupProbe has failed"),
    ],
)
@pytest.mark.parametrize("agent", [TOLD, NEVER])
def test_a_worker_that_got_sigterm_while_nobody_took_it_away_did_that_to_itself(
    agent: AgentContact, probes: tuple[str, ...], likely: str
) -> None:
    pod = ended(exitCode=143)
    pod["spec"]["containers"][0] |= {key: {"tcpSocket": {"port": 1}} for key in probes}
    pod["spec"]["containers"][0]["env"] = [{"name": variables.AGENT_CONFIG, "value": "{}"}]
    text = f"worker digits-0-1 got SIGTERM and was not taken away: most likely {likely}, "
    expected = (Cause.TERMINATED, f"{text}see kubectl describe pod digits-0-1")
    assert lost(fact(pod, a_node(), agent)) == expected


def test_a_worker_that_got_sigterm_after_its_node_was_announced_to_go_was_preempted() -> None:
    taint = a_taint("aws-node-termination-handler/spot-itn")
    text = (
        "worker digits-0-1 got SIGTERM: node n1 is a spot instance that is being reclaimed "
        "(taint aws-node-termination-handler/spot-itn:NoSchedule)"
    )
    found = fact(ended(exitCode=143), a_node(taint), TOLD)
    assert lost(found) == (Cause.PREEMPTED, text)


@pytest.mark.parametrize("code", [137, 143])
def test_the_end_of_a_container_is_not_judged_before_the_kubelet_has_said_why(code: int) -> None:
    """It tells the end of the container first, then that of the pod with its reason."""
    memory, node = LastSeenTimes(), a_node()

    def seen(pod: Raw, passed: float) -> WorkerFact:
        return fact(pod, node, TOLD, passed=passed, sightings=memory)

    ending = ended("Running", exitCode=code)
    early = seen(ending, 0)
    assert (early.phase, early.loss, early.holds_room) == ("Running", None, False)
    # Where another container runs on, the pod does not end.
    late = seen(ending, 5)
    assert late.phase == "Ended"
    assert lost(late)[0] is Cause.TERMINATED
    message = "Pod was terminated in response to imminent node shutdown."
    pod = ended(exitCode=code)
    pod["status"] |= {"reason": "Terminated", "message": message}
    told = seen(disrupted(pod, "TerminationByKubelet", message), 1)
    assert lost(told) == (Cause.PREEMPTED, f"node n1 shuts down: {message}")


def test_a_pod_that_ended_without_a_word_is_no_loss() -> None:
    assert fact(placed(phase="Failed"), a_node(), heard()).loss is None
    assert fact(placed(phase="Failed"), None).loss is None
