"""The judge of the simulated lives is able to fail: it notices bugs that are planted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.simulation import one_run
from tests.simulation.drawn import drawn_life
from tests.simulation.lives import Life, judged, living
from tests.simulation.striking import FAULTS, FaultKind
from tests.simulation.world.clock import START
from tests.simulation.world.invariants import written
from tests.simulation.world.invariants.events import MOST_TOLD
from tests.simulation.world.operator import SimOperator
from tests.simulation.world.store import SimStore
from trainrun.contract.agent_state import Resolution, SaveVote
from trainrun.contract.answer import ResolveRequest, SaveOrder
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import Condition, StartRecord
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run import planner, transitions
from trainrun_operator.core.run.boundary import DeleteRun, DeleteWorker, Event, Plan, WorkerFact
from trainrun_operator.core.run.gang import roster
from trainrun_operator.core.run.incidents import ledger, losses
from trainrun_operator.core.run.stages import gathering, inactive, preempting, running
from trainrun_operator.core.run.stages.preempting import coordinate
from trainrun_operator.core.run.view import View
from trainrun_operator.runtime.run_events import RunEvent, RunNews

LIVES = 300
pytestmark = pytest.mark.slow  # what they try is the judge, which changes seldom


def a_life(seed: int, kinds: Sequence[FaultKind], within: float = 40.0) -> Life:
    """One that goes on whatever fails, and whose attempts are numbered from 1."""
    drawn = drawn_life(seed, kinds, within)
    return replace(
        drawn,
        max_failures=-1,
        max_preemptions=None,
        max_start_failures=None,
        no_progress_limit=0,
        deadline=None,
        rules=(),
        before="Nothing",
        on_existing="Resume",
    )


def first_mistake(
    *,
    kinds: Sequence[FaultKind] = FAULTS,
    within: float = 40.0,
    **fields: Any,
) -> tuple[int, str] | None:
    for seed in range(LIVES):
        world = living(replace(a_life(seed, kinds, within), **fields))
        mistakes = judged(world)
        if mistakes:
            return seed, mistakes[0]
    return None


def charge_preemptions_as_failures(*args: Any, **kwargs: Any) -> str:
    budget = BUDGET_OF(*args, **kwargs)
    return "failures" if budget == "preemptions" else budget


BUDGET_OF = ledger.budget_of


def settle_twice(*args: Any) -> Any:
    """Every charge is made two times."""
    failures, incidents = SETTLE(*args)
    return replace(failures, counted=failures.counted * 2), incidents


SETTLE = ledger.settle


def commit_early(votes: Sequence[SaveVote | None], **options: Any) -> SaveOrder | None:
    """One vote is enough."""
    stage = coordinate(votes, **options)
    if stage is not None and any(v is not None and v.prepared == stage.call for v in votes):
        return SaveOrder(stage="Commit", call=stage.call)
    return stage


def test_a_double_charge_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "settle", settle_twice)
    mistake = first_mistake()
    assert mistake is not None
    assert "does not match the incidents" in mistake[1]


def test_a_budget_of_another_cause_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "budget_of", charge_preemptions_as_failures)
    mistake = first_mistake(kinds=["vanish", "node-loss"], max_preemptions=-1)
    assert mistake is not None
    assert "is charged to failures, not to preemptions" in mistake[1]


def test_a_cause_that_is_not_what_happened_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "_cause_of", lambda *_: Cause.OUT_OF_MEMORY)
    mistake = first_mistake(kinds=["exception"])
    assert mistake is not None
    assert "is said to have ended by OutOfMemory of slot" in mistake[1]


def test_a_healthy_worker_that_is_replaced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def keeps_its_place(view: View, worker: WorkerFact) -> bool:
        return USABLE(view, worker) and worker.created_for > view.status.attempt

    monkeypatch.setattr(roster, "usable", keeps_its_place)
    monkeypatch.setattr(roster, "_dismissal", lambda *_, **__: "a bug")
    mistake = first_mistake(kinds=["exception"])
    assert mistake is not None
    assert "is deleted, and nothing has happened to it" in mistake[1]


USABLE = roster.usable


def test_a_gang_of_two_storages_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "outdated", lambda *_: "")
    monkeypatch.setattr(preempting, "outdated", lambda *_: "")
    mistake = first_mistake(kinds=["endpoint", "node-loss"])
    assert mistake is not None
    assert "has workers that write to two storages" in mistake[1]


def test_a_run_that_dawdles_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "still_flushing", dawdling)
    mistake = first_mistake(kinds=["exception"])
    assert mistake is not None
    assert "s without any trouble" in mistake[1]


def dawdling(view: View) -> tuple[WorkerFact, ...]:
    ending = view.status.ending
    return (
        view.workers if ending and view.observation.now - ending.time < timedelta(minutes=1) else ()
    )


def test_an_end_that_nobody_is_told_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions.attempts, "ended", lambda *_: "something happened")
    mistake = first_mistake(kinds=["exception"])
    assert mistake is not None
    assert "the end of attempt 1 was never told" in mistake[1]


def test_a_start_that_is_told_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def emit(who: SimOperator, news: RunNews) -> None:
        if isinstance(news, RunEvent):  # with the time of the telling
            who.cluster.tell(news.event, who.cluster.clock.datetime)

    monkeypatch.setattr(SimOperator, "emit", emit)
    mistake = first_mistake(kinds=["operator-crash"])
    assert mistake is not None
    assert "the start of attempt 1 was told" in mistake[1]


def test_a_finished_script_that_is_stopped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "STAGE", (*running.STAGE[:-1], preempting.decide))
    world = one_run.asked_to_save_at_its_end(says_finished=True)
    assert "attempt 1 has finished, and ends by Preempted" in world.judge.mistakes[0]


def test_a_script_that_yielded_and_is_not_continued_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_easily(view: View, _: StartRecord) -> Plan | None:
        return transitions.succeed(view, "Succeeded", "a bug") if view.all_done else None

    monkeypatch.setattr(running, "STAGE", (too_easily, *running.STAGE))
    world = one_run.asked_to_save_at_its_end(says_finished=False)
    assert "the run has succeeded, and attempt 1 has yielded" in world.judge.mistakes[0]


@pytest.mark.slow
def test_a_wait_that_is_told_again_and_again_is_noticed() -> None:
    world = living(a_life(1, ["refuse"]))
    waiting = Event(type="Warning", reason="QuotaExceeded", message="3 workers cannot be created")
    for second in range(MOST_TOLD):
        world.tell(waiting, START + timedelta(seconds=second))
    assert "QuotaExceeded was told 20 times in 60 s" in judged(world)[0]


@pytest.mark.slow
def test_a_save_that_not_all_have_prepared_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preempting, "coordinate", commit_early)
    mistake = first_mistake()
    assert mistake is not None
    assert "has not prepared it" in mistake[1]


def test_a_missing_fence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimStore, "fenced", lambda *_: False)
    world = living(replace(a_life(1, ["exception"]), faults=(), loss=0.0, delay=0.02))
    left_behind = CheckpointId(attempt=1, step=1)
    for attempt in (1, 2):
        while len(world.gang(attempt)) < world.config.replicas:
            world.clock.step()
        world.raise_exception(world.gang(attempt)[0])
    # Workers of attempt 1 that nobody hears come back, once attempt 2 has started from scratch.
    for slot in range(world.config.replicas):
        world.store.put_part(left_behind, slot=slot, workers=world.config.replicas)
    while 3 not in world.judge.claims:
        world.clock.step()
    assert world.judge.claims[3][1] == left_behind
    assert "which is fenced" in world.judge.mistakes[0]


def test_a_known_commit_that_is_not_asked_for_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(store: SimStore, request: ResolveRequest, **how: Any) -> Resolution:
        forgets = request if request.proof else replace(request, committed=None)
        return RESOLVE(store, forgets, **how)

    monkeypatch.setattr(SimStore, "resolve", forgetful)
    world = one_run.a_life()
    world.live(8)
    world.list_late(60)
    one_run.until(world, lambda: world.status.checkpoint is not None and world.store.unlisted)
    world.raise_exception(one_run.worker(world, 1).agent)
    world.live(50)
    assert "attempt 2 resumes from" in world.judge.mistakes[0]
    assert "was committed" in world.judge.mistakes[0]


RESOLVE = SimStore.resolve


@pytest.mark.slow
def test_a_worker_that_is_deleted_under_a_running_attempt_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_many(view: View) -> tuple[DeleteWorker, ...]:
        return tuple(DeleteWorker(name=w.name, reason="a bug") for w in view.workers)

    monkeypatch.setattr(running, "surplus", too_many)
    mistake = first_mistake()
    assert mistake is not None
    assert "is deleted while attempt 1 runs" in mistake[1]


@pytest.mark.slow
def test_decisions_that_go_round_in_a_circle_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def this_or_that(view: View) -> Plan:
        plan = transitions.give_back(
            view, tries=1, until=view.observation.now, message=f"it is {view.observation.now}"
        )
        return plan if view.status.attempt and view.observation.now.second == 30 else GATHER(view)

    monkeypatch.setattr(gathering, "_gather", this_or_that)
    mistake = first_mistake(kinds=["store-away", "exception"], loss=0.0)
    assert mistake is not None
    assert "15 decisions were written within a second" in mistake[1]


GATHER = gathering._gather


def test_a_run_that_is_written_after_its_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ticking(view: View, verdict: Condition) -> Plan:
        plan = FINISHED(view, verdict)
        now = view.observation.now.second
        return replace(
            plan, status=replace(plan.status, observed_generation=now), requeue_after=A_SECOND
        )

    monkeypatch.setattr(planner.inactive, "finished", ticking)
    mistake = first_mistake()
    assert mistake is not None
    assert "a run that is over is still written" in mistake[1]


FINISHED = planner.inactive.finished
A_SECOND = timedelta(seconds=1)


def test_a_run_that_is_deleted_before_its_end_is_stored_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inactive, "_clean_up", lambda _view: (DeleteRun(),))
    mistake = first_mistake(faults=(), ttl=0.0, delay=1.5)
    assert mistake is not None
    assert "the run was deleted before its storage was marked finished" in mistake[1]


def test_a_status_without_bounds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "MAX_STATUS", 1000)
    mistake = first_mistake()
    assert mistake is not None
    assert "bytes was written" in mistake[1]
