"""Phases, ages, waits and suspicion: the rest of what the core may know of a worker in a pod."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.kubernetes.facts_of import NEVER, fact, heard
from tests.worlds.kubernetes.raw_objects import (
    Raw,
    a_node,
    a_pod,
    a_taint,
    before,
    condition,
    deleted,
    disrupted,
    ended,
    placed,
    running,
    status,
)
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeFact, node_fact
from trainrun_operator.worlds.kubernetes.observing.worker_observation import LastSeenTimes

PODS_FAIL = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


RUNS = status("log-shipper", running={"startedAt": before(40)})
OVER = status("log-shipper", terminated={"exitCode": 0, "finishedAt": before(2)})


@pytest.mark.case(
    "nodes",
    "The training container ends while another container of its pod runs",
    counted="its cause",
)
@pytest.mark.parametrize(
    ("phase", "other", "holds"),
    [
        ("Running", [RUNS], True),
        ("Running", [OVER], False),
        ("Running", [], False),  # for a moment: its logs were gone with it
        ("Succeeded", [], False),
        ("Failed", [OVER], False),
    ],
)
def test_a_worker_that_has_ended_holds_its_room_while_another_container_runs(
    phase: str, other: list[Raw], holds: bool
) -> None:
    pod = ended(phase)
    pod["status"]["containerStatuses"] += other
    found = fact(pod, a_node(), NEVER)
    assert (found.phase, found.holds_room) == ("Ended", holds)


def test_a_native_sidecar_ends_by_itself() -> None:
    pod = ended("Running")
    pod["status"]["initContainerStatuses"] = [RUNS]
    assert not fact(pod, a_node(), NEVER).holds_room


def waiting(found: Any) -> tuple[str, str, float]:
    assert found.pending is not None
    return found.pending.kind, found.pending.message, found.pending.since.total_seconds()


def unplaced(reason: str, message: str = "") -> Raw:
    shown = condition("PodScheduled", "False", reason=reason, message=message, seconds=50)
    return a_pod(status={"conditions": [shown]})


# --------------------------------------------------------------------------------------- phases


def test_who_a_worker_is_stands_in_its_labels() -> None:
    agent = heard(3)
    found = fact(running(), a_node(), agent)
    assert (found.name, found.slot, found.created_for) == ("digits-0-1", 0, 1)
    assert (found.template_hash, found.node) == ("abcdef012345", "n1")
    assert found.age == timedelta(seconds=60)
    assert (found.agent, found.silent_for) == (agent.state, timedelta(seconds=3))


@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        (a_pod(), "Pending"),
        (placed(status(waiting={"reason": "ContainerCreating"})), "Pending"),
        (placed(status(waiting={}), status("log", running={}), phase="Running"), "Pending"),
        (running(), "Running"),
        (placed(status(running={}), status("log", terminated={"exitCode": 1})), "Running"),
        (ended("Running"), "Ended"),
        (placed(status(running={}), phase="Failed"), "Ended"),
        (placed(phase="Succeeded"), "Ended"),
    ],
)
def test_the_container_that_trains_decides_the_phase(pod: Raw, phase: str) -> None:
    assert fact(pod, a_node(), heard()).phase == phase


def test_a_template_that_renames_its_container_does_not_make_running_workers_pending() -> None:
    pod = running()
    config = {"name": "TRAINRUN_AGENT_CONFIG", "value": "{}"}
    pod["spec"]["containers"][0]["env"] = [config]
    assert fact(pod, a_node(), heard(), training_container="trainer").phase == "Running"


def test_a_worker_counts_as_running_from_when_it_was_first_seen_so() -> None:
    """Not by the node's clock, and not since its creation: it may have waited for room."""
    sightings = LastSeenTimes()
    assert fact(placed(), a_node(), sightings=sightings).running_for is None
    assert fact(running(), a_node(), passed=9, sightings=sightings).running_for == timedelta(0)
    found = fact(running(), a_node(), passed=19, sightings=sightings)
    assert found.running_for == timedelta(seconds=10)


# ---------------------------------------------------------------------------------------- waits


def test_a_pod_without_room_says_what_is_missing() -> None:
    sightings = LastSeenTimes()
    pod = unplaced("Unschedulable", PODS_FAIL)
    fact(pod, sightings=sightings)
    found = fact(pod, passed=40, sightings=sightings)
    assert waiting(found) == ("Unschedulable", PODS_FAIL, 40.0)


def gated(*gates: str) -> Raw:
    pod = unplaced("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return pod


@pytest.mark.case("nodes", "A scheduling gate holds back workers, e.g. Kueue's")
def test_a_pod_that_a_gate_holds_back_names_it() -> None:
    assert waiting(fact(gated("example.com/a", "example.com/b"))) == (
        "SchedulingGated",
        "it waits for its scheduling gates to be removed: example.com/a, example.com/b",
        0.0,
    )


def test_a_pod_that_kueue_queues_by_itself_says_what_kueue_must_know() -> None:
    assert waiting(fact(gated("example.com/a", "kueue.x-k8s.io/admission")))[:2] == (
        "SchedulingGated",
        "the scheduling gate kueue.x-k8s.io/admission holds it back: Kueue queues each pod by "
        "itself. Name TrainRun.v1alpha1.trainrun.dev and TrainSweep.v1alpha1.trainrun.dev in "
        "Kueue's integrations.externalFrameworks, and set the chart's value kueue.enabled",
    )


def test_a_pod_with_gates_begins_to_look_for_room_when_they_are_lifted() -> None:
    sightings = LastSeenTimes()
    assert waiting(fact(gated("g"), sightings=sightings))[0] == "SchedulingGated"
    found = fact(unplaced("Unschedulable", PODS_FAIL), passed=3600, sightings=sightings)
    assert waiting(found) == ("Unschedulable", PODS_FAIL, 0.0)


def test_a_pod_that_the_scheduler_has_not_seen_is_starting() -> None:
    text = "the scheduler has not looked at the pod yet"
    assert waiting(fact(a_pod())) == ("Starting", text, 0.0)
    assert waiting(fact(unplaced("")))[:2] == ("Unschedulable", "no node fits")


def test_a_scheduler_that_does_not_exist_is_named() -> None:
    """The run waited as `Starting` for ever."""
    pod = a_pod()
    pod["spec"]["schedulerName"] = "gang-scheduler"
    kind, message, since = waiting(fact(pod))
    assert (kind, since) == ("Unschedulable", 0.0)
    assert message.startswith("the scheduler gang-scheduler (schedulerName in workers.template; ")


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_cannot_be_had_is_named(reason: str) -> None:
    pod = placed(status(waiting={"reason": reason, "message": 'pull "x:1" failed: not found'}))
    text = f'container worker: {reason}: pull "x:1" failed: not found'
    assert waiting(fact(pod, a_node())) == ("ImagePull", text, 0.0)


def test_a_slow_pull_that_fails_at_last_has_its_whole_time_from_then() -> None:
    sightings = LastSeenTimes()
    creating = placed(status(waiting={"reason": "ContainerCreating"}))
    fact(creating, a_node(), sightings=sightings)
    found = fact(creating, a_node(), passed=600, sightings=sightings)
    assert waiting(found) == ("Starting", "its containers are being started on node n1", 600.0)
    for passed, reason in ((600, "ErrImagePull"), (610, "ImagePullBackOff")):
        pod = placed(status(waiting={"reason": reason}))
        found = fact(pod, a_node(), passed=passed, sightings=sightings)
    assert waiting(found) == ("ImagePull", "container worker: ImagePullBackOff", 10.0)


def test_a_missing_secret_is_a_configuration_error_in_the_kubelets_words() -> None:
    detail = {"reason": "CreateContainerConfigError", "message": 'secret "s3" not found'}
    text = 'container worker: CreateContainerConfigError: secret "s3" not found'
    found = fact(placed(status(waiting=detail)), a_node())
    assert waiting(found) == ("ConfigError", text, 0.0)


def test_an_init_containers_trouble_is_the_pods_trouble() -> None:
    trouble = status("download", waiting={"reason": "ErrImageNeverPull"})
    pod = placed(status(waiting={"reason": "PodInitializing"}), init=(trouble,))
    assert waiting(fact(pod, a_node()))[:2] == (
        "ImagePull",
        "container download: ErrImageNeverPull",
    )


def test_volumes_that_do_not_come_are_a_configuration_error_after_a_minute() -> None:
    pod = placed(status(waiting={"reason": "ContainerCreating"}))
    pod["status"]["conditions"].append(condition("PodReadyToStartContainers", "False"))
    sightings = LastSeenTimes()
    kinds = [
        waiting(fact(pod, a_node(), passed=passed, sightings=sightings))[0]
        for passed in (0, 60, 61)
    ]
    assert kinds == ["Starting", "Starting", "ConfigError"]
    found = fact(pod, a_node(), passed=91, sightings=sightings)
    assert waiting(found) == (
        "ConfigError",
        "volumes or network of the pod are not ready on node n1; often a secret, a config map or a "
        "volume is missing: see kubectl describe pod digits-0-1",
        30.0,
    )


def test_a_long_pull_with_volumes_in_place_is_merely_starting() -> None:
    pod = placed(status(waiting={"reason": "ContainerCreating"}))
    pod["status"]["conditions"].append(condition("PodReadyToStartContainers", "True"))
    sightings = LastSeenTimes()
    fact(pod, a_node(), sightings=sightings)
    assert waiting(fact(pod, a_node(), passed=999, sightings=sightings))[0] == "Starting"


def test_an_init_container_that_works_is_named() -> None:
    pod = placed(
        status(waiting={"reason": "PodInitializing"}),
        init=(
            status("first", terminated={"exitCode": 0}),
            status("download", running={"startedAt": before(20)}),
        ),
    )
    text = "init container download runs on node n1"
    assert waiting(fact(pod, a_node()))[:2] == ("Starting", text)


@pytest.mark.parametrize("pod", [running(), ended(), deleted(a_pod())])
def test_a_worker_that_runs_has_ended_or_must_go_waits_for_nothing(pod: Raw) -> None:
    assert fact(pod, a_node(), heard()).pending is None


# ------------------------------------------------------------------------------------ suspicion


def test_a_lease_that_is_not_renewed_makes_the_node_suspect() -> None:
    age = timedelta(seconds=25)
    text = "the kubelet of node n1 does not renew its Lease"
    assert fact(running(), a_node(), heard(), node_lease_age=age).suspect_node == text
    assert fact(running(), None, heard(), node_lease_age=age).suspect_node == text
    assert fact(running(), a_node(), heard()).suspect_node == ""


def test_a_node_without_a_word_is_suspect_all_the_same() -> None:
    node = {"metadata": {"name": "n1"}}
    assert fact(running(), node, heard()).suspect_node == "node n1 is NotReady"


def test_what_was_seen_of_pods_that_are_gone_is_forgotten() -> None:
    sightings = LastSeenTimes()
    fact(running(), a_node(), heard(), sightings=sightings)
    sightings.keep({"0b1d-pod"})
    assert sightings.since("0b1d-pod", "runs") is not None
    sightings.keep(set())
    assert sightings.since("0b1d-pod", "runs") is None


# -------------------------------------------------------------------------------------- totality

REASONS = st.sampled_from(
    ["", "Error", "OOMKilled", "Unknown", "ContainerStatusUnknown", "StartError", "ErrImagePull"]
)
STATES = st.one_of(
    st.builds(lambda reason: {"waiting": {"reason": reason}}, REASONS),
    st.just({"running": {"startedAt": before(9)}}),
    st.builds(
        lambda code, reason, at: {
            "terminated": {"exitCode": code, "reason": reason, "finishedAt": before(at)}
        },
        st.sampled_from([0, 1, 128, 137, 143, 255]),
        REASONS,
        st.integers(-20, 20),
    ),
)
DISRUPTIONS = st.sampled_from(
    [
        None,
        "PreemptionByScheduler",
        "EvictionByEvictionAPI",
        "DeletionByTaintManager",
        "DeletionByPodGC",
        "TerminationByKubelet",
        "",
    ]
)
TAINTS = st.lists(
    st.builds(
        lambda key, effect: a_taint(key, effect=effect),
        st.sampled_from(
            [
                "karpenter.sh/disrupted",
                "node.kubernetes.io/out-of-service",
                "node.kubernetes.io/unreachable",
                "example.com/repair",
            ]
        ),
        st.sampled_from(["NoSchedule", "NoExecute"]),
    ),
    max_size=2,
)


@st.composite
def nodes(draw: st.DrawFn) -> NodeFact | None:
    if draw(st.booleans()):
        return None
    ready = draw(st.sampled_from(["True", "False", "Unknown"]))
    spec = {"unschedulable": draw(st.booleans()), "taints": draw(TAINTS)}
    node = node_fact(a_node(ready=ready, spec=spec))
    return node.as_gone() if draw(st.booleans()) else node


@st.composite
def pods(draw: st.DrawFn) -> Raw:
    init = tuple(status("setup", **state) for state in draw(st.lists(STATES, max_size=1)))
    main = tuple(status(**state) for state in draw(st.lists(STATES, max_size=1)))
    pod = placed(
        *main,
        phase=draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])),
        init=init,
        reason=draw(st.sampled_from(["", "Evicted", "Preempting", "DeadlineExceeded", "NodeLost"])),
    )
    if draw(st.booleans()):
        pod["spec"].pop("nodeName")
    reason = draw(DISRUPTIONS)
    if reason is not None:
        pod = disrupted(pod, reason)
    if draw(st.booleans()):
        pod = deleted(pod, ago=draw(st.integers(0, 60)))
    return pod


@settings(deadline=None)
@given(
    pod=pods(),
    node=nodes(),
    agent=st.sampled_from([NEVER, heard(1), heard(100)]),
    node_lease_age=st.sampled_from([None, timedelta(seconds=30)]),
)
def test_every_mixture_of_states_is_a_fact(pod: Raw, node: Any, agent: Any, **more: Any) -> None:
    sightings = LastSeenTimes()
    for passed in (0, 20, 100):
        found = fact(pod, node, agent, passed=passed, sightings=sightings, **more)
        # A worker that may still run is only lost with its node: the agent judges the rest.
        if found.phase != "Ended" and found.loss is not None:
            assert found.loss.cause in (Cause.NODE_LOST, Cause.PREEMPTED)
            assert found.loss.unreachable
        if found.notice is not None:
            assert found.notice.age >= 0
            assert found.notice.remaining is None or found.notice.remaining >= 0
        assert (found.pending is not None) == (found.phase == "Pending" and not found.deleting)
        assert found.loss is None or (found.loss.message and found.loss.age >= timedelta(0))
