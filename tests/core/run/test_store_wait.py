"""A store that refuses, or does not answer, what a run needs: who is waited for, and how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import (
    WorkerObservation,
    a_run,
    a_worker,
    an_agent,
    an_incident,
    seconds,
)
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import Condition
from trainrun_operator.api.run.status_parts import StoreWait
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker, Plan

WRONG_KEY = "cannot read s3://b/run/manifest.json: InvalidAccessKeyId: no such key"
POINT = (1, 40)
HOUR = 3600.0


def a_lost_worker(**config: Any) -> WorkerObservation:
    """Attempt 1 has ended by a preemption, and a run that has trained for days gathers again."""
    config = {"replicas": 3, "max_failures": 0, "max_preemptions": 1, **config}
    scene = a_run(**config).running()
    with_keys = replace(scene.config.storage, credentials="keys")
    scene = scene.with_config(storage=with_keys).with_status(storage_generation=1)
    return scene.ended(an_incident(slot=2), ago=5).with_status(incident=None)


def refused(scene: WorkerObservation, slot: int = 2) -> WorkerObservation:
    """This worker's keys are not taken; those of the others are."""
    if slot:
        scene = scene.resolved(POINT)
        return scene.proven(slot, outcome="Misconfigured", message=WRONG_KEY)
    return scene.resolved(outcome="Misconfigured", message=WRONG_KEY)


def storage(plan: Plan) -> Condition:
    found = plan.status.condition("StorageReady")
    assert found is not None
    return found


def actions(plan: Plan) -> list[str]:
    return [
        f"{type(a).__name__} {a.name}"
        for a in plan.actions
        if isinstance(a, CreateWorker | DeleteWorker)
    ]


def replaced(scene: WorkerObservation, slot: int, created_for: int) -> WorkerObservation:
    """Another worker has its place, and has just begun."""
    agent = an_agent(slot, created_for, held=scene.held)
    new = a_worker(slot, created_for, age=seconds(2), agent=agent)
    return scene.without(slot).plus(new)


@pytest.mark.case("storage", "The store refuses a run that has trained before")
@pytest.mark.parametrize("slot", [0, 2])
def test_a_run_that_has_trained_waits_for_its_secret_to_be_right_again(slot: int) -> None:
    scene = refused(a_lost_worker(), slot)
    plan = scene.plan
    assert (plan.status.phase, plan.status.reason) == ("Restarting", "StorageMisconfigured")
    assert storage(plan).reason == "StorageMisconfigured"
    assert storage(plan).message == (
        f"the store refuses worker run-{slot}-1: {WRONG_KEY}. Correct the credentials of "
        "spec.storage.credentialsSecretRef (Secret keys), or what the store names; the worker is "
        "recreated now and then to try it, and no budget is charged"
    )
    assert plan.status.workers.text == "2/3"
    scene = scene.after(plan, passed=29)
    assert (scene.plan.transition, actions(scene.plan)) == (False, [])
    assert (scene.hold(0).resolve is None) == (slot != 0)  # it goes on being asked
    ask = scene.hold(2).resolve
    assert ask is not None
    assert ask.proof

    scene = scene.after(scene.plan, passed=2)
    plan = scene.plan
    assert (plan.transition, plan.reason) == (True, "RefusedRecreated")
    scene = scene.after(plan)
    assert actions(scene.plan) == [f"DeleteWorker run-{slot}-1", f"CreateWorker run-{slot}-2"]
    scene = replaced(scene, slot, 2)
    assert actions(scene.plan) == []
    healed = scene.resolved(POINT).plan
    assert (healed.reason, healed.status.failures.text) == ("Started", "0/0")
    assert healed.status.store_wait is None


def test_refused_workers_are_made_anew_less_and_less_often() -> None:
    scene = a_lost_worker()
    times, number = [], 1
    for passed in range(0, 1200, 10):
        plan = refused(scene).plan
        if plan.reason == "RefusedRecreated":
            times.append(passed)
            number += 1
            scene = replaced(scene.after(plan), 2, number)
            plan = refused(scene).plan
        scene = scene.after(plan, passed=10)
    assert times == [30, 90, 210, 510, 810, 1110]


def test_after_an_hour_of_refusals_the_run_fails_and_can_be_taken_up() -> None:
    scene = refused(a_lost_worker())
    wait = StoreWait(reason="StorageMisconfigured", since=scene.now, waited=HOUR - 1, renewals=9)
    scene = scene.with_status(store_wait=replace(wait, renewed=scene.now))
    scene = scene.after(scene.plan, passed=2)
    plan = scene.plan
    assert (plan.reason, plan.status.phase) == ("StorageMisconfigured", "Failed")
    assert plan.message == (
        f"the store refuses worker run-2-1: {WRONG_KEY}. Correct the credentials of "
        "spec.storage.credentialsSecretRef (Secret keys), or what the store names; give the "
        "annotation trainrun.dev/restart a new value to continue the run"
    )
    failed = scene.after(plan)
    assert failed.plan.reason == "StorageMisconfigured"
    assert failed.edited(keep=9).plan.reason == "StorageMisconfigured"  # says nothing about it

    asked = failed.with_config(restart="once more").plan
    assert (asked.transition, asked.reason) == (True, "Reopened")
    assert asked.message == (
        "the annotation trainrun.dev/restart has a new value: the run continues and keeps what it "
        "has used of its budgets"
    )
    again = failed.with_config(restart="once more").after(asked)
    assert again.plan.status.phase == "Restarting"
    assert again.status.store_wait is None

    other = replace(failed.config.storage, credentials="other-keys")
    edited = failed.edited(storage=other).plan
    assert edited.message.startswith("spec.storage or spec.workers.template has changed: the run")


def test_a_restart_that_was_asked_for_while_it_was_waited_for_does_not_take_it_up() -> None:
    scene = refused(a_lost_worker(restart="before"))
    wait = StoreWait(reason="StorageMisconfigured", waited=HOUR + 1, renewed=scene.now)
    scene = scene.with_status(store_wait=wait)
    scene = scene.after(scene.plan)
    assert scene.status.phase == "Failed"
    assert scene.plan.reason == "StorageMisconfigured"


def test_two_refused_workers_are_told_as_one() -> None:
    scene = refused(refused(a_lost_worker(), 2), 1).proven(
        2, outcome="Misconfigured", message=WRONG_KEY
    )
    told = storage(scene.plan).message
    assert told.startswith(f"the store refuses worker run-1-1 (and 1 other worker): {WRONG_KEY}")


def test_without_a_secret_the_template_is_named() -> None:
    scene = refused(a_lost_worker())
    none = replace(scene.config.storage, credentials="")
    told = storage(scene.with_config(storage=none).plan).message
    assert "Correct the credentials of spec.workers.template, or what the store names" in told


@pytest.mark.case(
    "storage", "Wrong credentials or no such bucket at a first start", counted="the run fails"
)
def test_a_first_start_that_is_refused_fails_early() -> None:
    scene = a_run().waiting().resolved(outcome="Misconfigured", message=WRONG_KEY)
    scene = scene.after(scene.plan, passed=31)
    assert (scene.plan.reason, scene.plan.status.phase) == ("StorageMisconfigured", "Failed")
    assert scene.plan.message.startswith(WRONG_KEY)


def test_a_first_start_from_what_is_there_waits_for_the_one_that_is_refused() -> None:
    scene = a_run().waiting().resolved(POINT)
    scene = scene.proven(1, outcome="Misconfigured", message=WRONG_KEY)
    scene = scene.after(scene.plan, passed=31)
    assert scene.plan.reason == "RefusedRecreated"


@pytest.mark.parametrize("ahead", [6 * HOUR, -6 * HOUR])
def test_a_clock_that_differs_makes_no_storm_of_new_workers(ahead: float) -> None:
    scene = refused(a_lost_worker())
    wait = StoreWait(reason="StorageMisconfigured", renewals=1, since=scene.now)
    scene = scene.with_status(store_wait=replace(wait, renewed=scene.now + seconds(ahead)))
    plan = scene.plan
    assert plan.reason == "RefusedRecreated"
    scene = replaced(scene.after(plan), 2, 2)
    assert actions(refused(scene).plan) == []


def test_each_refused_worker_is_made_anew_whatever_number_it_has() -> None:
    scene = replaced(a_lost_worker(), 1, 7).resolved(POINT)
    scene = refused(scene).proven(1, outcome="Misconfigured", message=WRONG_KEY)
    scene = scene.after(scene.plan, passed=31)
    assert actions(scene.after(scene.plan).plan) == [
        "DeleteWorker run-1-7",
        "DeleteWorker run-2-1",
        "CreateWorker run-1-8",
        "CreateWorker run-2-8",
    ]


# ---------------------------------------------------------------------------- each worker reads


def test_nothing_starts_before_each_worker_has_read_what_it_resumes_from() -> None:
    scene = a_lost_worker().resolved(POINT).with_agent(2, resolution=None)
    plan = scene.plan
    assert (plan.reason, plan.message) == (
        "Resolving",
        "waiting for 1 worker to read the checkpoint's manifest",
    )
    for slot in (1, 2):
        ask = scene.hold(slot).resolve
        assert ask is not None
        assert (ask.attempt, ask.proof) == (2, True)
        assert ask.committed == CheckpointId(attempt=1, step=40)
    assert scene.proven(2, POINT).plan.reason == "Started"


def test_no_worker_of_slot_0_proves_since_its_proof_would_pass_for_a_claim_once_it_leads() -> None:
    """An attempt started that nothing in the store told of, and nobody was fenced."""
    scene = refused(a_lost_worker(), 0)
    scene = scene.after(scene.plan, passed=31)
    assert scene.plan.reason == "RefusedRecreated"
    alone = scene.after(scene.plan)
    assert alone.hold(0).resolve is None
    two = a_lost_worker()
    two = two.plus(a_worker(0, 2, agent=an_agent(0, 2, held=two.held)))
    asked = [two.hold(0, number).resolve for number in (1, 2)]
    assert [ask is not None and not ask.proof for ask in asked].count(True) == 1
    assert asked.count(None) == 1


def test_another_checkpoint_than_the_one_that_is_resumed_proves_nothing() -> None:
    scene = a_lost_worker().resolved(POINT).proven(2, (1, 30))
    assert scene.plan.reason == "Resolving"


def test_without_a_checkpoint_each_worker_still_shows_that_it_reads_the_store() -> None:
    scene = a_lost_worker().resolved().with_agent(2, resolution=None)
    assert scene.plan.reason == "Resolving"
    ask = scene.hold(2).resolve
    assert ask is not None
    assert (ask.proof, ask.committed) == (True, None)


def test_a_first_start_from_nothing_reads_nothing() -> None:
    scene = a_run().waiting()
    assert scene.hold(1).resolve is None
    assert scene.resolved().with_agent(1, resolution=None).plan.reason == "Started"


def test_a_worker_that_does_not_reach_the_store_is_waited_for_by_name() -> None:
    scene = a_lost_worker().resolved(POINT).proven(1, outcome="Unavailable", message="s3: no route")
    plan = scene.plan
    assert (storage(plan).reason, storage(plan).message) == (
        "StorageUnavailable",
        "worker run-1-1: s3: no route",
    )
    scene = scene.proven(2, outcome="Unavailable", message="s3: no route")
    scene = scene.after(plan, passed=HOUR)
    assert scene.plan.status.phase == "Restarting"
    assert actions(scene.plan) == []
    assert scene.after(scene.plan, passed=1).plan.status.phase == "Failed"


def test_the_only_worker_that_does_not_reach_the_store_is_replaced() -> None:
    """Its node had no route there; the run waited for it for an hour, and failed."""
    scene = a_lost_worker().resolved(POINT, age=300.0)
    scene = scene.proven(1, outcome="Unavailable", message="s3: no route")
    scene = scene.after(scene.plan, passed=340)
    assert actions(scene.plan) == []
    late = scene.resolved(POINT, age=301.0).proven(1, outcome="Unavailable", message="no route")
    assert actions(late.plan) == ["DeleteWorker run-1-1", "CreateWorker run-1-2"]
    assert (late.plan.status.phase, storage(late.plan).message) == (
        "Restarting",
        "worker run-1-1 has had no answer from the store for 300 s; another worker is tried",
    )


@pytest.mark.case("storage", "A call to the store hangs, or one worker alone does not reach it")
def test_a_worker_whose_read_hangs_is_replaced() -> None:
    scene = a_lost_worker().resolved(POINT, age=0.0).with_agent(2, resolution=None)
    scene = scene.after(scene.plan, passed=340)
    assert scene.plan.reason == "Resolving"  # asked for as long as slot 0 has had its answer
    plan = scene.resolved(POINT, age=301.0).with_agent(2, resolution=None).plan
    assert plan.message == (
        "worker run-2-1 has had no answer from the store for 300 s; another worker is tried"
    )


# ---------------------------------------------------------------------------- how long


def away(scene: WorkerObservation) -> WorkerObservation:
    return scene.resolved(outcome="Unavailable", message="s3: no route")


def test_hours_without_room_do_not_count_as_an_outage_of_the_store() -> None:
    scene = a_lost_worker()
    scene = away(scene).after(away(scene).plan, passed=1)  # a hiccup of a second
    scene = scene.with_agent(0, resolution=None).without(2)
    scene = scene.after(scene.plan, passed=2 * HOUR)
    wait = scene.status.store_wait
    assert wait is not None
    assert (wait.since, wait.waited) == (None, 1.0)
    scene = replaced(scene, 2, 2)
    one_more = away(scene).after(away(scene).plan, passed=1)
    assert one_more.plan.status.phase == "Restarting"


@pytest.mark.case("storage", "Trouble with the store comes, goes and comes back")
def test_an_answer_in_between_ends_the_wait() -> None:
    scene = a_lost_worker()
    wait = StoreWait(reason="StorageUnavailable", since=scene.now, waited=3000.0)
    scene = scene.with_status(store_wait=wait)
    scene = scene.resolved(POINT).with_agent(2, resolution=None)
    scene = scene.after(scene.plan)
    assert scene.status.store_wait is None


def test_a_store_that_now_refuses_and_now_is_away_has_one_hour_in_all() -> None:
    scene = a_lost_worker()
    wait = StoreWait(reason="StorageUnavailable", since=scene.now, waited=3000.0)
    found = refused(scene.with_status(store_wait=wait), 0).plan.status.store_wait
    assert found is not None
    assert (found.reason, found.waited) == ("StorageMisconfigured", 3000.0)
