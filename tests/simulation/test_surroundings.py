"""What its user, the store, the API server and the texts of others may do to a run: it goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.simulation.world.cluster import StartTrouble
from tests.simulation.world.simulation import Simulation
from tests.simulation.world.weather import Weather
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker


def lived_well(world: Simulation) -> bool:
    """To its end, and the judge has nothing to say."""
    world.live(HOUR)
    assert world.judge.closing() == []
    return world.status.phase == "Succeeded"


# ---------------------------------------------------------------------------------- its user


def test_a_failure_policy_that_is_edited_holds_for_the_next_failure() -> None:
    world = a_life(config=a_config(limits={"failures": 0}))
    until(world, lambda: runs(world, 1))
    world.edit_limits({"failures": 1})
    world.live(world.clock.now + 1)
    world.raise_exception(worker(world, 1).agent)
    assert lived_well(world)
    assert causes(world) == ["AppError"]


def test_a_run_that_computes_at_its_deadline_fails_and_says_so() -> None:
    world = a_life(config=a_config(active_deadline=timedelta(seconds=15)))
    assert not lived_well(world)
    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "DeadlineExceeded"


def test_an_incident_that_the_deadline_settles_tells_what_was_known_by_then() -> None:
    world = a_life(config=a_config(active_deadline=timedelta(seconds=18)))
    world.live(12)
    world.lose_node(worker(world, 1), known_after=20.0)
    assert not lived_well(world)
    assert len(causes(world)) == 1


def test_a_run_that_deletes_itself_at_once_has_marked_its_storage_finished() -> None:
    config = a_config(ttl_after_finished=timedelta(0))
    world = a_life(config=config, weather=Weather(delay=1.0), seed=2)
    until(world, lambda: world.deleted)
    assert world.judge.closing() == []
    assert world.store.finished
    assert world.present() == []


@pytest.mark.case("operator", "The status is lost or restored from a backup")
def test_an_attempt_of_a_status_from_a_backup_is_not_started_a_second_time() -> None:
    world = a_life()
    until(world, lambda: runs(world, 1))
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: runs(world, 2))
    world.set_back(6)
    assert world.status.attempt < 2
    assert lived_well(world)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_attempt_that_has_just_been_ordered_is_not_given_out_again_by_an_old_status(
    seed: int,
) -> None:
    """Its agents have begun it, and the operator has not heard of it yet."""
    world = a_life(seed=seed, weather=Weather(delay=0.5))
    until(world, lambda: runs(world, 1))
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: len(world.gang(2)) > 0)
    world.set_back(2)
    assert lived_well(world)


# --------------------------------------------------------------------------------- the store


def test_a_storage_that_another_run_uses_is_waited_for() -> None:
    world = a_life()
    world.store_used(30)
    until(world, lambda: "another" in str(world.status.conditions))
    assert lived_well(world)
    assert causes(world) == []


def test_a_store_that_does_not_take_the_credentials_is_waited_for() -> None:
    world = a_life()
    world.misconfigure(20)
    until(world, lambda: "credentials" in str(world.status.conditions))
    assert lived_well(world)
    assert causes(world) == []


def test_old_checkpoints_go_and_those_that_attempts_resumed_stay() -> None:
    world = a_life()
    until(world, lambda: runs(world, 1) and world.store.newest() is not None)
    world.raise_exception(worker(world, 1).agent)
    assert lived_well(world)
    handed = {claim for claim in world.store.claims.values() if claim is not None}
    assert handed
    assert handed <= set(world.store.checkpoints)
    assert len(world.store.checkpoints) < 24 // world.save_every


# ---------------------------------------------------------------------------- the API server


def test_a_worker_that_took_the_name_of_the_one_that_was_seen_is_not_deleted() -> None:
    world = a_life()
    until(world, lambda: runs(world, 1))
    seen = worker(world, 1)
    operator = world.operators[0]
    operator.blind = True
    world.delete_worker(seen.name, force=True)
    world.create_worker(
        CreateWorker(name=seen.name, slot=1, created_for=seen.created_for, template_hash="t1"),
        seen.storage,
    )
    there = worker(world, 1)
    assert there.agent is not seen.agent
    deletion = DeleteWorker(name=seen.name, reason="it is gone")
    until(world, world.clock.create_task(operator.world.apply(deletion)).done)
    assert there.present
    assert not there.deleting


def test_a_leader_whose_view_of_the_workers_froze_sees_their_ends_later() -> None:
    world = a_life()
    until(world, lambda: runs(world, 1))
    world.stop_watch(world.operators[0], 20)
    world.vanish(worker(world, 1))
    world.lose_node(worker(world, 2), known_after=1.0)
    assert lived_well(world)
    assert len(causes(world)) == 1


def test_a_reclaim_that_no_leader_saw_is_told_as_the_sigterm_of_which_its_agent_told() -> None:
    """The worker's object said who took it away, and was gone when a leader could see it."""
    world = a_life(weather=Weather(delay=0.2))
    until(world, lambda: runs(world, 1))
    world.preempt(worker(world, 1), grace=12.0, known=False)
    world.live(world.clock.now + 10)  # its replacement is there, and seen
    world.stop_watch(world.operators[0], 30.0)
    assert lived_well(world)
    assert causes(world) == ["Terminated"]


@pytest.mark.parametrize("seconds", [3.0, 25.0])
def test_requests_that_hang_end_and_nothing_is_counted_twice(seconds: float) -> None:
    world = a_life()
    until(world, lambda: runs(world, 1))
    world.hang_requests(world.operators[0], seconds)
    world.raise_exception(worker(world, 1).agent)
    assert lived_well(world)
    assert causes(world) == ["AppError"]


def test_a_run_that_ends_while_the_api_server_hangs_shows_later_that_nobody_is_left() -> None:
    world = a_life()
    until(world, lambda: world.status.finished)
    world.hang_requests(world.operators[0], 35.0)
    assert lived_well(world)
    assert world.status.workers.leaving > 0
    world.come_to_rest()
    assert world.status.workers.leaving == 0
    assert world.judge.closing() == []


def test_a_run_that_is_over_shows_that_its_user_has_resumed_it_since() -> None:
    world = a_life()
    until(world, lambda: world.status.finished)
    world.suspend(35.0)
    assert lived_well(world)
    world.come_to_rest()
    assert world.status.observed_generation == world.version.generation == 3
    assert world.judge.closing() == []


def test_a_worker_that_one_leader_deletes_when_another_has_started_it_is_lost_once() -> None:
    """No Lease lets a request arrive so late; if one did, the worker was taken away."""
    world = a_life()
    first = world.operators[0]
    until(world, lambda: len(world.present()) == 3)
    world.live(world.clock.now + 0.5)  # its watch has told of them
    world.crash_operator(first)
    until(world, lambda: runs(world, 1))
    deletion = DeleteWorker(name=worker(world, 1).name, reason="its agent does not answer")
    until(world, world.clock.create_task(first.world.apply(deletion)).done)
    assert lived_well(world)
    assert causes(world) == ["Preempted"]


def test_a_leader_that_begins_several_versions_behind_counts_nothing_twice() -> None:
    world = a_life()
    until(world, lambda: runs(world, 1))
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: runs(world, 2))
    world.hand_over(world.operators[0], behind=8, seconds=10)
    assert world.operators[0].world.stale
    assert lived_well(world)
    assert causes(world) == ["AppError"]
    assert world.status.attempt == 2


@pytest.mark.parametrize("trouble", ["ImagePull", "ConfigError", "Ends", "Mute"])
def test_workers_that_cannot_start_for_a_while_are_tried_again(trouble: StartTrouble) -> None:
    limits = {"failures": -1}
    world = a_life(config=a_config(limits=limits, start_timeout=timedelta(seconds=30)))
    world.trouble_starts(trouble, 40)
    assert lived_well(world)
    assert set(causes(world)) <= {"StartFailed"}


def test_a_worker_that_waits_for_room_longer_than_the_start_timeout_has_not_failed() -> None:
    world = a_life(config=a_config(start_timeout=timedelta(seconds=30)))
    world.room.capacity = 2
    world.clock.after(60, lambda: setattr(world.room, "capacity", None))
    assert lived_well(world)
    assert causes(world) == []


def test_a_port_that_was_taken_meanwhile_is_charged_to_nobody() -> None:
    world = a_life(config=a_config(limits={"failures": 0}))
    until(world, lambda: runs(world, 1))
    text = "torch.distributed.DistNetworkError: Address already in use"
    world.raise_exception(worker(world, 0).agent, text)
    assert lived_well(world)
    assert causes(world) == ["RendezvousFailed"]
    assert world.status.failures.counted == 0


# -------------------------------------------------------------------------- texts of others


@pytest.mark.parametrize(
    "text", ["損" * 3000, "\x00\x1b[31m\r\n", "\U0010ffff\ufffe\u202e", '{"a": "\\' * 99, ""]
)
def test_an_exception_whose_text_is_anything_is_counted_as_one(text: str) -> None:
    world = a_life()
    until(world, lambda: runs(world, 1))
    world.raise_exception(worker(world, 1).agent, text)
    assert lived_well(world)
    assert causes(world) == ["AppError"]


@pytest.mark.slow
@pytest.mark.case("storage", "The store lists late what was written")
def test_a_commit_that_the_store_does_not_list_yet_is_waited_for() -> None:
    world = a_life()
    world.live(8)
    world.list_late(60)
    until(world, lambda: world.status.checkpoint is not None and world.store.unlisted)
    world.raise_exception(worker(world, 1).agent)
    world.live(50)
    assert world.status.attempt == 1
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert world.judge.closing() == []


@pytest.mark.slow
def test_the_only_commit_is_waited_for_that_the_store_does_not_list_for_minutes() -> None:
    """The run failed after one, NoGoodCheckpoint, though it knew the checkpoint by its name."""
    world = a_life()
    world.list_late(300)
    until(world, lambda: world.status.checkpoint is not None)
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: "the listing does not show it" in str(world.status.conditions))
    world.live(290)
    assert (world.status.phase, world.status.attempt) == ("Restarting", 1)
    assert lived_well(world)
    assert causes(world) == ["AppError"]


def test_a_checkpoint_is_committed_before_the_restart_whose_parts_are_listed_late() -> None:
    world = a_life()
    until(world, lambda: runs(world, 1) and world.store.newest() is not None)
    saved = world.store.newest()
    world.list_parts_late(60)
    until(world, lambda: any(map(world.store.uncommitted, world.store.checkpoints)))
    (waiting,) = filter(world.store.uncommitted, world.store.checkpoints)
    assert waiting != saved
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: runs(world, 2))
    assert world.store.claims[2] == waiting
    assert lived_well(world)
