"""All ranks save at the same call, or none, where the operator dies while they agree on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers, start
from tests.support.eventually import eventually
from trainrun.contract.agent_config import StorageConfig
from trainrun.contract.answer import Hold, ResolveRequest, SaveOrder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.operator_stand_in import OperatorStandIn
    from tests.support.s3_server import S3Server

TRAIN = """
import time, trainrun
from pathlib import Path
rank, step = trainrun.get_context().rank, 0
while True:
    step += 1
    if request := trainrun.should_save():
        print("saves at", step, "for", request.reason, "writer", request.writer_rank, flush=True)
        directory = trainrun.staging_directory()
        (directory / f"rank-{rank}").write_bytes(b"abc")
        trainrun.report(step=step, checkpoint=directory)
        break
    trainrun.report(step=step)
    Path(f"step-{rank}").write_text(str(step))
    time.sleep(%s)
"""
STEADY, FAST = 0.02, 0.001
"""Seconds of a step."""

CALLS = 300
"""So many ahead, an operator asks them to save."""


class Gang:
    """Two workers that train, and an operator that dies when the test says so."""

    def __init__(
        self,
        operator: OperatorStandIn,
        workers: Workers,
        *,
        steps: tuple[float, float] = (STEADY, STEADY),
        **more: object,
    ) -> None:
        self.operator = operator
        self.folder: Path = workers.folder
        workers.storage.mkdir()
        self.members = [
            workers.start(TRAIN % step, slot=slot, **more) for slot, step in enumerate(steps)
        ]
        operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)), worker="run-0-1")
        operator.until(lambda s: s.resolution)
        operator.order(start(workers=2))
        self.call = max(self._calls(slot) for slot in range(2)) + CALLS

    def _calls(self, slot: int) -> int:
        state = self.operator.until(lambda s: s.save.calls > 0, worker=f"run-{slot}-1")
        return state.save.calls

    def prepare(self, slot: int) -> None:
        """Only this worker is asked."""
        name = f"run-{slot}-1"
        order = SaveOrder(stage="Prepare", call=self.call, reason="SIGTERM", writer_rank=1)
        self.operator.also(worker=name, save=order)
        self.operator.until(lambda s: s.save.prepared == self.call, worker=name)

    def step(self, slot: int) -> int:
        return int((self.folder / f"step-{slot}").read_text() or 0)

    def all_save(self) -> None:
        for worker in self.members:
            worker.shows(f"saves at {self.call} for SIGTERM writer 1", timeout=60)


@pytest.mark.case("operator", "The operator dies while the agents agree on a should_save() call")
@pytest.mark.slow
def test_ranks_that_have_prepared_save_together_though_the_operator_died_before_the_commit(
    operator: OperatorStandIn, workers: Workers
) -> None:
    gang = Gang(operator, workers)
    gang.prepare(0)
    gang.prepare(1)
    operator.status = 503
    gang.all_save()


@pytest.mark.slow
def test_a_worker_that_the_operator_had_not_asked_yet_saves_with_the_others(
    operator: OperatorStandIn, workers: Workers
) -> None:
    gang = Gang(operator, workers, steps=(STEADY, 1.25 * STEADY))
    gang.call += 4 * CALLS  # so that it has not passed that when it looks
    gang.prepare(0)
    operator.status = 503
    gang.all_save()


@pytest.mark.slow
def test_where_one_worker_has_passed_the_call_all_train_on_and_a_late_commit_changes_nothing(
    operator: OperatorStandIn, workers: Workers
) -> None:
    gang = Gang(operator, workers, steps=(STEADY, FAST))
    gang.prepare(0)
    operator.status = 503
    eventually(lambda: gang.step(0) > gang.call, timeout=60, what="the first one trains on")
    late = SaveOrder(stage="Commit", call=gang.call, reason="SIGTERM", writer_rank=1)
    for name in ("run-0-1", "run-1-1"):
        operator.also(worker=name, save=late)
    operator.status = 200
    for slot, name in enumerate(("run-0-1", "run-1-1")):
        vote = operator.until(lambda s, n=name: s.seen == operator.digest(n), worker=name).save
        assert (vote.refused, vote.prepared, vote.committed) == (gang.call, None, None)
        assert "saves at" not in gang.members[slot].output


@pytest.mark.case("operator", "The operator and the store are away during a should_save() call")
@pytest.mark.slow
def test_without_operator_and_store_the_output_says_what_training_waits_for(
    operator: OperatorStandIn,
    workers: Workers,
    own_s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    storage = StorageConfig(
        uri="s3://bucket/runs", run_name="run", endpoint_url=own_s3.endpoint, region="us-east-1"
    )
    gang = Gang(operator, workers, storage=storage)
    gang.prepare(0)
    gang.prepare(1)
    own_s3.stop()
    operator.status = 503
    waits = (
        f"SaveWaiting: training waits at call {gang.call} of should_save(): the operator has not "
        "decided whether to save there, and the votes of the other workers cannot be read from the "
        "store"
    )
    gang.members[0].shows(waits, timeout=60)
    assert gang.step(0) < gang.call
    own_s3.start()
    gang.all_save()
