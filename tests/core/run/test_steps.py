"""Checkpoint steps as the gang sees them: open, saved, to be flushed, to be dropped."""

from __future__ import annotations

from tests.support.builders import WorkerObservation, a_run
from trainrun.contract.agent_state import Committed
from trainrun.contract.answer import OpenStep
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.core.run import steps


def test_a_step_that_somebody_brings_is_open_to_all_until_it_is_committed() -> None:
    scene = a_run().running().staged(0, 10, uploaded=True).staged(0, 20)
    assert scene.answer(1).steps == (OpenStep(step=10, slots=(0,)), OpenStep(step=20))
    committed = scene.committed(1, 10)
    assert committed.answer(0).steps == (OpenStep(step=20),)
    assert committed.answer(0).committed == CheckpointId(attempt=1, step=10)


def test_a_step_that_nobody_brings_files_for_is_not_open() -> None:
    assert a_run().running().staged(0, 10, ranks=()).answer(0).steps == ()


def test_the_newest_commit_that_anybody_knows_counts() -> None:
    scene = a_run().running().committed(0, 10).committed(1, 20)
    found = steps.newest_commit(scene.view)
    assert found is not None
    assert found.id.step == 20


def test_a_step_is_staged_when_every_worker_has_passed_it() -> None:
    scene = a_run().running().staged(0, 10, after_save=True)
    assert steps.saved_step(scene.with_agent(1, steps=(11,)).view) == 10
    assert steps.saved_step(scene.with_agent(1, steps=(10,)).view) is None, "files may follow"
    assert steps.saved_step(scene.with_agent(1, steps=(None,)).view) is None
    assert steps.saved_step(scene.with_agent(1, steps=()).view) is None


def test_a_rank_that_has_left_early_holds_no_step_of_its_worker_up() -> None:
    scene = a_run(processes_per_worker=2).running().staged(0, 10, after_save=True)
    left = scene.with_exit(1, code=0, rank=2).with_agent(1, phase="Running")
    assert steps.saved_step(left.with_agent(1, steps=(3, 11)).view) == 10
    assert steps.saved_step(left.with_agent(1, steps=(3, 10)).view) is None
    assert steps.saved_step(left.with_agent(1, steps=(11, 3)).view) is None


def test_a_worker_that_says_itself_that_nothing_more_comes_has_passed() -> None:
    scene = a_run().running().staged(0, 10, after_save=True)
    assert steps.saved_step(scene.with_agent(1, steps=(10,), passed=10).view) == 10
    assert steps.saved_step(scene.with_agent(1, steps=(10,), passed=9).view) is None


def test_a_worker_that_ended_well_has_passed_every_step() -> None:
    scene = a_run().running().staged(0, 10, after_save=True).with_agent(1, steps=(3,))
    assert steps.saved_step(scene.with_exit(1, code=0).view) == 10


def test_a_step_that_is_still_being_staged_does_not_count_as_passed() -> None:
    scene = a_run().running().staged(0, 10, after_save=True).staged(1, 10, complete=False)
    assert steps.saved_step(scene.view) is None


def test_a_step_of_a_worker_that_was_not_heard_is_not_staged() -> None:
    assert (
        steps.saved_step(a_run().running().staged(0, 10, after_save=True).unheard(1).view) is None
    )


# ---------------------------------------------------------------------------- flushing


def flushed(scene: WorkerObservation, *lost: int) -> tuple[int, ...]:
    return steps.flushable(scene.view, frozenset(lost))


def test_what_survivors_have_is_flushed_and_what_the_lost_one_had_is_not() -> None:
    scene = a_run().running().staged_by_all(10, uploaded=True).staged_by_all(20)
    assert flushed(scene) == (10, 20)
    assert flushed(scene, 1) == (10,)


def test_what_is_committed_needs_no_flush() -> None:
    scene = a_run().running().staged_by_all(10, uploaded=True, after_save=True).staged_by_all(20)
    assert flushed(scene.committed(0, 10)) == (20,)


def test_a_whole_checkpoint_survives_without_the_others() -> None:
    scene = a_run().running().staged(0, 10, whole=True).unheard(1)
    assert flushed(scene, 1) == (10,)
    assert flushed(scene, 0) == ()
    uploaded = a_run().running().staged(0, 10, whole=True, uploaded=True)
    assert flushed(uploaded, 0) == (10,)


# ---------------------------------------------------------------------------- dropping


def test_a_full_backlog_drops_complete_steps_between_the_first_and_the_newest() -> None:
    scene = a_run(max_pending=2).running()
    for step in (10, 20, 30, 40):
        scene = scene.staged_by_all(step)
    assert scene.answer(0).drop == (20, 30)
    assert scene.answer(1).drop == (20, 30)


def test_a_backlog_with_room_drops_nothing() -> None:
    scene = a_run(max_pending=4).running()
    for step in (10, 20, 30):
        scene = scene.staged_by_all(step)
    assert scene.answer(0).drop == ()


def test_a_full_backlog_of_two_drops_nothing() -> None:
    scene = a_run(max_pending=2).running().staged_by_all(10).staged_by_all(20)
    assert scene.answer(0).drop == ()


def test_a_step_that_is_not_complete_is_never_dropped() -> None:
    scene = a_run(max_pending=2).running().staged_by_all(10)
    scene = scene.staged(0, 20).staged(1, 20, complete=False).staged_by_all(30)
    assert scene.answer(0).drop == ()


def test_what_is_uploaded_or_committed_takes_no_room() -> None:
    scene = a_run(max_pending=2).running()
    for step in (10, 20, 30):
        scene = scene.staged_by_all(step, uploaded=True)
    assert scene.answer(0).drop == ()
    scene = a_run(max_pending=2).running()
    for step in (10, 20, 30):
        scene = scene.staged_by_all(step, after_save=True)
    assert scene.committed(0, 30).answer(0).drop == ()


def test_what_one_worker_has_dropped_all_drop_and_it_is_no_checkpoint_any_more() -> None:
    scene = a_run(max_pending=9).running().staged(0, 20).staged_by_all(30)
    scene = scene.with_agent(1, dropped=(20,))
    assert scene.answer(0).drop == (20,)
    assert scene.answer(0).steps == (OpenStep(step=30),)


def test_a_drop_that_all_have_done_is_over() -> None:
    scene = a_run().running().with_all(dropped=(20,))
    assert scene.answer(0).drop == ()


def test_a_worker_that_was_not_heard_has_no_backlog() -> None:
    scene = a_run(max_pending=1).running().unheard(1).staged(0, 10)
    assert scene.answer(0).drop == ()


def test_commits_of_agents_without_one_are_not_looked_at() -> None:
    scene = (
        a_run()
        .running()
        .with_agent(0, committed=Committed(id=CheckpointId(attempt=1, step=5), size_bytes=7))
    )
    assert steps.committed_step(scene.view) == 5
    assert steps.committed_step(a_run().running().view) == -1
