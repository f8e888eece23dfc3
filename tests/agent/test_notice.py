"""SIGTERM, the grace period, and leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import start
from tests.support.eventually import eventually
from trainrun.contract.answer import Exit, Hold, ResolveRequest, SaveOrder
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from tests.agent.workers import Worker, Workers
    from tests.support.operator_stand_in import OperatorStandIn

SAVE_WHEN_ASKED = """
import time, trainrun
step = 0
while True:
    step += 1
    if request := trainrun.should_save():
        directory = trainrun.staging_directory()
        (directory / "model.bin").write_bytes(b"abc")
        print("saving for", request.reason, "writer", request.writer_rank, flush=True)
        trainrun.report(step=step, checkpoint=directory)
        break
    trainrun.report(step=step)
    time.sleep(0.005)
"""

TRAP = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("got SIGTERM", flush=True))
print("up", flush=True)
time.sleep(600)
"""


def save_on_notice(operator: OperatorStandIn, worker: Worker, *, writer_rank: int) -> int:
    """Start the training, give notice, and have it save; returns the call of the save."""
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    calls = operator.until(lambda s: s.save.calls > 0).save.calls
    worker.terminate()
    operator.until(lambda s: s.notice)
    return order_save(operator, calls + 400, writer_rank=writer_rank)


def order_save(operator: OperatorStandIn, call: int, *, writer_rank: int = 0) -> int:
    """Both stages of the order to save at this call, which is returned."""
    operator.also(save=SaveOrder(stage="Prepare", call=call, reason="SIGTERM"))
    operator.until(lambda s: s.save.prepared == call)
    commit = SaveOrder(stage="Commit", call=call, reason="SIGTERM", writer_rank=writer_rank)
    operator.also(save=commit)
    return call


@pytest.mark.case(
    "nodes", "A worker gets a notice (SIGTERM, eviction, reclaim)", counted="maxPreemptions"
)
def test_sigterm_is_told_as_a_notice_and_not_passed_on(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(TRAP, grace_seconds=60)
    operator.order(start())
    worker.shows("up")
    worker.terminate()
    state = operator.until(lambda s: s.notice)
    assert state.notice is not None
    assert state.notice.reason == "SIGTERM"
    assert state.notice.remaining is not None
    assert 50 < state.notice.remaining <= 60
    assert state.phase == "Running"
    assert "got SIGTERM" not in worker.output


@pytest.mark.slow
def test_a_save_that_was_asked_for_is_staged_committed_and_told_as_such(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(SAVE_WHEN_ASKED, grace_seconds=60)
    call = save_on_notice(operator, worker, writer_rank=3)
    state = operator.until(lambda s: s.committed and s.exits)
    worker.shows("saving for SIGTERM writer 3")
    assert state.save.committed == call
    assert state.committed is not None
    assert state.committed.id == CheckpointId(attempt=1, step=call)
    assert state.staged[0].after_save
    assert state.exits[0].yielded


@pytest.mark.slow
def test_a_worker_that_saved_first_does_not_leave_while_the_others_save(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(SAVE_WHEN_ASKED, grace_seconds=60)
    call = save_on_notice(operator, worker, writer_rank=0)
    notice = operator.until(lambda s: s.committed and s.exits).notice
    assert notice is not None
    operator.until(lambda s: s.notice and s.notice.age > notice.age + 1, what="it stays")
    operator.order(Hold(attempt=2, flush=(call,), flush_seconds=10))
    assert worker.code() == 143


def test_a_call_that_has_passed_is_refused(operator: OperatorStandIn, workers: Workers) -> None:
    workers.start(SAVE_WHEN_ASKED)
    operator.order(start())
    operator.until(lambda s: s.save.calls > 5)
    operator.also(save=SaveOrder(stage="Prepare", call=3, reason="SIGTERM"))
    state = operator.until(lambda s: s.save.refused)
    assert (state.save.refused, state.save.refusals, state.save.prepared) == (3, 1, None)


@pytest.mark.slow
def test_finish_makes_an_exit_after_a_save_final(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(SAVE_WHEN_ASKED + "\ntrainrun.finish()")
    operator.order(start())
    order_save(operator, operator.until(lambda s: s.save.calls > 0).save.calls + 400)
    state = operator.until(lambda s: s.exits)
    assert state.finished
    assert not state.exits[0].yielded


def test_an_agent_under_notice_leaves_when_nothing_is_left_to_do(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("import time; time.sleep(600)", grace_seconds=600)
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    worker.terminate()
    operator.until(lambda s: s.notice)
    operator.order(Hold(attempt=2))
    assert worker.code() == 143
    last = operator.state()
    assert last is not None
    assert last.phase == "Idle"
    assert last.exits[0].ordered


@pytest.mark.slow
def test_the_training_is_stopped_just_before_the_grace_is_over(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("import time; time.sleep(600)", grace_seconds=3)
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    worker.terminate()
    assert worker.code() == 143
    last = operator.state()
    assert last is not None
    assert [end.signal for end in last.exits] == [9]


def test_uploads_under_way_are_finished_within_the_grace(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        "import trainrun\nd = trainrun.staging_directory(); (d / 'x').write_bytes(b'1')\n"
        "trainrun.report(step=1, checkpoint=d)",
        grace_seconds=600,
    )
    operator.order(start())
    operator.until(lambda s: s.exits and s.problems)  # the storage's folder is not there
    worker.terminate()
    operator.until(lambda s: s.notice)
    assert worker.process.poll() is None
    workers.storage.mkdir()
    assert worker.code() == 143
    name = CheckpointId(attempt=1, step=1).name
    assert (workers.storage / f"run/checkpoints/{name}/manifest.json").exists()


def test_a_second_sigterm_ends_the_agent_at_once(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(TRAP, grace_seconds=600)
    operator.order(start())
    worker.shows("up")
    worker.terminate()
    operator.until(lambda s: s.notice)
    worker.terminate()
    assert worker.code() == 143


def test_the_exit_of_slot_0_gives_the_storage_back(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("pass")
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(Exit())
    assert worker.code() == 0
    beat = (workers.storage / "run/owners/000001.beat").read_text()
    assert '"released":true' in beat


def test_a_worker_that_was_replaced_does_not_give_the_storage_away(
    operator: OperatorStandIn, workers: Workers
) -> None:
    old = workers.start("pass", worker="run-0-1")
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    workers.start("pass", worker="run-0-2", directory=str(workers.folder / "other"))
    operator.order(Hold(attempt=2, resolve=ResolveRequest(attempt=2)), worker="run-0-2")
    operator.until(lambda s: s.resolution, worker="run-0-2")
    operator.order(Exit(), worker="run-0-1")
    assert old.code() == 0
    beats = workers.storage / "run/owners/000001.beat"
    eventually(lambda: '"released":true' not in beats.read_text())


@pytest.mark.slow
def test_an_agent_under_notice_whose_run_is_gone_saves_what_it_has_and_leaves_before_the_grace(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        "import time, trainrun\nd = trainrun.staging_directory(); (d / 'x').write_bytes(b'1')\n"
        "trainrun.report(step=1, checkpoint=d); time.sleep(600)",
        grace_seconds=600,
    )
    operator.order(start())
    operator.until(lambda s: s.problems)  # the storage's folder is not there
    worker.terminate()
    operator.until(lambda s: s.notice)
    operator.status = 410
    worker.shows("this worker ends: ")
    workers.storage.mkdir()
    assert worker.code(timeout=40) == 143
    name = CheckpointId(attempt=1, step=1).name
    assert (workers.storage / f"run/checkpoints/{name}/manifest.json").exists()


@pytest.mark.slow
def test_a_worker_whose_run_was_deleted_leaves_its_storage_to_the_next_run_of_this_name(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("import time; time.sleep(600)", grace_seconds=600)
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    operator.status = 410
    assert worker.code() == 143
    assert '"released":true' in (workers.storage / "run/owners/000001.beat").read_text()
