"""checkpoint.uploadEvery on a worker: what is kept on its disk, and what is uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.agent.checkpoints.test_checkpoints import PRELUDE, folder, prepare_storage
from tests.agent.workers import start
from tests.support.eventually import eventually
from trainrun.contract.answer import Exit, Hold, OpenStep, RunSettings

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

SAVE_FIVE = PRELUDE + "for s in range(1, 6): save(s); print('saved', s, flush=True)\n"
WAIT = "time.sleep(600)"
KEEPS = RunSettings(max_pending=1, upload_every=600.0)
"""Four checkpoints have room."""


def in_store(workers: Workers) -> list[int]:
    """Committed steps."""
    found = (workers.storage / "run/checkpoints").glob("*/manifest.json")
    return sorted(int(path.parent.name[5:14]) for path in found)


def test_what_is_not_due_stays_on_the_disk_and_blocks_no_report(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    script = PRELUDE + "save(1); save(2); save(3); wait_for('go'); save(4); wait_for('end')"
    workers.start(script, settings=KEEPS)
    operator.order(start(), settings=KEEPS)
    state = operator.until(lambda s: len(s.staged) == 3)
    assert [(entry.uploaded, entry.due) for entry in state.staged] == [(False, False)] * 3
    assert (state.stall < 1.0, in_store(workers)) == (True, [])

    operator.also(settings=KEEPS, upload=(2,), drop=(1,))
    state = operator.until(lambda s: s.committed)
    assert in_store(workers) == [2]
    assert [entry.step for entry in state.staged] == [3]
    (workers.folder / "go").touch()
    state = operator.until(lambda s: len(s.staged) == 2)
    assert [entry.uploaded for entry in state.staged] == [False, False]
    (workers.folder / "end").touch()


def test_a_step_that_was_named_once_stays_due(operator: OperatorStandIn, workers: Workers) -> None:
    # The folder for storage is missing: nothing can be uploaded.
    workers.start(PRELUDE + "save(1); save(2); " + WAIT, settings=KEEPS)
    operator.order(start(), settings=KEEPS)
    operator.until(lambda s: len(s.staged) == 2)
    operator.also(settings=KEEPS, upload=(1,))
    operator.until(lambda s: s.staged[0].due)
    operator.also(settings=KEEPS)
    prepare_storage(workers)
    operator.until(lambda s: s.committed and s.committed.id.step == 1)
    assert in_store(workers) == [1]


def test_a_disk_that_nobody_clears_holds_four_and_the_oldest_goes(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(SAVE_FIVE + WAIT, settings=KEEPS)
    operator.order(start(), settings=KEEPS)
    state = operator.until(lambda s: len(s.staged) == 4 and s.stall > 0)
    worker.shows("saved 4")
    assert "saved 5" not in worker.output, "the disk is full, and the store is away"
    assert [problem.type for problem in state.problems] in ([], ["StorageUnavailable"])
    prepare_storage(workers)
    worker.shows("saved 5")
    eventually(
        lambda: in_store(workers) == [1, 2], what="the oldest is stored while four are there"
    )


def test_a_worker_completes_a_step_of_which_another_has_stored_its_part(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(PRELUDE + "save(1); save(2); " + WAIT, settings=KEEPS, slot=1)
    operator.order(start(workers=2), settings=KEEPS)
    operator.until(lambda s: len(s.staged) == 2, worker="run-1-1")
    operator.also(settings=KEEPS, steps=(OpenStep(step=1), OpenStep(step=2, slots=(0,))))
    operator.until(lambda s: any(e.uploaded for e in s.staged), worker="run-1-1")
    assert (folder(workers, 2) / "worker-00001.done.json").exists()
    assert not folder(workers, 1).exists()


def test_a_hold_uploads_the_newest_that_it_names(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    workers.start(PRELUDE + "save(1); save(2); " + WAIT, settings=KEEPS)
    operator.order(start(), settings=KEEPS)
    operator.until(lambda s: len(s.staged) == 2)
    operator.order(Hold(attempt=2, flush=(2,), flush_seconds=600), settings=KEEPS)
    operator.until(lambda s: s.phase == "Idle" and s.committed)
    assert in_store(workers) == [2]


def test_a_worker_that_is_told_to_leave_stores_the_newest_first(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    worker = workers.start(PRELUDE + "save(1); save(2); " + WAIT, settings=KEEPS)
    operator.order(start(), settings=KEEPS)
    operator.until(lambda s: len(s.staged) == 2)
    operator.order(Exit(code=3), settings=KEEPS)
    assert worker.code() == 3
    assert in_store(workers) == [2]
