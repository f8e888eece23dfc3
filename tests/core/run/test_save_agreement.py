"""Agreeing on one call of should_save(), whatever happens to the messages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from trainrun.agent.training.vote_rules import obeyed
from trainrun.contract.agent_state import SaveVote
from trainrun.contract.answer import SaveOrder
from trainrun_operator.core.run.stages.preempting import coordinate


def stage(name: str, call: int) -> SaveOrder:
    return SaveOrder(stage=name, call=call)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([SaveVote(calls=4), SaveVote(calls=7)], stage("Prepare", 8)),
        ([SaveVote(calls=4), None], None),
        ([None, None], None),
        ([], None),
        ([SaveVote(calls=4, refusals=3), SaveVote(calls=2)], stage("Prepare", 12)),
        ([SaveVote(calls=4, refusals=5000)], stage("Prepare", 4100)),
        ([SaveVote(calls=4, refused=90), SaveVote(calls=4)], stage("Prepare", 91)),
        ([SaveVote(prepared=9), SaveVote(calls=1)], stage("Prepare", 9)),
        ([SaveVote(prepared=9), None], stage("Prepare", 9)),
        ([SaveVote(prepared=9), SaveVote(prepared=9)], stage("Commit", 9)),
        ([SaveVote(prepared=9), SaveVote(refused=9)], stage("Abort", 9)),
        ([SaveVote(prepared=9), SaveVote(refused=9), None], stage("Abort", 9)),
        ([SaveVote(prepared=9), SaveVote(refused=8)], stage("Prepare", 9)),
        ([SaveVote(prepared=9, refused=12), SaveVote(prepared=9)], stage("Commit", 9)),
        ([SaveVote(prepared=12), SaveVote(prepared=9)], stage("Prepare", 9)),
        ([SaveVote(committed=9), None], stage("Commit", 9)),
        ([SaveVote(committed=9), SaveVote(prepared=9)], stage("Commit", 9)),
    ],
)
def test_the_next_stage_follows_from_the_votes(
    votes: list[SaveVote | None], expected: SaveOrder | None
) -> None:
    assert coordinate(votes) == expected


def test_a_call_that_an_ended_worker_refused_is_aborted_and_not_asked_for_again() -> None:
    ended = [SaveVote(refused=9)]
    assert coordinate([SaveVote(prepared=9)], ended=ended) == stage("Abort", 9)
    assert coordinate([SaveVote(calls=3)], ended=ended) == stage("Prepare", 10)


def test_a_call_that_an_ended_worker_has_passed_is_not_saved_at_by_the_others() -> None:
    ended = [SaveVote(calls=3)]
    assert coordinate([SaveVote(calls=2, prepared=3)], ended=ended) == stage("Abort", 3)
    assert coordinate([SaveVote(calls=2, prepared=4)], ended=ended) == stage("Commit", 4)
    assert coordinate([SaveVote(calls=2)], ended=ended) == stage("Prepare", 4)


def test_a_call_that_an_ended_worker_committed_is_committed_by_all() -> None:
    ended = [SaveVote(committed=9, refused=12)]
    assert coordinate([SaveVote(prepared=9), None], ended=ended) == stage("Commit", 9)


# ---------------------------------------------------------------------------- a small model check

WORKERS = 3
OPERATORS = 2


@dataclass
class Gang:
    """Workers, operators with views of any age, and orders that can arrive late, or again."""

    votes: list[SaveVote] = field(default_factory=lambda: [SaveVote()] * WORKERS)
    ended: set[int] = field(default_factory=set)
    views: list[dict[int, tuple[SaveVote, bool]]] = field(
        default_factory=lambda: [{} for _ in range(OPERATORS)]
    )
    orders: list[SaveOrder] = field(default_factory=list)

    def call(self, worker: int) -> None:
        """The worker's rank calls should_save(), unless it waits at a prepared call."""
        vote = self.votes[worker]
        waits = vote.prepared is not None and vote.calls + 1 >= vote.prepared
        if worker not in self.ended and not waits:
            self.votes[worker] = replace(vote, calls=vote.calls + 1)

    def end(self, worker: int) -> None:
        """Its processes end well, unless they wait."""
        vote = self.votes[worker]
        if vote.prepared is None or vote.calls + 1 < vote.prepared:
            self.ended.add(worker)

    def tell(self, worker: int, operator: int) -> None:
        """A heartbeat arrives."""
        self.views[operator][worker] = (self.votes[worker], worker in self.ended)

    def order(self, operator: int) -> None:
        """An operator decides from what it knows."""
        view = self.views[operator]
        live = [view[w][0] if w in view else None for w in range(WORKERS) if not self.over(view, w)]
        ended = [view[w][0] for w in range(WORKERS) if self.over(view, w)]
        decided = coordinate(live, ended=ended)
        if decided is not None:
            self.orders.append(decided)

    @staticmethod
    def over(view: dict[int, tuple[SaveVote, bool]], worker: int) -> bool:
        return worker in view and view[worker][1]

    def deliver(self, worker: int, which: int) -> None:
        """Any order that was ever given arrives."""
        if self.orders:
            order = self.orders[which % len(self.orders)]
            before = self.votes[worker]
            now = obeyed(before, order, living=worker not in self.ended)
            self.votes[worker] = now
            if now.committed is not None and before.committed is None:
                self.check_commit(now.committed)

    def check_commit(self, call: int) -> None:
        for worker in set(range(WORKERS)) - self.ended:
            vote = self.votes[worker]
            assert call in {vote.prepared, vote.committed}, f"{worker} does not save at {call}"
        for worker in self.ended:
            assert self.votes[worker].calls < call, f"{worker} passed {call} without saving"

    def committed(self) -> set[int]:
        return {vote.committed for vote in self.votes if vote.committed is not None}

    def agree(self) -> None:
        """Messages flow: everybody is heard and told, and the training goes on."""
        for _ in range(60):
            for worker in range(WORKERS):
                self.tell(worker, 0)
            self.order(0)
            for worker in range(WORKERS):
                self.deliver(worker, -1)
                self.call(worker)


workers = st.integers(0, WORKERS - 1)
operators = st.integers(0, OPERATORS - 1)
moves = st.one_of(
    st.tuples(st.just("call"), workers),
    st.tuples(st.just("call"), workers),
    st.tuples(st.just("tell"), workers, operators),
    st.tuples(st.just("tell"), workers, operators),
    st.tuples(st.just("order"), operators),
    st.tuples(st.just("order"), operators),
    st.tuples(st.just("deliver"), workers, st.integers(-6, -1)),
    st.tuples(st.just("deliver"), workers, st.integers(-6, -1)),
    st.tuples(st.just("deliver"), workers, st.integers(0, 40)),
    st.tuples(st.just("end"), workers),
)


@settings(max_examples=examples(1000), deadline=None, suppress_health_check=list(HealthCheck))
@given(played=st.lists(moves, max_size=80))
def test_no_order_of_messages_leads_to_two_calls_or_to_none(
    played: list[tuple[str, *tuple[int, ...]]],
) -> None:
    """Late, repeated and reordered orders of two operators: one call, on all ranks, in the end."""
    gang = Gang()
    for name, *arguments in played:
        getattr(gang, name)(*arguments)
        assert len(gang.committed()) <= 1
    gang.agree()
    live = set(range(WORKERS)) - gang.ended
    assert len(gang.committed()) <= 1
    assert {gang.votes[worker].committed is not None for worker in live} <= {True}
