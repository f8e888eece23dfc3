"""Staging, uploading, committing and handing out checkpoints."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import start
from tests.support.eventually import eventually
from trainrun.checkpoint.ownership import BeatWatch, release
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.agent_state import Rechecked
from trainrun.contract.answer import Exit, Hold, OpenStep, Recheck, ResolveRequest, RunSettings
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

PRELUDE = """
import os, time, trainrun
from pathlib import Path
RANK = int(os.environ["RANK"])
def save(step, name="model.bin", content=b"abc", **more):
    directory = trainrun.staging_directory()
    (directory / name).write_bytes(content)
    trainrun.report({"step": step}, step=step, checkpoint=directory, **more)
def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)
"""
SAVE_THREE = PRELUDE + "for s in (1,2,3): save(s); print('saved', s, flush=True)\ntime.sleep(600)"


def folder(workers: Workers, step: int, attempt: int = 1) -> Path:
    return workers.storage / f"run/checkpoints/{CheckpointId(attempt=attempt, step=step).name}"


def prepare_storage(workers: Workers) -> None:
    """As a resolver leaves it."""
    workers.storage.mkdir(exist_ok=True)


def forget_kept_files(workers: Workers) -> None:
    """As on a node that did not store them."""
    cache = workers.folder / "cache"
    eventually(lambda: [*cache.rglob("model.bin")], what="kept files")
    shutil.rmtree(cache)


def test_ranks_of_one_worker_bring_one_merged_checkpoint(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(PRELUDE + "save(5, f'rank{RANK}.bin')", processes_per_worker=2)
    operator.order(start(per_worker=2))
    state = operator.until(lambda s: s.committed)
    assert state.committed is not None
    assert state.committed.id == CheckpointId(attempt=1, step=5)
    assert state.committed.size_bytes == 6
    manifest = json.loads((folder(workers, 5) / "manifest.json").read_text())
    assert [item["name"] for item in manifest["files"]] == ["rank0.bin", "rank1.bin"]


def test_a_worker_without_files_marks_only_the_steps_that_are_open(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(PRELUDE + "for s in (1,2,3): trainrun.report(step=s)", slot=1)
    operator.order(start(workers=2), steps=(OpenStep(step=2),))
    state = operator.until(lambda s: any(e.uploaded for e in s.staged), worker="run-1-1")
    [entry] = state.staged
    assert (entry.step, entry.ranks, entry.complete) == (2, (), True)
    assert [path.name for path in folder(workers, 2).iterdir()] == ["worker-00001.done.json"]
    assert not folder(workers, 1).exists()
    assert not folder(workers, 3).exists()


def test_slot_0_commits_when_it_hears_that_every_worker_is_done(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    for slot in (0, 1):
        workers.start(PRELUDE + "save(4, f'rank{RANK}.bin'); time.sleep(600)", slot=slot)
    operator.order(start(workers=2))
    for slot in (0, 1):
        operator.until(lambda s: s.staged and s.staged[0].uploaded, worker=f"run-{slot}-1")
    assert operator.state().committed is None  # type: ignore[union-attr]
    operator.also(steps=(OpenStep(step=4, slots=(0, 1)),))
    state = operator.until(lambda s: s.committed)
    assert state.committed is not None
    assert state.committed.id.step == 4
    assert state.staged == ()
    assert (folder(workers, 4) / "manifest.json").exists()


def test_whole_commits_at_once_without_the_others(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        PRELUDE + "if RANK == 0: save(4, whole=True)\ntime.sleep(600)", processes_per_worker=2
    )
    operator.order(start(workers=8, per_worker=2))
    state = operator.until(lambda s: s.committed)
    assert state.committed is not None
    assert state.committed.id.step == 4


@pytest.mark.case(
    "script", "Two ranks bring one file name with different content", counted="the run fails"
)
def test_two_ranks_with_one_file_name_are_a_fatal_problem_that_names_both(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        PRELUDE + "save(4, content=str(RANK).encode()); time.sleep(600)", processes_per_worker=2
    )
    operator.order(start(per_worker=2))
    state = operator.until(lambda s: s.fatal)
    assert state.fatal is not None
    assert state.fatal.type == "CheckpointConflict"
    assert "model.bin" in state.fatal.message
    assert "rank 0" in state.fatal.message
    assert "1" in state.fatal.message
    assert "whole=True" in state.fatal.message


@pytest.mark.case("storage", "Another run takes the storage over", counted="the run fails")
def test_a_run_whose_storage_was_taken_over_does_not_end_as_succeeded(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(PRELUDE + "wait_for('go'); save(5)")
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    operator.until(lambda s: s.spawned is not None)
    run = RunStore(open_store(workers.storage.as_uri()), "run")
    release(run, uid="uid-1")
    taken = resolve(run, ResolveRequest(attempt=2), uid="uid-2", watch=BeatWatch())
    assert taken.outcome == "Resolved"
    (workers.folder / "go").touch()
    state = operator.until(lambda s: s.fatal)
    assert state.committed is None
    assert state.fatal is not None
    assert (state.fatal.type, state.fatal.reason) == ("StorageLost", "StorageLost")
    assert "attempt 2 in file://" in state.fatal.message
    operator.order(Exit(succeeded=True))
    assert worker.code() == 0
    worker.shows("now belongs to TrainRun uid uid-2")
    assert not (workers.storage / "run/finished.json").exists()


def test_report_waits_while_the_backlog_is_full_and_the_wait_is_booked_as_stall(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    # The folder for storage is missing: nothing can be uploaded.
    worker = workers.start(
        SAVE_THREE,
        settings=RunSettings(max_pending=2),
    )
    operator.order(start())
    state = operator.until(lambda s: len(s.staged) == 2 and s.stall > 0)
    assert [entry.uploaded for entry in state.staged] == [False, False]
    worker.shows("saved 2")
    assert "saved 3" not in worker.output
    operator.until(lambda s: s.problems)
    prepare_storage(workers)
    worker.shows("saved 3")
    state = operator.until(lambda s: s.committed and s.committed.id.step == 3)
    assert state.stall > 0
    assert state.problems == ()


def test_steps_that_the_operator_drops_make_room_and_are_never_marked(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        SAVE_THREE,
        settings=RunSettings(max_pending=2),
    )
    operator.order(start())
    operator.until(lambda s: len(s.staged) == 2)
    operator.also(drop=(1,))
    state = operator.until(lambda s: s.dropped and len(s.staged) == 2)
    assert state.dropped == (1,)
    assert [entry.step for entry in state.staged] == [2, 3]
    worker.shows("saved 3")
    prepare_storage(workers)
    operator.also(steps=(OpenStep(step=1), OpenStep(step=2)))
    operator.until(lambda s: s.committed and s.committed.id.step == 3)
    assert not folder(workers, 1).exists()


@pytest.mark.case("storage", "A script catches StagingFailed and goes on")
def test_a_rank_that_swallows_a_failed_staging_yields_no_checkpoint_without_its_part(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    worker = workers.start(
        PRELUDE + "import shutil\n"
        "if RANK == 1:\n"
        "    d = trainrun.staging_directory(); (d / 'part').write_bytes(b'1')\n"
        "    root = d.parent; mode = root.stat().st_mode; (root / 'step-000000000005').touch()\n"
        "    try: trainrun.report(step=5, checkpoint=d)\n"
        "    except trainrun.StagingFailed as error: print('swallowed', error, flush=True)\n"
        "else: save(5, 'rank0.bin')\n"
        "save(6, f'rank{RANK}.bin')",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    operator.until(lambda s: s.committed and s.committed.id.step == 6)
    worker.shows("swallowed")
    worker.shows("so no rank will have a checkpoint of this step")
    state = operator.state()
    assert state is not None
    assert state.dropped == (5,)
    assert not (folder(workers, 5) / "manifest.json").exists()


@pytest.mark.case("storage", "The store is unreachable while training")
@pytest.mark.case("storage", "The store refuses while training")
def test_an_unreachable_store_is_a_problem_and_not_an_end(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(PRELUDE + "save(1); time.sleep(600)")
    operator.order(start())
    state = operator.until(lambda s: s.problems)
    [problem] = state.problems
    assert problem.type == "StorageUnavailable"
    assert str(workers.storage) in problem.message
    assert state.phase == "Running"
    prepare_storage(workers)
    operator.until(lambda s: s.committed and not s.problems)


def test_a_hold_order_finishes_the_uploads_that_it_names_and_no_others(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(PRELUDE + "save(1); save(2); print('up', flush=True); time.sleep(600)")
    operator.order(start())
    operator.until(lambda s: len(s.staged) == 2)
    operator.order(Hold(attempt=2, flush=(2,), flush_seconds=600))
    operator.until(lambda s: s.phase == "Flushing")
    prepare_storage(workers)
    state = operator.until(lambda s: s.phase == "Idle")
    assert state.committed is not None
    assert state.committed.id.step == 2
    assert not folder(workers, 1).exists()


def test_uploads_that_take_too_long_are_given_up(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(PRELUDE + "save(1); time.sleep(600)")
    operator.order(start())
    operator.until(lambda s: s.staged)
    operator.order(Hold(attempt=2, flush=(1,), flush_seconds=0.3))
    operator.until(lambda s: s.phase == "Idle" and s.exits)
    worker.shows("took too long: given up")
    operator.order(Hold(attempt=2, flush=(1,), offer=True))
    operator.until(lambda s: s.offer)
    assert worker.output.count("took too long: given up") == 1


def test_nothing_is_written_under_an_attempt_once_a_later_one_was_started(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(PRELUDE + "save(1); time.sleep(600)")
    operator.order(start())
    operator.until(lambda s: s.staged)
    operator.order(start(2))
    operator.until(lambda s: s.attempt == 2 and s.staged)
    prepare_storage(workers)
    operator.until(lambda s: s.committed)
    assert not folder(workers, 1, attempt=1).exists()
    staging = workers.folder / "node-0/staging"
    eventually(lambda: [path.name for path in staging.iterdir()] == ["attempt-2"])


def test_a_checkpoint_is_handed_to_the_processes_of_the_next_attempt(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    worker = workers.start(
        PRELUDE + "checkpoint = trainrun.get_checkpoint()\n"
        "if checkpoint is None: save(5, content=b'five', metadata={'epoch': [1]})\n"
        "else:\n"
        "    with checkpoint.as_directory() as d: print(checkpoint.step, checkpoint.metrics,\n"
        "        checkpoint.metadata, (Path(d) / 'model.bin').read_bytes())\n"
    )
    operator.order(start())
    state = operator.until(lambda s: s.committed)
    assert state.committed is not None
    operator.order(start(2, resume=state.committed.id))
    worker.shows("5 {'step': 5} {'epoch': [1]} b'five'")


SAVE_ONCE = (
    PRELUDE + "checkpoint = trainrun.get_checkpoint()\n"
    "if checkpoint is None: save(5, content=b'five')\n"
    "else:\n"
    "    with checkpoint.as_directory() as d: print('read', (Path(d) / 'model.bin').read_bytes())\n"
)


@pytest.mark.case(
    "storage",
    "A bit has flipped in a checkpoint's file",
    counted="maxFailures after three in a row",
)
def test_what_reads_wrongly_on_one_node_is_set_aside_once_another_has_read_it(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    worker = workers.start(SAVE_ONCE)
    operator.order(start())
    operator.until(lambda s: s.committed and s.exits)
    (folder(workers, 5) / "worker-00000/model.bin").write_bytes(b"fivE")
    forget_kept_files(workers)
    resume = CheckpointId(attempt=1, step=5)
    operator.order(start(2, resume=resume))
    state = operator.until(lambda s: s.suspect)
    assert state.suspect is not None
    assert (state.suspect.id, state.suspect.files) == (resume, ("worker-00000/model.bin",))
    assert "its content changed" in state.suspect.message
    assert (state.damaged, state.phase) == (None, "Running")
    assert not (workers.storage / "run/bad").exists()
    # Another agent, as on another node.
    again = Recheck(attempt=2, id=resume, files=state.suspect.files)
    workers.start("pass", slot=1, cache=str(workers.folder / "other-cache"))
    operator.order(Hold(attempt=2), worker="run-1-1", recheck=again)
    done = operator.until(lambda s: s.rechecked, worker="run-1-1").rechecked
    assert done is not None
    assert (done.recheck, done.good) == (again, False)
    assert "model.bin: CRC32" in done.message
    assert (workers.storage / f"run/bad/{resume.name}.json").exists()
    assert "read b" not in worker.output


def test_what_reads_well_on_another_node_stays_good(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(SAVE_ONCE)
    operator.order(start())
    operator.until(lambda s: s.committed and s.exits)
    resume = CheckpointId(attempt=1, step=5)
    again = Recheck(attempt=2, id=resume, files=("worker-00000/model.bin", "manifest.json"))
    operator.order(Hold(attempt=2), recheck=again)
    done = operator.until(lambda s: s.rechecked).rechecked
    assert done == Rechecked(recheck=again, good=True)
    assert not (workers.storage / "run/bad").exists()
    assert list((workers.folder / "cache").glob("again-*")) == []


def test_a_damaged_resume_point_is_told_set_aside_and_an_error_in_the_process(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    worker = workers.start(SAVE_ONCE)
    operator.order(start())
    operator.until(lambda s: s.committed and s.exits)
    (folder(workers, 5) / "worker-00000/model.bin").write_bytes(b"fiv")  # as a listing shows
    forget_kept_files(workers)
    resume = CheckpointId(attempt=1, step=5)
    operator.order(start(2, resume=resume))
    state = operator.until(lambda s: s.attempt == 2 and s.exits)
    assert state.damaged is not None
    assert state.damaged.id == resume
    assert "model.bin" in state.damaged.message
    worker.shows("is damaged")
    assert (workers.storage / f"run/bad/{resume.name}.json").exists()
    operator.order(Hold(attempt=3, resolve=ResolveRequest(attempt=3)))
    found = operator.until(lambda s: s.resolution).resolution
    assert found is not None
    assert found.outcome == "NoGoodCheckpoint"


def test_the_initial_checkpoint_is_handed_out(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/w.bin").write_bytes(b"pretrained")
    worker = workers.start(
        PRELUDE + "with trainrun.get_initial_checkpoint().as_directory() as d:\n"
        "    print((Path(d) / 'w.bin').read_bytes())",
        initial_from=f"file://{tmp_path}/weights",
    )
    operator.order(start())
    worker.shows("b'pretrained'")


def test_a_rank_that_starts_below_its_resume_step_is_told(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(PRELUDE + "trainrun.report(step=3); time.sleep(600)")
    operator.order(start(2, resume=CheckpointId(attempt=1, step=40)))
    state = operator.until(lambda s: s.problems)
    [problem] = state.problems
    assert problem.type == "ResumeIgnored"
    assert problem.message == (
        "the first report of rank 0 is step 3, but it was handed the checkpoint of step 40: the "
        "script started over. Load it with trainrun.get_checkpoint() and continue at its step + 1"
    )


def test_of_a_script_that_loads_and_counts_anew_it_was_said_that_it_starts_over(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        PRELUDE + "checkpoint = trainrun.get_checkpoint()\n"
        "if checkpoint is None: save(40)\n"
        "else:\n"
        "    with checkpoint.as_directory(): trainrun.report(step=3); time.sleep(600)\n"
    )
    operator.order(start())
    state = operator.until(lambda s: s.committed)
    assert state.committed is not None
    operator.order(start(2, resume=state.committed.id))
    [problem] = operator.until(lambda s: s.problems).problems
    assert problem.type == "StepsCountAnew"
    assert problem.message == (
        "the first report of rank 0 is step 3, but it was handed the checkpoint of step 40: the "
        "script loaded it but restarted its step count. Report a step that grows over all epochs"
    )


def test_files_that_were_staged_and_not_reported_are_not_brought(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        PRELUDE + "d = trainrun.staging_directory(); (d / 'x').write_bytes(b'1')\n"
        "d.rename(d.with_name('step-000000000007'))\n"
        "trainrun.report(step=8)"
    )
    operator.order(start())
    state = operator.until(lambda s: s.exits)
    assert state.staged == ()
    assert not (workers.storage / "run").exists()


def test_old_checkpoints_are_deleted_and_the_newest_kept(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(PRELUDE + "for s in range(1, 7): save(s)", settings=RunSettings(keep=2))
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    operator.until(lambda s: s.committed and s.committed.id.step == 6)

    def steps() -> list[str]:
        found = (workers.storage / "run/checkpoints").glob("*/manifest.json")
        return sorted(path.parent.name[:14] for path in found)

    eventually(lambda: steps() == ["step-000000005", "step-000000006"], what=str(steps()))


@pytest.mark.parametrize("ending", ["exit", "hold"])
def test_metrics_are_kept_in_the_store(
    operator: OperatorStandIn, workers: Workers, ending: str
) -> None:
    worker = workers.start(
        PRELUDE + "for s in (1, 2): trainrun.report({'loss': float('nan')}, step=s)"
    )
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    operator.until(lambda s: s.exits)
    written = workers.storage / "run/metrics/000001-00001.jsonl"
    if ending == "hold":
        operator.order(Hold(attempt=2))
        eventually(written.exists, what="metrics of the attempt that ended")
    operator.order(Exit())
    assert worker.code() == 0
    lines = written.read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert json.loads(lines[0])["metrics"] == {"loss": {"float": "NaN"}}


def test_metrics_from_just_before_a_crash_are_kept_though_the_next_attempt_starts_at_once(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(PRELUDE + "trainrun.report({'loss': 1.0}, step=1); raise SystemExit(1)")
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    operator.until(lambda s: s.exits)
    operator.order(start(attempt=2))
    operator.until(lambda s: s.attempt == 2 and s.exits)
    metrics = workers.storage / "run/metrics"
    for name in ("000001-00001.jsonl", "000002-00001.jsonl"):
        eventually((metrics / name).exists, what=name)


@pytest.mark.slow
def test_a_store_that_lost_what_was_committed_is_told_again_and_again(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("pass")
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    (workers.storage / "run").rename(workers.storage / "lost")  # at once, whatever is written there
    committed = CheckpointId(attempt=1, step=5)
    operator.order(Hold(attempt=2, resolve=ResolveRequest(attempt=2, committed=committed)))
    state = operator.until(lambda s: s.resolution and s.resolution.attempt == 2)
    assert state.resolution is not None
    assert state.resolution.outcome == "NoGoodCheckpoint"
    before = operator.requests
    eventually(lambda: operator.requests > before + 2, what="it is asked again")


def test_a_rank_that_says_nothing_about_anothers_step_is_told_until_it_does(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        PRELUDE + "if RANK == 0: save(4)\nelse:\n    wait_for('go'); trainrun.report(step=4)\n"
        "    wait_for('on'); trainrun.report(step=5)\n"
        "time.sleep(600)",
        processes_per_worker=2,
        checkpoint_patience=0.2,
    )
    operator.order(start(per_worker=2))
    [problem] = operator.until(lambda s: s.problems).problems
    assert problem.type == "CheckpointWaiting"
    assert problem.message.startswith("the checkpoint of step 4 is waiting: rank 0 brought")
    assert "rank 1 has not reported this step or a later one" in problem.message
    (workers.folder / "go").touch()
    [problem] = operator.until(lambda s: "without" in str(s.problems)).problems
    assert problem.message.startswith("the checkpoint of step 4 is waiting: rank 0 brought")
    assert "rank 1 has reported the step without files and nothing since" in problem.message
    (workers.folder / "on").touch()
    operator.until(lambda s: s.committed and not s.problems)


def test_files_that_follow_the_report_of_their_step_are_part_of_its_checkpoint(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        PRELUDE + "if RANK == 1: trainrun.report(step=4); wait_for('go')\n"
        "save(4, f'rank{RANK}.bin')\ntime.sleep(600)",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    state = operator.until(lambda s: s.staged and s.steps == (4, 4))
    assert [(entry.ranks, entry.complete) for entry in state.staged] == [((0,), False)]
    (workers.folder / "go").touch()
    operator.until(lambda s: s.committed)
    manifest = json.loads((folder(workers, 4) / "manifest.json").read_text())
    assert [item["name"] for item in manifest["files"]] == ["rank0.bin", "rank1.bin"]


def test_an_empty_directory_keeps_no_checkpoint_waiting(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        PRELUDE + "if RANK == 0: save(4)\n"
        "else: trainrun.report(step=4, checkpoint=trainrun.staging_directory())\n"
        "time.sleep(600)",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    state = operator.until(lambda s: s.committed)
    assert state.committed is not None
    assert state.committed.id.step == 4


def test_a_restart_in_place_reads_no_files_from_the_store(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    read = """
resume = trainrun.get_checkpoint()
if resume is None:
    save(5)
else:
    with resume.as_directory() as directory:
        print("read", (Path(directory) / "model.bin").read_bytes(), flush=True)
    with resume.as_directory(include=["*.bin"]) as directory:
        print("again", os.listdir(directory), flush=True)
    try:
        with resume.as_directory(include=["*.pt"]):
            pass
    except trainrun.TrainRunError as error:
        print(error, flush=True)
time.sleep(600)
"""
    worker = workers.start(PRELUDE + read)
    operator.order(start())
    operator.until(lambda s: s.committed)
    (folder(workers, 5) / "worker-00000/model.bin").unlink()
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle" and s.exits)
    operator.order(start(2, resume=CheckpointId(attempt=1, step=5)))
    worker.shows("read b'abc'")
    worker.shows("again ['model.bin']")
    worker.shows("has no file that matches include=['*.pt']")
