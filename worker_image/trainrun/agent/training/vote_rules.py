"""The rules by which one worker votes on the call of `should_save()` that all answer with yes.

Layer: agent. Pure: the agent applies them to its processes (see `vote`), the simulated agent to
virtual ones. Invariants: a prepared call is binding until it is committed or aborted; a refused
call is never prepared; a committed call is final, and so is the vote once all processes have ended.
So the outcome of all votes is the same whether the operator counts them or the agents do (see
`tally`), and at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from trainrun.contract.agent_state import SaveVote
from trainrun.contract.answer import SaveOrder


def obeyed(
    vote: SaveVote,
    order: SaveOrder,
    *,
    living: bool = True,
    stops: Callable[[int], bool] | None = None,
) -> SaveVote:
    """The vote after an order; unchanged if the order is old or repeated.

    `living`: whether a rank lives that could save; `stops` stops all of them at a call, or none,
    and returns whether it did. None: they can be stopped at every call after `vote.calls`.
    """
    call = order.call
    if vote.committed is not None or not living:
        return vote
    match order.stage:
        case "Prepare":
            return _prepared(vote, call, stops or (lambda call: vote.calls < call))
        case "Commit":
            # A commit needs all living workers: one that was not asked has no part in it.
            return replace(vote, committed=call, prepared=None) if vote.prepared == call else vote
        case "Abort":
            prepared = None if vote.prepared == call else vote.prepared
            return replace(vote, prepared=prepared, refused=max(vote.refused, call))


def agrees(vote: SaveVote, call: int, *, living: bool, ended_well: bool) -> bool | None:
    """Whether this worker saves at `call` if all others do, for good; None: undecided.

    A worker whose processes have all exited 0 does not prevent a save at a call that it never
    reached; one whose processes were killed stays undecided, since its attempt is over.
    """
    if call in (vote.prepared, vote.committed):
        return True
    if call <= vote.refused:
        return False
    if living or not ended_well:
        return None
    return vote.calls < call


def outcome(
    votes_by_slot: Mapping[int, bool], *, workers: int
) -> Literal["Commit", "Abort"] | None:
    """The outcome for a call from the workers' votes by slot; None: votes are missing."""
    if not all(votes_by_slot.values()):
        return "Abort"
    return "Commit" if len(votes_by_slot) == workers else None


def _prepared(vote: SaveVote, call: int, stops: Callable[[int], bool]) -> SaveVote:
    if call <= vote.refused or call == vote.prepared:
        return vote
    if vote.prepared is not None:
        # Two operators at once. A later call can wait until ours is decided; refuse an earlier one,
        # which would wait for us without end.
        if call > vote.prepared:
            return vote
    elif stops(call):
        return replace(vote, prepared=call)
    return replace(vote, refused=max(vote.refused, call), refusals=vote.refusals + 1)
