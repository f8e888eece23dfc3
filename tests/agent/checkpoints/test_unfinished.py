"""Checkpoints that were reported before their save had ended: no run resumes from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.agent.checkpoints.test_checkpoints import PRELUDE, folder, prepare_storage
from tests.agent.workers import start
from tests.support.eventually import eventually
from trainrun.contract.answer import OpenStep

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn
    from trainrun.contract.agent_state import AgentState

TWO_FILES = (
    PRELUDE
    + """
import threading
directory, first = trainrun.staging_directory(), threading.Event()
def save():
    (directory / "model.bin").write_bytes(b"weights")
    first.set()
    wait_for("go")
    (directory / "optimizer.bin").write_bytes(b"moments")
thread = threading.Thread(target=save)
thread.start()
first.wait()
trainrun.report(step=1, checkpoint=directory)
thread.join()
print("saved", flush=True)
"""
)


def told(state: AgentState) -> str:
    return next((it.message for it in state.problems if it.type == "CheckpointUnfinished"), "")


def set_aside(workers: Workers, step: int) -> str:
    """Why the checkpoint of a step is never resumed from; empty: it may be."""
    found = list(workers.storage.glob(f"run/bad/step-{step:09d}-*"))
    reason: str = json.loads(found[0].read_text())["reason"] if found else ""
    return reason


@pytest.mark.case(
    "storage", "A script reports a directory that is still being written", counted="maxFailures"
)
def test_a_checkpoint_whose_second_file_comes_later_is_set_aside_and_the_script_is_told(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """ "Good" checkpoints had one file of two, and every restart died of that."""
    prepare_storage(workers)
    worker = workers.start(TWO_FILES + "wait_for('end'); trainrun.report(step=2)")
    operator.order(start())
    operator.until(lambda s: s.committed and s.committed.id.step == 1)
    (workers.folder / "go").touch()
    state = operator.until(told)
    assert told(state) == (
        "the checkpoint of step 1 was reported before its save had ended, since optimizer.bin "
        "appeared later, so no run resumes from it. Pass the end of its save as report(..., "
        "after=...): the future of async_save() or of ThreadPoolExecutor.submit(), or "
        "wait_until_finished of orbax"
    )
    eventually(lambda: set_aside(workers, 1) == told(state))
    (workers.folder / "end").touch()
    worker.shows("CheckpointUnfinished: the checkpoint of step 1 was reported before its save")


def test_a_late_file_of_a_rank_that_had_none_yet_costs_the_checkpoint_of_all(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """A thread began to save when its empty directory was reported."""
    prepare_storage(workers)
    workers.start(
        PRELUDE + "if RANK == 0: save(5, 'rank0.bin')\n"
        "else:\n"
        "    d = trainrun.staging_directory(); trainrun.report(step=5, checkpoint=d)\n"
        "    wait_for('go'); (d / 'rank1.bin').write_bytes(b'1')\n"
        "time.sleep(600)",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    operator.until(lambda s: s.committed and s.committed.id.step == 5)
    (workers.folder / "go").touch()
    operator.until(told)
    eventually(lambda: "rank1.bin appeared later" in set_aside(workers, 5))


def test_a_part_that_was_torn_before_anything_was_stored_is_never_stored(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """The run is not told that what it has committed is damaged: it has committed nothing."""
    workers.start(TWO_FILES + "time.sleep(600)")
    operator.order(start())
    operator.until(lambda s: s.staged)
    (workers.folder / "go").touch()
    state = operator.until(told)
    assert state.dropped == (1,)
    prepare_storage(workers)
    assert not set_aside(workers, 1)
    assert not folder(workers, 1).exists()


@pytest.mark.case("storage", "Files change after their report")
def test_files_that_change_after_their_report_are_not_committed(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """Through a memory map, which has no descriptor."""
    worker = workers.start(
        PRELUDE + "import ctypes, mmap\n"
        "directory = trainrun.staging_directory()\n"
        "(directory / 'model.bin').write_bytes(bytes(4096))\n"
        "file = os.open(directory / 'model.bin', os.O_RDWR)\n"
        "libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n"
        "page = libc.mmap(None, 4096, mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)\n"
        "os.close(file)\n"
        "trainrun.report(step=1, checkpoint=directory)\n"
        "time.sleep(0.05)\n"
        "ctypes.memset(page, 1, 4096); libc.msync(ctypes.c_void_p(page), 4096, 4)\n"
        "print('changed', flush=True)\n"
        "wait_for('go'); save(2); time.sleep(600)",
    )
    operator.order(start())
    worker.shows("changed")
    prepare_storage(workers)
    state = operator.until(told)
    assert "files of rank 0 for step 1 changed after they were reported, so they are not" in told(
        state
    )
    assert not (folder(workers, 1) / "manifest.json").exists()
    (workers.folder / "go").touch()
    state = operator.until(lambda s: s.committed and s.committed.id.step == 2)
    assert told(state) == ""


@pytest.mark.case(
    "script", "Two ranks bring one file name with different content", counted="the run fails"
)
def test_a_file_of_two_sizes_costs_one_checkpoint_and_the_second_time_the_run(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """A file that another rank still wrote failed the run at once, whatever its budget.

    Not so in directories of `staging_directory()`, which no two ranks share.
    """
    prepare_storage(workers)
    workers.start(
        PRELUDE + "for step in (1, 2, 3, 4):\n"
        "    wait_for(f'go-{step}'); mine = Path(f'mine-{RANK}-{step}'); mine.mkdir()\n"
        "    (mine / 'model.bin').write_bytes(bytes(1 + RANK * (step != 2)))\n"
        "    trainrun.report(step=step, checkpoint=mine)\n"
        "time.sleep(600)",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    (workers.folder / "go-1").touch()
    state = operator.until(told)
    assert (state.fatal, state.dropped) == (None, (1,))
    assert told(state) == (
        "checkpoint of step 1: rank 0 and rank 1 both saved 'model.bin' with different content "
        "(1 and 2 bytes); give each rank's file its own name, such as model-rank{rank}.pt; where "
        "the ranks save into one folder, call torch.distributed.barrier() before they report it, "
        "or report a separate directory from each rank. whole=True is for a rank that saves "
        "everything itself"
    )
    (workers.folder / "go-2").touch()
    operator.until(lambda s: s.committed and not told(s))
    (workers.folder / "go-3").touch()
    operator.until(told)
    (workers.folder / "go-4").touch()
    state = operator.until(lambda s: s.fatal)
    assert state.fatal is not None
    assert state.fatal.type == "CheckpointConflict"


def test_nobody_waits_for_the_commit_of_a_file_that_two_workers_brought_in_two_sizes(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """A run whose last checkpoint it was would never have ended."""
    prepare_storage(workers)
    for slot in (0, 1):
        workers.start(
            PRELUDE + "mine = Path(f'mine-{RANK}'); mine.mkdir()\n"
            "(mine / 'model.bin').write_bytes(bytes(1 + RANK))\n"
            "trainrun.report(step=4, checkpoint=mine); time.sleep(600)",
            slot=slot,
        )
    operator.order(start(workers=2))
    for slot in (0, 1):
        operator.until(lambda s: s.staged and s.staged[0].uploaded, worker=f"run-{slot}-1")
    operator.also(steps=(OpenStep(step=4, slots=(0, 1)),))
    state = operator.until(told)
    assert (state.dropped, state.staged, state.fatal) == ((4,), (), None)
    assert not set_aside(workers, 4)
