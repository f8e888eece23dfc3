"""Votes that the agents count themselves: every order of events, with operators that come and go.

Two workers whose ranks call should_save() a few times, operators that forget everything, orders
that arrive late and again, ballots that are read whenever. All states that can be reached are
looked at, not a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from trainrun.agent.training import vote_rules
from trainrun.contract.agent_state import SaveVote
from trainrun.contract.answer import SaveOrder
from trainrun_operator.core.run.stages.preempting import coordinate

CALLS = 2
"""Calls that a rank makes at most; none is asked for beyond."""

Order = tuple[str, int]
Said = tuple[int, int, bool]
"""Call, slot, and whether it agrees."""
View = tuple[SaveVote, bool] | None
"""What an operator knows of a worker: its vote, and whether it has ended well."""


@dataclass(frozen=True)
class State:
    """All that matters of one moment."""

    votes: tuple[SaveVote, ...]
    ended: frozenset[int] = frozenset()
    views: tuple[View, ...] = ()
    orders: frozenset[Order] = frozenset()
    """Every order that was ever given: each may arrive at any time, and again."""
    box: frozenset[Said] = frozenset()

    def with_vote(self, worker: int, vote: SaveVote) -> State:
        votes = (*self.votes[:worker], vote, *self.votes[worker + 1 :])
        return replace(self, votes=votes)

    def waits(self, worker: int) -> bool:
        """Its ranks stand at a prepared call."""
        vote = self.votes[worker]
        return vote.prepared is not None and vote.calls + 1 >= vote.prepared

    def says(self, worker: int, call: int) -> bool | None:
        over = worker in self.ended
        return vote_rules.agrees(self.votes[worker], call, living=not over, ended_well=over)


def told(state: State, worker: int, order: Order) -> State:
    save = SaveOrder(stage=order[0], call=order[1])  # type: ignore[arg-type]
    now = vote_rules.obeyed(state.votes[worker], save, living=worker not in state.ended)
    # How often it refused only moves the next call further ahead: here that is beyond the end.
    return state.with_vote(worker, replace(now, refusals=min(now.refusals, 1)))


def ordered(state: State) -> State:
    """An operator decides from what it knows."""
    live = [
        view[0] if view is not None else None for view in state.views if view is None or not view[1]
    ]
    ended = [view[0] for view in state.views if view is not None and view[1]]
    order = coordinate(live, ended=ended)
    if order is None or order.call > CALLS:
        return state
    return replace(state, orders=state.orders | {(order.stage, order.call)})


def looked(state: State, worker: int) -> State:
    """A worker says what it does at its call and at those that others wait at, and counts."""
    held = state.votes[worker].prepared
    calls = {call for call, _, _ in state.box} | ({held} if held is not None else set())
    for call in sorted(calls):
        if state.says(worker, call) is None:
            state = told(state, worker, ("Prepare", call))
        agrees = state.says(worker, call)
        if agrees is not None and not any(b[:2] == (call, worker) for b in state.box):
            state = replace(state, box=state.box | {(call, worker, agrees)})
        said = {slot: yes for at, slot, yes in state.box if at == call}
        stage = vote_rules.outcome(said, workers=len(state.votes))
        if stage is not None and state.votes[worker].prepared == call:
            state = told(state, worker, (stage, call))
    return state


def called(state: State, worker: int) -> State:
    vote = state.votes[worker]
    return state.with_vote(worker, replace(vote, calls=vote.calls + 1))


def nexts(state: State) -> Iterator[State]:
    for worker, vote in enumerate(state.votes):
        if worker not in state.ended and not state.waits(worker):
            yield replace(state, ended=state.ended | {worker})
            if vote.calls < CALLS and vote.committed is None:
                yield called(state, worker)
        heard = (vote, worker in state.ended)
        yield replace(state, views=(*state.views[:worker], heard, *state.views[worker + 1 :]))
        for order in state.orders:
            yield told(state, worker, order)
        yield looked(state, worker)
    yield ordered(state)
    yield replace(state, views=(None,) * len(state.votes))  # another operator


def check(state: State) -> None:
    """No rank saves where another does not."""
    calls = {vote.committed for vote in state.votes if vote.committed is not None}
    assert len(calls) <= 1, f"two calls: {state}"
    for call in calls:
        for worker, vote in enumerate(state.votes):
            joins = call in (vote.committed, vote.prepared)
            never_comes = worker in state.ended and vote.calls < call
            assert joins or never_comes, f"slot {worker} does not save at {call}: {state}"


def check_end(state: State) -> None:
    """The operator is gone for good: those who live come to an end by themselves."""
    for _ in range(4):
        for worker in range(len(state.votes)):
            state = looked(state, worker)
    check(state)
    for worker, vote in enumerate(state.votes):
        assert vote.prepared is None or worker in state.ended, f"slot {worker} waits: {state}"


def look_at_all_states() -> int:
    """An agent that dies is one that does nothing any more: that is among them."""
    first = State(votes=(SaveVote(),) * 2, views=(None,) * 2)
    seen, todo = {first}, [first]
    while todo:
        state = todo.pop()
        check(state)
        check_end(state)
        for after in nexts(state):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen)


@pytest.mark.case("operator", "The operator dies while the agents agree on a should_save() call")
@pytest.mark.slow
def test_no_two_ranks_get_different_answers_and_none_waits_for_an_operator() -> None:
    assert look_at_all_states() > 100_000


def commit_early(said: Mapping[int, bool], *, workers: int) -> str | None:
    """A vote that is not there is taken for a yes."""
    return "Commit" if all(said.values()) else OUTCOME(said, workers=workers)


def refuse_what_has_ended(vote: SaveVote, call: int, *, living: bool, **more: bool) -> bool | None:
    """Whoever has ended is against every save: an operator may have committed it."""
    return AGREES(vote, call, living=living, **more) if living else False


OUTCOME, AGREES = vote_rules.outcome, vote_rules.agrees


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bug", "seen_as"),
    [
        ("outcome", commit_early, "does not save"),
        ("agrees", refuse_what_has_ended, "does not save"),
    ],
)
def test_the_check_notices_a_planted_bug(
    monkeypatch: pytest.MonkeyPatch, name: str, bug: object, seen_as: str
) -> None:
    monkeypatch.setattr(vote_rules, name, bug)
    with pytest.raises(AssertionError, match=seen_as):
        look_at_all_states()
