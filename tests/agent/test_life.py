"""One worker's life: starts, holds, restarts, leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.agent.workers import start
from trainrun.checkpoint.logs import read_logs, stored_logs
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.answer import Exit, Hold, ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

SAVE_TWICE = """
import trainrun
for step in (1, 2):
    directory = trainrun.staging_directory()
    (directory / "model.bin").write_bytes(b"x" * 100 * step)
    trainrun.report({"loss": 1.0 / step}, step=step, checkpoint=directory)
print("saved")
"""

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def test_an_attempt_is_resolved_started_saved_and_committed(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(SAVE_TWICE)
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    ready = operator.until(lambda s: s.resolution and s.offer)
    assert ready.resolution is not None
    assert ready.resolution.outcome == "Resolved"
    assert ready.resolution.resume is None
    assert ready.phase == "Idle"
    operator.order(start())
    ended = operator.until(lambda s: s.exits and s.committed and s.committed.id.step == 2)
    assert ended.exits[0].code == 0
    assert ended.steps == (2,)
    assert ended.metrics == {"loss": 0.5}
    worker.shows("[rank 0] saved")
    folder = workers.storage / "run/checkpoints/step-000000002-attempt-1"
    assert (folder / "manifest.json").exists()
    assert (folder / "worker-00000/model.bin").read_bytes() == b"x" * 200
    operator.order(Exit(code=0, succeeded=True))
    assert worker.code() == 0
    assert (workers.storage / "run/finished.json").exists()


def test_a_hold_order_kills_the_processes_at_once_and_a_start_order_starts_new_ones(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("import os,time; print(os.getpid(), flush=True); time.sleep(600)")
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    operator.order(Hold(attempt=2))
    held = operator.until(lambda s: s.phase == "Idle")
    assert held.attempt == 1
    assert held.exits[0].ordered
    assert held.exits[0].signal == 9
    operator.order(start(2, resume=CheckpointId(attempt=1, step=5)))
    again = operator.until(lambda s: s.attempt == 2)
    assert again.phase == "Running"
    assert again.exits == ()


def test_the_last_lines_of_each_attempt_are_stored_when_the_agent_leaves(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = (
        "import os, time; n = int(os.environ['TRAINRUN_ATTEMPT'])\n"
        "for i in range(300 * n): print('line', i, 'token=hunter2')\n"
        "print('done', flush=True)\n"
        "time.sleep(600 if n == 1 else 0)\n"
    )
    worker = workers.start(script)
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution and s.offer)
    operator.order(start())
    worker.shows("[rank 0] done")
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle")
    operator.order(start(2))
    operator.until(lambda s: s.attempt == 2 and s.exits)
    operator.order(Exit(code=0, succeeded=True))
    assert worker.code() == 0
    run = RunStore(open_store(workers.storage.as_uri()), "run")
    assert stored_logs(run) == [(1, 0), (2, 0)]
    ended, succeeded = read_logs(run, [(1, 0), (2, 0)])
    assert ended is not None
    assert succeeded is not None
    (first,), (second,) = ended.ranks, succeeded.ranks
    texts = [line.text for line in first.lines]
    assert texts == [*(f"line {i} token=***" for i in range(300)), "done"]
    assert (second.rank, second.dropped, len(second.lines)) == (0, 401, 200)
    assert second.lines[-1].text == "done"
