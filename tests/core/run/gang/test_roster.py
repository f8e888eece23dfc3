"""Which workers take the slots of the next attempt, which are made and which must go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import (
    WorkerObservation,
    a_run,
    a_worker,
    an_agent,
    an_incident,
    seconds,
)
from trainrun.contract.agent_state import Held, Notice
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import (
    CreateWorker,
    DeleteWorker,
    Installation,
    WorkerFact,
    WorkerLoss,
)


def created(scene: WorkerObservation) -> list[str]:
    return [a.name for a in scene.plan.actions if isinstance(a, CreateWorker)]


def deleted(scene: WorkerObservation) -> list[tuple[str, str]]:
    return [(a.name, a.reason) for a in scene.plan.actions if isinstance(a, DeleteWorker)]


def test_a_new_run_gets_a_worker_for_every_slot() -> None:
    plan = a_run(replicas=3).plan
    assert plan.reason == "Gathering"
    assert plan.message == "waiting for the workers of slots 0, 1, 2"
    assert plan.actions == tuple(
        CreateWorker(name=f"run-{slot}-1", slot=slot, created_for=1, template_hash="t1")
        for slot in range(3)
    )


def test_many_missing_slots_are_told_in_short() -> None:
    assert a_run(replicas=20).plan.message.endswith("slots 0, 1, 2, 3, 4, 5, 6, 7, 8, 9")


def test_workers_that_answer_are_kept_and_only_the_lost_one_is_replaced() -> None:
    scene = a_run(replicas=3).running().ended().lost(1, Cause.NODE_LOST)
    assert created(scene) == ["run-1-2"]
    assert deleted(scene) == []  # what has ended stays for its logs


def test_a_name_is_never_used_twice() -> None:
    scene = a_run(replicas=1).running(5).ended().with_worker(0, phase="Ended")
    assert created(scene) == ["run-0-6"]
    again = scene.plus(a_worker(0, 6, phase="Ended"), a_worker(0, 7, phase="Ended"))
    assert created(again) == ["run-0-8"]


def test_the_name_of_a_worker_whose_object_is_gone_is_not_used_again() -> None:
    scene = a_run(replicas=1, max_failures=1).running(1).without(0)
    record = scene.status.start_record
    assert record is not None
    scene = scene.with_status(start_record=replace(record, roster=(9,)))
    assert created(scene.after(scene.plan)) == ["run-0-10"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"loss": WorkerLoss(cause=Cause.NODE_LOST, message="node a is gone")}, "node a is gone"),
        ({"template_hash": "old"}, "workers.template has changed"),
        (
            {"template_hash": "old", "agent": None, "age": seconds(9)},
            "workers.template has changed",
        ),
        ({"slot": 7}, "its slot no longer exists"),
        ({"silent_for": seconds(400)}, "its agent does not answer"),
        ({"agent": None, "silent_for": seconds(400)}, "its agent does not answer"),
    ],
)
def test_a_worker_that_cannot_take_part_is_dismissed_with_its_reason(
    fields: dict[str, object], reason: str
) -> None:
    scene = a_run(replicas=1).with_status(attempt=1).plus(a_worker(**fields))
    scene = scene.listening(399)
    (found,) = deleted(scene)
    assert found[1] == reason
    assert created(scene) == ["run-0-2"]


def test_a_worker_of_an_old_template_finishes_its_uploads_first() -> None:
    scene = a_run(replicas=1).running().ended(kind="TemplateChange").with_config(template_hash="t2")
    assert deleted(scene.with_agent(0, phase="Flushing")) == []
    assert deleted(scene.with_agent(0, held=Held())) == []
    assert deleted(scene) == [("run-0-1", "workers.template has changed")]


BROKEN = "RuntimeError: [pair.cc] Connection reset by peer [10.0.0.2]"


@pytest.mark.case(
    "nodes",
    "An edit or a notice comes before a worker reports what happened to it",
    counted="one incident",
)
@pytest.mark.parametrize(
    ("edit", "notice", "reason"),
    [
        ("t2", None, "workers.template has changed"),
        ("t1", Notice(reason="spot"), "it will be taken away, and has no work left (spot)"),
    ],
)
def test_a_worker_is_not_replaced_before_it_has_said_what_happened_to_it(
    edit: str, notice: Notice | None, reason: str
) -> None:
    """A node was lost, and its peers' broken connections were counted as a failure: the template
    was edited in that moment, and the silent worker was deleted as one that is outdated."""
    scene = a_run(max_failures=3, max_preemptions=3).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=2).with_config(template_hash=edit)
    before = {"attempt": 0, "phase": "Idle", "held": Held(attempt=1)}  # nobody has heard it since
    scene = scene.with_worker(1, notice=notice).with_agent(1, **before)
    scene = scene.with_agent(0, phase="Idle", held=scene.held)
    scene = scene.after(scene.plan)
    assert "run-1-2" in created(scene)
    assert "run-1-1" not in dict(deleted(scene))
    new = [
        a_worker(slot, 2, template_hash=edit, agent=an_agent(slot, 2, held=scene.held))
        for slot in (0, 1)
    ]
    plan = scene.plus(*new).plan
    assert plan.reason == "Attributing"
    assert plan.message.endswith("is not certain yet; waiting for slot 1")
    for attempt in (0, 1):  # its agent has answered, started anew or not
        told = scene.with_agent(1, attempt=attempt, held=scene.held)
        told = told.after(told.plan)
        assert dict(deleted(told))["run-1-1"] == reason
        assert told.plus(*new).plan.reason == "Resolving"
    later = scene.after(passed=40).with_agent(0, held=scene.held).unheard(1)
    assert "run-1-1" not in dict(deleted(later))
    assert later.plus(*new).plan.message == plan.message


def test_nothing_is_waited_for_from_a_worker_where_it_is_known_what_ended_the_attempt() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, exception="ValueError: bad batch")
    scene = scene.after(scene.plan, passed=2).with_config(template_hash="t2")
    scene = scene.with_agent(1, attempt=0, phase="Idle", held=Held(attempt=1))
    scene = scene.after(scene.plan)  # says whom it deletes
    assert dict(deleted(scene))["run-1-1"] == "workers.template has changed"


def test_nothing_is_waited_for_from_a_worker_that_took_no_part_in_the_attempt() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, exception=BROKEN)
    new = a_worker(1, 2, template_hash="old", agent=an_agent(1, 2, held=Held()))
    scene = scene.after(scene.plan, passed=2).plus(new)
    assert dict(deleted(scene))["run-1-2"] == "workers.template has changed"


@pytest.mark.case(
    "nodes", "A node is about to go, and nobody deletes its pod", counted="maxPreemptions"
)
def test_a_worker_under_notice_is_replaced_and_makes_room_once_it_has_nothing_left_to_do() -> None:
    scene = a_run(replicas=1).running().ended(kind="Yielded").noticed(0)
    busy = scene.with_agent(0, phase="Flushing")
    assert created(busy) == ["run-0-2"]
    assert deleted(busy) == []
    unheard = scene.listening(1).unheard(0).with_worker(0, notice=Notice(reason="spot"))
    assert deleted(unheard) == []
    (action,) = (a for a in scene.plan.actions if isinstance(a, DeleteWorker))
    assert action.name == "run-0-1"
    assert action.reason == "it will be taken away, and has no work left (spot)"


def test_a_worker_under_notice_that_never_took_part_makes_room_at_once() -> None:
    scene = a_run(replicas=1).plus(a_worker(notice=Notice(reason="spot")))
    assert created(scene) == ["run-0-2"]
    assert [name for name, _ in deleted(scene)] == ["run-0-1"]


def test_a_worker_that_is_being_deleted_is_replaced() -> None:
    scene = a_run(replicas=1).plus(a_worker(deleting=True))
    assert created(scene) == ["run-0-2"]
    assert deleted(scene) == []


def test_a_worker_that_left_the_roster_never_returns() -> None:
    scene = a_run(replicas=1).running(3)
    record = scene.status.start_record
    assert record is not None
    scene = scene.with_status(start_record=replace(record, roster=(2,))).ended()
    assert deleted(scene) == [("run-0-1", "it was replaced")]
    assert created(scene) == ["run-0-4"]


def test_the_newest_worker_of_a_slot_takes_it() -> None:
    scene = a_run(replicas=1).plus(a_worker(0, 2), a_worker(0, 1))
    assert scene.plan.reason == "Resolving"
    assert scene.hold(0, 2).resolve is not None
    assert scene.hold(0, 1).resolve is None


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("new", [{"phase": "Pending", "agent": None}, {}])
def test_a_worker_that_is_well_keeps_its_slot_beside_one_that_was_only_to_look(
    slot: int, new: dict[str, object]
) -> None:
    """The run waited five minutes for the image of a worker that was not needed."""
    alone, newer = a_run().running().ended(kind="Yielded"), a_worker(slot, 2, **new)
    scene = alone.plus(newer)
    assert scene.plan.reason == "Resolving"
    assert scene.hold(0).resolve is not None
    assert (created(scene), deleted(scene)) == (
        [],
        [(f"run-{slot}-2", f"worker run-{slot}-1 keeps its slot")],
    )
    busy = alone.with_agent(slot, phase="Running").plus(newer)  # it may never become ready
    assert (created(busy), deleted(busy)) == ([], [])
    gone = alone.with_worker(slot, phase="Ended").plus(newer)
    assert (created(gone), deleted(gone)) == ([], [])


@pytest.mark.case("processes", "Processes cannot be killed (hung driver, dead NFS server)")
def test_a_worker_whose_processes_do_not_stop_is_replaced_in_the_end() -> None:
    config = a_run(replicas=1, flush_timeout=seconds(30), start_timeout=seconds(300))
    scene = config.running().ended(ago=330).with_agent(0, phase="Running")
    assert (deleted(scene), created(scene)) == ([], [])
    later = config.running().ended(ago=331).with_agent(0, phase="Running")
    assert deleted(later) == [("run-0-1", "its processes do not stop")]
    assert created(later) == ["run-0-2"]


def test_a_new_operator_gives_a_worker_time_to_stop() -> None:
    scene = a_run(replicas=1).running().ended(ago=900).with_agent(0, phase="Running")
    assert deleted(scene.listening(60)) == []


# ---------------------------------------------------------------------------- failed starts


def dead(*numbers: int, **fields: object) -> tuple[WorkerFact, ...]:
    """Workers of slot 0 that were created half a second ago and have ended."""
    defaults: dict[str, object] = {"phase": "Ended", "agent": None, "age": seconds(0.5)}
    return tuple(a_worker(0, number, **(defaults | fields)) for number in numbers)


def failing(count: int, **fields: object) -> WorkerObservation:
    workers = dead(*range(1, count + 1), **fields)
    return a_run(replicas=1, max_failures=1).plus(*workers)


def test_a_worker_that_ended_before_it_took_part_is_replaced_twice() -> None:
    assert created(failing(2)) == ["run-0-3"]


@pytest.mark.case(
    "nodes", "A worker ends three times before it joins, or never calls", counted="maxStartFailures"
)
def test_the_third_worker_that_ends_before_it_took_part_is_an_incident() -> None:
    plan = failing(3, exit_code=2).plan
    assert plan.reason == "StartFailed"
    assert plan.message == (
        "attempt 1 could not start: worker run-0-3 is number 3 of slot 0 that ended before it took "
        "part (last exit code 2)"
    )
    status = plan.status
    assert (status.attempt, status.start_record, status.fruitless) == (1, None, 1)
    assert status.incident is not None
    assert (status.incident.attempt, status.incident.cause) == (1, "StartFailed")
    assert status.failures.text == "1/1"


def test_an_exit_code_that_nobody_knows_is_not_told() -> None:
    assert failing(3).plan.message.endswith("ended before it took part")


def test_workers_that_were_told_once_are_not_told_again() -> None:
    scene = failing(3)
    scene = scene.after(scene.plan, passed=1)
    assert (scene.plan.reason, created(scene)) == ("Gathering", ["run-0-4"])
    assert created(scene.plus(*dead(4))) == ["run-0-5"]
    # Three new ones are the next incident, which is charged too.
    later = scene.plus(*dead(4, 5, 6))
    assert later.plan.reason == "StartFailed"
    assert later.after(later.plan).plan.reason == "MaxFailuresExceeded"
    assert later.plan.status.failures.counted == 1
    assert [i.attempt for i in later.plan.status.incidents] == [1]


@pytest.mark.parametrize(
    ("cause", "counts"),
    [
        (Cause.PREEMPTED, False),
        (Cause.NODE_LOST, False),
        (Cause.EVICTED, False),
        (Cause.INTERRUPTED, False),
        (Cause.MISREAD, False),
        (Cause.OUT_OF_MEMORY, True),
        (Cause.TERMINATED, True),
        (Cause.APP_ERROR, True),
        (Cause.START_FAILED, True),
        (Cause.SILENT, True),
        (Cause.UNKNOWN, True),
    ],
)
def test_a_start_that_the_world_cut_short_is_not_its_own_fault(
    cause: Cause, *, counts: bool
) -> None:
    scene = failing(3, loss=WorkerLoss(cause=cause, message="x"))
    assert (scene.plan.reason == "StartFailed") is counts


def test_of_several_containers_the_one_whose_end_it_was_is_named_with_its_exit_code() -> None:
    loss = WorkerLoss(
        cause=Cause.START_FAILED, message="the container logs ended", container="logs", exit_code=7
    )
    incident = failing(3, exit_code=0, loss=loss).plan.status.incident
    assert incident is not None
    assert (incident.container, incident.exit_code) == ("logs", 7)


def test_a_start_cut_short_by_a_notice_is_not_its_own_fault() -> None:
    assert failing(3, notice=Notice(reason="spot")).plan.reason == "Gathering"


@pytest.mark.case(
    "nodes",
    "A pod ends itself: a probe, a deadline, a limit, SIGTERM from inside",
    counted="maxFailures",
)
def test_starts_that_a_probe_or_a_limit_of_the_pod_cut_short_are_counted_and_told() -> None:
    """36 workers came and went in 75 s, since a SIGTERM was taken for a preemption: failures 0."""
    told = an_agent(attempt=0, notice=Notice(reason="SIGTERM"))
    loss = WorkerLoss(cause=Cause.TERMINATED, message="worker run-0-3 got SIGTERM")
    scene = failing(2, agent=told).plus(*dead(3, agent=told, loss=loss))
    assert scene.plan.reason == "StartFailed"
    assert scene.plan.message.endswith("ended before it took part: worker run-0-3 got SIGTERM")
    assert scene.plan.status.failures.text == "1/1"


def test_a_worker_that_got_sigterm_is_not_deleted_before_its_end_tells_who_sent_it() -> None:
    told = an_agent(attempt=0, notice=Notice(reason="SIGTERM"))
    scene = a_run(replicas=1).plus(a_worker(agent=told))
    assert (created(scene), deleted(scene)) == (["run-0-2"], [])


def test_a_worker_whose_agent_never_calls_is_an_incident_and_is_replaced() -> None:
    mute = a_worker(agent=None, age=seconds(301), silent_for=seconds(301))
    scene = a_run(replicas=1, max_failures=1).plus(mute)
    plan = scene.plan
    assert plan.reason == "StartFailed"
    assert plan.message == (
        "attempt 1 could not start: worker run-0-1 runs, but its agent has not called within "
        "health.startTimeout (300 s)"
    )
    ours = Installation(name="trainrun-system")
    assert scene.seen_by(ours, held_by=ours.holder).plan.message.endswith(
        "(300 s); its log says why. It must reach the Service trainrun-agents in namespace "
        "trainrun-system, port 8443: a NetworkPolicy may block that"
    )
    after = scene.after(plan, passed=1).with_worker(0, age=seconds(302))
    assert deleted(after) == [("run-0-1", "its agent does not answer")]
    assert created(after) == ["run-0-2"]


def test_an_agent_has_its_whole_timeout_to_call() -> None:
    mute = a_worker(agent=None, age=seconds(300), silent_for=seconds(300))
    assert a_run(replicas=1).plus(mute).plan.reason == "Gathering"


def test_a_worker_that_waited_long_for_room_still_has_its_whole_timeout_to_call() -> None:
    fresh = a_worker(agent=None, age=seconds(3600), running_for=seconds(2), silent_for=seconds(2))
    assert a_run(replicas=1).plus(fresh).plan.reason == "Gathering"
    mute = a_worker(agent=None, age=seconds(3600), running_for=seconds(301))
    assert a_run(replicas=1).plus(mute).plan.reason == "StartFailed"


def test_a_new_operator_waits_before_it_misses_an_agent() -> None:
    mute = a_worker(agent=None, silent_for=seconds(300))
    assert a_run(replicas=1).plus(mute).listening(300).plan.reason == "Gathering"


def test_a_failed_start_is_charged_after_the_incident_before_it() -> None:
    """Both are counted, each once."""
    scene = a_run(replicas=1, max_failures=5).running().with_exit(0)
    scene = scene.after(scene.plan, passed=10)
    scene = scene.with_worker(0, phase="Ended").plus(*dead(2, 3, 4))
    status = scene.plan.status
    assert scene.plan.reason == "StartFailed"
    assert [i.attempt for i in status.incidents] == [1]
    assert status.incident is not None
    assert status.incident.attempt == 2
    assert (status.failures.counted, status.failures.text) == (1, "2/5")


# ---------------------------------------------------------------------------- unreachable nodes


def forced(scene: WorkerObservation) -> dict[str, bool]:
    return {a.name: a.force for a in scene.plan.actions if isinstance(a, DeleteWorker)}


def test_a_silent_worker_on_a_suspect_node_is_deleted_by_force_also_when_it_is_being_deleted() -> (
    None
):
    scene = a_run(replicas=3).running().ended().silent(1, 31)
    assert forced(scene.after(scene.plan)) == {"run-1-1": False}
    assert forced(scene.with_worker(1, deleting=True)) == {}
    cut = scene.with_worker(1, suspect_node="NotReady", deleting=True)
    cut = cut.after(cut.plan)
    assert forced(cut) == {"run-1-1": True}
    assert deleted(cut) == [("run-1-1", "its node node-1 is lost: NotReady")]
    assert created(cut) == ["run-1-2"]


def test_a_worker_on_a_node_that_is_out_of_service_is_deleted_by_force() -> None:
    loss = WorkerLoss(cause=Cause.NODE_LOST, message="out of service", unreachable=True)
    scene = a_run(replicas=3).running().ended().with_worker(1, loss=loss)
    scene = scene.after(scene.plan)
    assert forced(scene) == {"run-1-1": True}
    assert deleted(scene) == [("run-1-1", "out of service")]


def test_a_worker_that_was_to_start_on_a_node_that_died_is_replaced() -> None:
    pending = a_worker(
        phase="Pending",
        agent=None,
        age=seconds(31),
        silent_for=seconds(99),
        suspect_node="NotReady",
    )
    scene = a_run().plus(pending, a_worker(1))
    assert forced(scene) == {"run-0-1": True}
    assert created(scene) == ["run-0-2"]
    assert forced(scene.with_worker(0, age=seconds(30))) == {}


def test_a_worker_whose_node_died_before_its_agent_called_has_not_failed_to_start() -> None:
    """However long its deletion takes to get through."""
    mute = a_worker(agent=None, age=seconds(301), silent_for=seconds(301), suspect_node="NotReady")
    scene = a_run().plus(mute, a_worker(1))
    assert scene.plan.reason == "Gathering"
    assert forced(scene) == {"run-0-1": True}


def test_a_leftover_on_a_dead_node_is_deleted_by_force_while_the_run_goes_on() -> None:
    old = a_worker(0, 0, deleting=True, silent_for=seconds(99))
    scene = a_run(replicas=3).running().plus(old)
    assert forced(scene) == {}
    dead = a_worker(0, 0, deleting=True, silent_for=seconds(99), suspect_node="NotReady")
    assert forced(a_run(replicas=3).running().plus(dead)) == {"run-0-0": True}


# ---------------------------------------------------------------------------- ended workers


def ended_before(attempt: int, *numbers: int) -> WorkerObservation:
    """`attempt` runs, and these workers of slot 0 have ended before it."""
    scene = a_run(replicas=2).running(attempt)
    record = scene.status.start_record
    assert record is not None
    scene = scene.with_status(start_record=replace(record, roster=(attempt, 1)))
    agent = scene.worker(0).agent
    seat = a_worker(0, attempt, agent=agent)
    old = [a_worker(0, number, phase="Ended", agent=None) for number in numbers]
    return scene.without(0).plus(seat, *old)


@pytest.mark.parametrize(
    ("retain", "gone"),
    [(0, ["run-0-1", "run-0-2", "run-0-3"]), (1, ["run-0-1", "run-0-2"]), (3, [])],
)
def test_so_many_ended_workers_are_kept_for_their_logs(retain: int, gone: list[str]) -> None:
    scene = ended_before(4, 2, 1, 3).with_config(retain_failed_workers=retain)
    assert deleted(scene) == [
        (name, "its logs are no longer kept (retainFailedWorkers)") for name in gone
    ]


HOLDS = "its training has ended, but other containers of its pod still hold the room"


@pytest.mark.case(
    "nodes",
    "The training container ends while another container of its pod runs",
    counted="its cause",
)
def test_an_ended_worker_whose_other_containers_hold_its_gpus_makes_room_at_once() -> None:
    """A pool as large as the gang had no room for its replacement, for ever."""
    scene = a_run(replicas=2).running().ended().lost(1, Cause.OUT_OF_MEMORY)
    scene = scene.with_worker(1, agent=None, holds_room=True)
    assert deleted(scene) == [("run-1-1", HOLDS)]
    assert deleted(scene.with_worker(1, deleting=True)) == []


def test_an_ended_worker_of_an_earlier_attempt_that_holds_room_is_not_kept_for_its_logs() -> None:
    scene = ended_before(4, 3).with_config(retain_failed_workers=3)
    scene = scene.plus(a_worker(0, 2, phase="Ended", agent=None, holds_room=True))
    assert deleted(scene) == [("run-0-2", HOLDS)]


def test_a_start_that_failed_counts_also_where_its_other_containers_run_on() -> None:
    """Its number must not be used again, and the third one is an incident."""
    scene = a_run(replicas=1).plus(a_worker(0, 1, phase="Ended", agent=None, holds_room=True))
    assert deleted(scene) == []


def test_the_workers_that_the_last_attempt_lost_are_kept_until_the_next_one_runs() -> None:
    scene = ended_before(4).with_config(retain_failed_workers=0, max_failures=1)
    scene = scene.ended(an_incident(attempt=4)).lost(1, Cause.NODE_LOST)
    scene = scene.after(scene.plan).plus(a_worker(0, 3, phase="Ended", agent=None))
    assert [name for name, _ in deleted(scene)] == ["run-0-3"]


def test_starts_that_fail_again_and_again_leave_no_heap_of_workers() -> None:
    scene = failing(3).with_config(max_failures=-1)
    scene = scene.after(scene.plan, passed=1).plus(*dead(4, 5))
    assert deleted(scene) == [
        (f"run-0-{number}", "its logs are no longer kept (retainFailedWorkers)")
        for number in (1, 2)
    ]


def test_a_fact_under_another_name_never_takes_the_place_of_a_worker() -> None:
    scene = a_run(replicas=2).running()
    other = replace(
        scene.workers[1],
        name="run-1-1-copy",
        phase="Ended",
        agent=None,
        loss=WorkerLoss(cause=Cause.UNKNOWN, message="gone"),
    )
    for workers in ((*scene.workers, other), (other, *scene.workers)):
        seen = replace(scene, workers=workers)
        assert seen.view.roster == scene.workers
        assert seen.plan.status.ending is None


@pytest.mark.case(
    "nodes", "A node is lost with health.forceDeletePods: false", counted="maxPreemptions"
)
def test_without_force_a_lost_nodes_pod_is_deleted_once_and_a_condition_says_what_it_holds() -> (
    None
):
    lost = WorkerLoss(cause=Cause.NODE_LOST, message="node-1 is gone", unreachable=True)
    scene = a_run(max_failures=3, force_delete_pods=False).running().with_worker(1, loss=lost)
    scene = scene.after(scene.plan)
    scene = scene.after(scene.plan)  # whose pod is deleted stands in the status first
    deletions = [a for a in scene.plan.actions if isinstance(a, DeleteWorker)]
    assert [(a.name, a.force) for a in deletions] == [("run-1-1", False)]
    assert [a.name for a in scene.plan.actions if isinstance(a, CreateWorker)] == ["run-1-2"]
    late = scene.with_worker(1, deleting=True)
    late = late.after(late.plan)
    assert [a for a in late.plan.actions if isinstance(a, DeleteWorker)] == []
    mark = late.status.condition("PodsKept")
    assert mark is not None
    assert (mark.status, mark.reason) == ("True", "NodeLost")
    assert mark.message.startswith(
        "deleted, but not confirmed, because the node is lost and spec.health.forceDeletePods is "
        "false: run-1-1 on node node-1."
    )
    assert mark.message.endswith("kubectl delete pod run-1-1 --grace-period=0 --force")
    forced = late.with_config(force_delete_pods=True)
    assert forced.plan.status.condition("PodsKept") is None
    assert [a.force for a in forced.plan.actions if isinstance(a, DeleteWorker)] == [True]
