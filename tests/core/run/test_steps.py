"""Checkpoint steps as the gang sees them: open, saved, to be flushed, to be dropped."""

from __future__ import annotations

from dataclasses import replace

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun.contract.agent_state import Committed
from trainrun.contract.answer import FolderRule, OpenStep
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.cli.formatting import checkpoint_of
from trainrun_operator.core.run import steps
from trainrun_operator.core.run.drain import to_flush


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


def test_of_a_folder_only_the_agent_says_that_nothing_more_comes() -> None:
    scene = a_run(folder=FolderRule(path="out")).running().staged(0, 10, after_save=True)
    assert steps.saved_step(scene.with_agent(1, steps=(11,)).view) is None
    assert steps.saved_step(scene.with_agent(1, steps=(3,)).with_exit(1, code=0).view) is None
    assert steps.saved_step(scene.with_agent(1, steps=(None,), passed=10**15).view) == 10


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


# ---------------------------------------------------------------------------- uploadEvery


def keeping(*steps_: int, age: float, every: float = 60.0, **fields: object) -> WorkerObservation:
    """Workers that have trained for `age` seconds and staged these steps."""
    scene = a_run(upload_every=seconds(every), max_failures=1, **fields).running()
    scene = scene.with_all(spawned=age)
    for step in steps_:
        scene = scene.staged_by_all(step)
    return scene


def test_the_newest_complete_step_is_uploaded_when_its_time_has_come() -> None:
    assert keeping(10, 20, age=59).answer(0).upload == ()
    scene = keeping(10, 20, age=60).staged(0, 30)
    assert [scene.answer(slot).upload for slot in (0, 1)] == [(20,), (20,)]


def test_the_time_counts_from_the_last_commit_of_the_attempt() -> None:
    scene = keeping(20, age=500)
    commit = Committed(id=CheckpointId(attempt=1, step=10), age=40.0)
    scene = scene.with_agent(0, committed=commit)
    # Another worker has learned of it later.
    scene = scene.with_agent(1, committed=replace(commit, age=3.0))
    assert scene.answer(0).upload == ()
    assert scene.plan.requeue_after is not None
    assert scene.with_config(upload_every=seconds(41)).plan.requeue_after == seconds(1)
    assert scene.with_config(upload_every=seconds(40)).answer(0).upload == (20,)


def test_a_step_that_is_due_stays_due_when_a_newer_one_is_complete() -> None:
    scene = keeping(20, 30, age=60).staged(1, 10, due=True).staged(0, 10)
    assert scene.answer(0).upload == (10,)
    started = keeping(20, 30, age=60).staged(1, 10, uploaded=True).staged(0, 10)
    assert started.answer(0).upload == (10,)


def test_at_most_max_pending_steps_wait_for_a_store_that_is_away() -> None:
    scene = keeping(30, age=600).staged(0, 10, due=True, age=90).staged(1, 10)
    assert scene.answer(0).upload == (10, 30)
    assert scene.with_config(max_pending=1).answer(0).upload == (10,)


def test_the_last_step_is_uploaded_when_the_training_has_ended() -> None:
    scene = keeping(10, 20, age=5).with_exit(0, code=0)
    assert scene.answer(1).upload == ()
    ended = scene.with_exit(1, code=0)
    assert ended.answer(1).upload == (20,)
    assert ended.plan.status.phase == "Finishing"


def test_without_upload_every_no_step_is_named_and_agents_upload_each() -> None:
    answer = a_run().running().staged_by_all(10).answer(0)
    assert answer.upload == ()
    assert answer.settings is not None
    assert answer.settings.upload_every == 0.0


def test_two_complete_steps_stay_with_all_newer_ones_and_those_that_are_due() -> None:
    scene = keeping(20, 30, 40, age=5).staged(0, 50).staged(0, 10, due=True).staged(1, 10)
    assert [scene.answer(slot).drop for slot in (0, 1)] == [(20,), (20,)]


def test_kept_steps_are_no_backlog() -> None:
    assert keeping(20, 30, age=5, max_pending=1).answer(0).drop == ()


def test_a_flush_names_the_step_in_upload_and_the_newest_that_survives() -> None:
    scene = keeping(20, 30, 40, age=5).staged(0, 10, due=True).staged(1, 10).staged(0, 50)
    assert flushed(scene) == (10, 40)
    assert flushed(keeping(20, 30, age=5)) == (30,)
    assert flushed(scene, 1) == ()


def test_a_newer_step_replaces_the_one_to_flush_if_it_survives() -> None:
    scene = keeping(20, 30, age=5).with_exit(1)
    scene = scene.after(scene.plan)
    assert scene.hold(0).flush == (30,)
    newer = scene.staged_by_all(40)
    assert newer.hold(0).flush == (40,)
    assert to_flush(newer.unheard(1).view) == (30,), "nobody knows what the other one has"


def test_people_see_the_newest_staged_step_beside_the_newest_commit() -> None:
    scene = keeping(10, 20, age=5).with_all(steps=(21,))
    assert scene.plan.status.progress.staged == 20
    assert checkpoint_of(scene.plan.status) == "none yet; step 20 is on the workers' disks"
    assert scene.committed(0, 20).plan.status.progress.staged is None
    assert scene.with_config(upload_every=None).plan.status.progress.staged is None
