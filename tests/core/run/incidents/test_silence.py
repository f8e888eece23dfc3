"""Silence is judged with care: an outage of ours must not look like a mass death."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun_operator.api.run.status_parts import Cause


def trained(
    scene: WorkerObservation, *steps: int, stepped: float = 1.0, first_step: float = 11.0
) -> WorkerObservation:
    """Steps of the slots, the newest one reported so many seconds ago."""
    for slot, step in enumerate(steps):
        scene = scene.with_agent(slot, steps=(step,), stepped=stepped, first_step=first_step)
    return scene


def test_a_silent_worker_is_lost_after_the_heartbeat_timeout() -> None:
    plan = a_run(replicas=3).running().silent(1, 31).plan
    assert plan.reason == "Silent"
    assert plan.message == "attempt 1 ended: Silent: worker run-1-1 has sent no heartbeat for 31 s"
    incident = plan.status.incident
    assert incident is not None
    assert (incident.slot, incident.detect_seconds) == (1, 31.0)


def test_silence_up_to_the_timeout_is_no_loss() -> None:
    assert a_run(replicas=3).running().silent(1, 30).plan.reason == "Running"


def test_silence_counts_only_while_we_listen() -> None:
    assert a_run(replicas=3).running().listening(20).silent(1, 500).plan.reason == "Running"


def test_when_most_are_silent_at_once_it_takes_three_timeouts() -> None:
    scene = a_run(replicas=3).running().silent(0, 89).silent(1, 89)
    assert scene.plan.reason == "Running"
    assert scene.silent(0, 91).silent(1, 91).plan.reason == "Silent"


def test_those_who_fell_silent_within_a_few_seconds_of_each_other_did_so_at_once() -> None:
    """Whoever cannot be reached by any agent has heard each of them at another moment."""
    scene = a_run(replicas=3).running().silent(0, 31)
    assert scene.silent(1, 16).plan.reason == "Running"
    assert scene.silent(1, 15).plan.reason == "Silent"


def test_a_lonely_worker_gets_three_timeouts_too_and_then_the_storage_is_looked_at() -> None:
    scene = a_run(replicas=1).running()
    assert scene.silent(0, 89).after().plan.actions == ()
    late = scene.silent(0, 91)
    assert [action.name for action in late.after().plan.actions] == ["run-0-2"]


def test_a_silent_worker_whose_peers_step_on_is_not_lost() -> None:
    scene = trained(a_run(replicas=3).running(), 12, 12, 10).silent(2, 500)
    assert scene.plan.reason == "Running"


def test_a_peer_may_be_one_step_ahead_of_a_worker_that_is_dead() -> None:
    scene = trained(a_run(replicas=3).running(), 11, 11, 10).silent(2, 31)
    assert scene.plan.reason == "Silent"


def test_peers_that_were_ahead_and_stand_still_prove_nothing() -> None:
    """A node that loses power takes its peers' collective with it, and they hang without a word."""
    scene = a_run(replicas=3).running()
    assert trained(scene, 12, 12, 10, stepped=30).silent(2, 31).plan.reason == "Running"
    assert trained(scene, 12, 12, 10, stepped=31).silent(2, 31).plan.reason == "Silent"


def test_where_steps_take_long_peers_may_stand_still_for_five_of_them() -> None:
    scene = a_run(replicas=3).running()
    slow = trained(scene, 12, 12, 10, stepped=100, first_step=100 + 11 * 20).silent(2, 500)
    assert slow.plan.reason == "Running"
    slow = trained(scene, 12, 12, 10, stepped=101, first_step=101 + 11 * 20).silent(2, 500)
    assert slow.plan.reason == "Silent"


def test_the_first_step_after_a_checkpoint_tells_how_long_steps_take() -> None:
    scene = a_run(replicas=3).running(2, resume=(1, 100))
    slow = trained(scene, 103, 103, 101, stepped=90, first_step=90 + 2 * 20).silent(2, 500)
    assert slow.plan.reason == "Running"


def test_peers_never_stand_still_longer_than_the_start_timeout() -> None:
    scene = trained(a_run(replicas=3).running(), 12, 12, 10, stepped=301, first_step=9000)
    assert scene.silent(2, 500).plan.reason == "Silent"


def test_peers_that_have_reported_nothing_prove_nothing() -> None:
    scene = trained(a_run(replicas=3).running(), 12, 12, 10).with_all(stepped=None)
    assert scene.silent(2, 31).plan.reason == "Silent"


def test_peers_that_step_on_keep_a_silent_slot_0_alive() -> None:
    scene = trained(a_run(replicas=3).running(), 10, 12, 12).silent(0, 500)
    assert scene.plan.reason == "Running"
    assert scene.plan.status.progress.step == 12


def test_peers_that_are_silent_as_well_prove_nothing() -> None:
    scene = trained(a_run(replicas=5).running(), 12, 10, 10, 10, 10)
    assert scene.silent(0, 40).silent(1, 40).plan.reason == "Silent"


def test_peers_that_are_done_prove_nothing() -> None:
    scene = trained(a_run(replicas=3).running(), 24, 10, 10).with_exit(0, code=0)
    assert scene.silent(1, 40).plan.reason == "Silent"


def test_a_worker_without_a_step_cannot_be_overtaken() -> None:
    scene = trained(a_run(replicas=3).running(), 12, 12, 10).with_agent(2, steps=(None,))
    assert scene.silent(2, 31).plan.reason == "Silent"


def test_a_silent_worker_is_replaced_when_the_next_gang_is_gathered() -> None:
    scene = a_run(replicas=3).running().ended().silent(1, 31)
    reasons = [
        (a.name, getattr(a, "reason", "create")) for a in scene.after(scene.plan).plan.actions
    ]
    assert reasons == [("run-1-1", "its agent does not answer"), ("run-1-2", "create")]


def test_a_silent_worker_does_not_count_as_ready() -> None:
    scene = a_run(replicas=3).running().with_config(heartbeat_timeout=seconds(30)).silent(1, 80)
    assert scene.plan.status.workers.text == "2/3"


def test_the_incident_of_a_silent_worker_flushes_only_what_others_have() -> None:
    scene = a_run(replicas=3).running().staged_by_all(10).silent(1, 40)
    ending = scene.plan.status.ending
    assert ending is not None
    assert ending.flush == ()
    uploaded = a_run(replicas=3).running().staged_by_all(10, uploaded=True).silent(1, 40)
    ending = uploaded.plan.status.ending
    assert ending is not None
    assert ending.flush == (10,)


@pytest.mark.case("nodes", "An agent falls silent", counted="maxFailures")
def test_the_cause_of_silence_is_unknown_and_charged_to_failures() -> None:
    incident = a_run(replicas=3).running().silent(1, 31).plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.budget) == (Cause.SILENT, "failures")


# ---------------------------------------------------------------------------- nodes under suspicion

NOT_READY = "NotReady for 12 s: Kubelet stopped posting node status"


def suspected(scene: WorkerObservation, *slots: int) -> WorkerObservation:
    for slot in slots:
        scene = scene.with_worker(slot, suspect_node=NOT_READY)
    return scene


@pytest.mark.case("nodes", "A node falls silent (power, network)", counted="maxPreemptions")
def test_a_silent_worker_on_a_suspect_node_is_lost_with_its_node() -> None:
    plan = suspected(a_run(replicas=3).running(), 1).silent(1, 31).plan
    assert plan.message == (
        "attempt 1 ended: NodeLost: worker run-1-1 has sent no heartbeat for 31 s, and its node "
        f"node-1 looks lost: {NOT_READY}"
    )
    incident = plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.node) == ("NodeLost", "node-1")


def test_a_worker_that_answers_is_not_lost_with_a_suspect_node() -> None:
    assert suspected(a_run(replicas=3).running(), 1).silent(1, 30).plan.reason == "Running"


def test_many_silent_workers_on_suspect_nodes_are_explained_by_them() -> None:
    scene = suspected(a_run(replicas=3).running(), 0, 1).silent(0, 31).silent(1, 31)
    assert scene.plan.reason == "NodeLost"


def test_nodes_do_not_explain_that_nobody_is_heard_at_all() -> None:
    scene = suspected(a_run().running(), 0, 1)
    assert scene.silent(0, 89).silent(1, 89).plan.reason == "Running"
    assert scene.silent(0, 91).silent(1, 91).plan.reason == "NodeLost"


def test_a_dead_node_is_known_as_lost_though_ranks_that_need_no_peers_step_on() -> None:
    scene = trained(a_run(replicas=3).running(), 12, 12, 10).silent(2, 31)
    assert scene.plan.reason == "Running"
    assert suspected(scene, 2).plan.reason == "NodeLost"


def test_a_worker_on_a_suspect_node_is_not_waited_for_as_long_as_slow_steps_take() -> None:
    scene = trained(a_run(replicas=3).running(), 12, 12, 10, stepped=40, first_step=40 + 11 * 20)
    assert scene.silent(2, 41).plan.reason == "Running"
    assert suspected(scene, 2).silent(2, 41).plan.reason == "NodeLost"


def test_a_new_operator_learns_of_a_dead_node_though_it_never_heard_the_worker() -> None:
    scene = suspected(a_run(replicas=3).running(), 1).listening(31).unheard(1)
    assert scene.plan.reason == "NodeLost"
    assert scene.listening(30).unheard(1).plan.reason == "Starting"


def test_a_new_operator_whom_nobody_calls_any_more_waits_longer() -> None:
    scene = suspected(a_run(replicas=2).running(), 0).listening(31).unheard(0)
    assert scene.silent(1, 15).plan.reason == "NodeLost"
    assert scene.silent(1, 16).plan.reason != "NodeLost"


def test_a_new_operator_that_hears_nobody_waits_longer() -> None:
    scene = suspected(a_run().running(), 0, 1)
    assert scene.listening(89).unheard(0).unheard(1).plan.reason == "Starting"
    assert scene.listening(91).unheard(0).unheard(1).plan.reason == "NodeLost"


def test_a_pass_is_due_as_soon_as_a_worker_has_been_silent_for_too_long() -> None:
    scene = a_run(replicas=3, heartbeat_timeout=seconds(5)).running().silent(1, 4)
    assert scene.plan.requeue_after == seconds(1.01)
    assert scene.silent(1, 6).silent(0, 6).plan.requeue_after == seconds(4.01)


# ------------------------------------------------------------------------------- after a take-over


def unreachable(scene: WorkerObservation) -> str:
    found = scene.plan.status.condition("Unreachable")
    return found.message if found is not None else ""


@pytest.mark.case("operator", "Workers do not reach the operators that took over")
def test_a_healthy_run_that_cannot_reach_the_new_operators_is_not_charged_but_told() -> None:
    """Pods with hostNetwork and no dnsPolicy: all operators were replaced at once."""
    scene = a_run(replicas=3).running().listening(3000)
    for slot in range(3):
        scene = scene.unheard(slot)
    plan = scene.plan
    assert plan.status.incident is None
    assert unreachable(scene).startswith(
        "this operator gets no heartbeat from worker run-0-1 on node node-0 (and 2 other workers); "
        "it may still be training, and nothing is counted for that. Check that its node resolves "
        "the name of the operator's Service (hostNetwork needs dnsPolicy: "
    )
    assert [event.reason for event in plan.events] == ["Unreachable"]
    (rest,) = {event.reason for event in scene.after(plan).plan.events} or {""}
    assert rest == ""


def test_who_has_not_been_heard_after_a_take_over_has_the_heartbeat_timeout() -> None:
    scene = a_run(replicas=3).running()
    assert unreachable(scene.listening(30).unheard(1)) == ""
    told = unreachable(scene.listening(31).unheard(1))
    assert told.startswith("this operator gets no heartbeat from worker run-1-1 on node node-1; ")


def test_a_silent_worker_whose_peers_step_on_is_told_by_name() -> None:
    scene = trained(a_run(replicas=3).running(), 12, 12, 10)
    assert "run-2-1" in unreachable(scene.silent(2, 500))
    assert unreachable(scene.silent(2, 29)) == ""
    assert unreachable(scene) == ""


def test_a_worker_that_is_not_placed_anywhere_known_is_named_without_a_node() -> None:
    scene = a_run(replicas=3).running().listening(31).unheard(1).with_worker(1, node="")
    assert unreachable(scene).startswith("this operator gets no heartbeat from worker run-1-1; ")


def test_a_gathered_worker_that_ran_before_the_take_over_is_replaced_and_not_charged() -> None:
    """It may have called the operator before."""
    scene = a_run(replicas=2, start_timeout=seconds(20)).waiting().listening(21).unheard(1)
    plan = scene.plan
    assert plan.status.incident is None
    assert [(a.name, getattr(a, "reason", "create")) for a in plan.actions] == [
        ("run-1-1", "its agent does not answer"),
        ("run-1-2", "create"),
    ]
    never = scene.with_worker(1, running_for=seconds(21))
    assert never.plan.reason == "StartFailed"
