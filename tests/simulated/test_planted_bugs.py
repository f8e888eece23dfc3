"""The judge of the simulated lives is able to fail: it notices bugs that are planted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.simulated.lives import FAULTS, PATIENCE, Fault, FaultKind, Life, living
from trainrun.protocol import SaveVote
from trainrun_operator.api.status import Failures
from trainrun_operator.core import ledger, preempting, running
from trainrun_operator.core.plan import DeleteWorker
from trainrun_operator.core.saving import SaveStage, coordinate
from trainrun_operator.core.view import View
from trainrun_operator.worlds.simulated import invariants
from trainrun_operator.worlds.simulated.store import SimStore

LIVES = 300


def a_life(seed: int, kinds: Sequence[FaultKind]) -> Life:
    chance = random.Random(seed)
    return Life(
        seed=seed,
        replicas=chance.randint(2, 4),
        max_failures=-1,
        max_preemptions=None,
        loss=chance.choice([0.0, 0.1, 0.3]),
        duplicate=0.2,
        delay=chance.choice([0.02, 0.2, 1.5]),
        hang=chance.random() < 0.5,
        faults=tuple(
            Fault(
                kind=chance.choice(kinds),
                at=round(chance.uniform(0, 40), 2),
                slot=chance.randint(0, 3),
                size=round(chance.random(), 2),
            )
            for _ in range(chance.randint(1, 6))
        ),
    )


def first_mistake(*, kinds: Sequence[FaultKind] = FAULTS) -> tuple[int, str] | None:
    for seed in range(LIVES):
        world = living(a_life(seed, kinds))
        world.live(PATIENCE)
        mistakes = world.judge.closing()
        if mistakes:
            return seed, mistakes[0]
    return None


def settle_twice(*args: Any) -> Any:
    """Every charge is made two times."""
    failures, incidents = SETTLE(*args)
    return Failures(**(failures.model_dump() | {"counted": failures.counted * 2})), incidents


SETTLE = ledger.settle


def commit_early(votes: Sequence[SaveVote | None], **options: Any) -> SaveStage | None:
    """One vote is enough."""
    stage = coordinate(votes, **options)
    if stage is not None and any(v is not None and v.prepared == stage.call for v in votes):
        return SaveStage(stage="Commit", call=stage.call)
    return stage


def test_a_double_charge_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "settle", settle_twice)
    mistake = first_mistake()
    assert mistake is not None
    assert "does not match the incidents" in mistake[1]


def test_a_save_that_not_all_have_prepared_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preempting, "coordinate", commit_early)
    mistake = first_mistake()
    assert mistake is not None
    assert "has not prepared it" in mistake[1]


def test_a_missing_fence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimStore, "fenced", lambda *_: False)
    # It takes attempts that end so soon that the one before is still uploading.
    mistake = first_mistake(kinds=["exception"])
    assert mistake is not None
    assert "which is fenced" in mistake[1]


def test_a_worker_that_is_deleted_under_a_running_attempt_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_many(view: View) -> tuple[DeleteWorker, ...]:
        return tuple(DeleteWorker(name=w.name, reason="a bug") for w in view.workers)

    monkeypatch.setattr(running, "surplus", too_many)
    mistake = first_mistake()
    assert mistake is not None
    assert "is deleted while attempt 1 runs" in mistake[1]


def test_a_status_without_bounds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "MAX_STATUS", 1000)
    mistake = first_mistake()
    assert mistake is not None
    assert "bytes was written" in mistake[1]
