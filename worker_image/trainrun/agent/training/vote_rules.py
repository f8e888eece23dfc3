"""The rules by which one worker votes on the call of `should_save()` that is answered with yes.

Layer: agent. Pure: the agent carries them out on its processes (see `vote`), the simulated agent on
virtual ones. Invariants: a prepared call is binding until it is committed or aborted; a refused
call is never prepared; a committed one, and the vote of processes that have all ended, are final.
So what follows from all votes is the same whoever counts them, and whenever: the operator, or the
agents themselves (see `tally`).
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
    """The vote after an order, the same where it is old or comes again.

    `living`: whether any rank lives that could save; `stops` stops all of them at a call, or none,
    and says which. None: they can be stopped at every call after `vote.calls`.
    """
    call = order.call
    if vote.committed is not None or not living:
        return vote
    match order.stage:
        case "Prepare":
            return _prepared(vote, call, stops or (lambda call: vote.calls < call))
        case "Commit":
            # A commit needs the votes of all that live: never asked about this call, no part in it.
            return replace(vote, committed=call, prepared=None) if vote.prepared == call else vote
        case "Abort":
            kept = None if vote.prepared == call else vote.prepared
            return replace(vote, prepared=kept, refused=max(vote.refused, call))


def says(vote: SaveVote, call: int, *, living: bool, ended_well: bool) -> bool | None:
    """Whether this worker saves at `call` if all others do, for good; None: it may yet say either.

    A worker whose processes have ended well stops nobody from saving at a call that it never made;
    for one whose processes were killed nothing is said, since its attempt is over.
    """
    if call in (vote.prepared, vote.committed):
        return True
    if call <= vote.refused:
        return False
    if living or not ended_well:
        return None
    return vote.calls < call


def outcome(said: Mapping[int, bool], *, workers: int) -> Literal["Commit", "Abort"] | None:
    """What follows for a call from what the workers have said of it, by slot; None: not enough."""
    if not all(said.values()):
        return "Abort"
    return "Commit" if len(said) == workers else None


def _prepared(vote: SaveVote, call: int, stops: Callable[[int], bool]) -> SaveVote:
    if call <= vote.refused or call == vote.prepared:
        return vote
    if vote.prepared is not None:
        # Two operators at once. A later call can wait until ours is settled; an earlier one would
        # wait for us for ever.
        if call > vote.prepared:
            return vote
    elif stops(call):
        return replace(vote, prepared=call)
    return replace(vote, refused=max(vote.refused, call), refusals=vote.refusals + 1)
