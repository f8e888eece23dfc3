"""Checkpoints whose saves end after their report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.checkpoints.test_checkpoints import PRELUDE, folder, prepare_storage
from tests.agent.checkpoints.test_unfinished import told
from tests.agent.workers import start
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

SAVES_LATER = (
    PRELUDE
    + """
def saves_later(step, ends):
    directory = trainrun.staging_directory()
    def write():
        (directory / f"rank{RANK}.tmp").write_bytes(b"weights")
        wait_for(f"go-{step}")
        ends()
        (directory / f"rank{RANK}.tmp").rename(directory / f"rank{RANK}.bin")
    trainrun.report({"loss": 0.5}, step=step, checkpoint=directory, after=write)
def fails():
    raise OSError("no quota left")
"""
)


def test_a_checkpoint_waits_for_the_save_of_a_rank_that_trains_on(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        SAVES_LATER + "saves_later(1, lambda: None) if RANK else save(1, 'rank0.bin')\n"
        "trainrun.report(step=2); time.sleep(600)",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    state = operator.until(lambda s: s.steps == (2, 2))
    assert [(s.step, s.ranks, s.complete) for s in state.staged] == [(1, (0,), False)]
    assert state.passed == 0
    (workers.folder / "go-1").touch()
    operator.until(lambda s: s.committed and s.committed.id.step == 1)
    saved = sorted(path.name for path in (folder(workers, 1) / "worker-00000").iterdir())
    assert saved == ["rank0.bin", "rank1.bin"]


@pytest.mark.case("storage", "An asynchronous save fails", counted="never")
def test_a_failed_save_costs_all_ranks_that_checkpoint_and_no_other(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(
        SAVES_LATER + "saves_later(1, fails) if RANK else save(1, 'rank0.bin')\n"
        "saves_later(2, lambda: None); time.sleep(600)",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    (workers.folder / "go-1").touch()
    state = operator.until(told)
    assert told(state) == (
        "no rank will have a checkpoint of step 1, since the save of rank 1 failed: OSError: no "
        "quota left"
    )
    assert state.dropped == (1,)
    (workers.folder / "go-2").touch()
    state = operator.until(lambda s: s.committed and s.committed.id.step == 2)
    assert told(state) == ""
    assert not folder(workers, 1).exists()


def test_the_checkpoint_of_a_rank_that_is_killed_while_it_saves_is_never_committed(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    worker = workers.start(
        SAVES_LATER + "saves_later(1, lambda: os.kill(os.getpid(), 9)) if RANK else "
        "save(1, 'rank0.bin')\n"
        "trainrun.report(step=2); wait_for('end')",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    operator.until(lambda s: s.steps == (2, 2))
    (workers.folder / "go-1").touch()
    state = operator.until(lambda s: s.exits)
    (workers.folder / "end").touch()
    state = operator.until(lambda s: len(s.exits) == 2)
    assert [(s.step, s.complete) for s in state.staged] == [(1, False)]
    assert not folder(workers, 1).exists()
    worker.terminate()
    eventually(lambda: worker.process.poll() is not None)
    assert not folder(workers, 1).exists()
