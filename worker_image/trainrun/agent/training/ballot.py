"""The rules by which one worker votes on the call of `should_save()` that is answered with yes.

Layer: agent. Pure: the agent carries them out on its processes (see `vote`), the simulated agent on
virtual ones. Invariants: a prepared call is binding until it is committed or aborted; a refused
call is never prepared; a committed one, and the vote of processes that have all ended, are final.
So what follows from all votes is the same whoever counts them, and whenever: the operator, or the
agents themselves (see `tally`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from trainrun.contract.agent_state import SaveVote
from trainrun.contract.answer import SaveOrder

Step = Literal[
    "Nothing",  # the order is old, or comes again
    "Refuse",
    "Mark",  # stop the ranks at the call: prepared if all can be stopped there, else refused
    "Commit",
    "Abort",
]


def step(vote: SaveVote, order: SaveOrder, *, living: bool) -> Step:
    """What to do about an order; `living`: whether any rank lives that could save."""
    if vote.committed is not None or not living:
        return "Nothing"
    match order.stage:
        case "Prepare":
            return _prepare(vote, order.call)
        case "Commit":
            # A commit needs the votes of all that live: never asked about this call, no part in it.
            return "Commit" if vote.prepared == order.call else "Nothing"
        case "Abort":
            return "Abort"


def prepared(vote: SaveVote, call: int) -> SaveVote:
    """Every rank stops at this call."""
    return replace(vote, prepared=call)


def refused(vote: SaveVote, call: int) -> SaveVote:
    """A rank has passed this call."""
    return replace(vote, refused=max(vote.refused, call), refusals=vote.refusals + 1)


def committed(vote: SaveVote, call: int) -> SaveVote:
    """This call, and every later one, is answered with yes."""
    return replace(vote, committed=call, prepared=None)


def aborted(vote: SaveVote, call: int) -> SaveVote:
    """This call is answered with no, for good."""
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


def obeyed(vote: SaveVote, order: SaveOrder, *, living: bool = True) -> SaveVote:
    """The vote after an order, where ranks can be stopped at every call after `vote.calls`."""
    call = order.call
    match step(vote, order, living=living):
        case "Nothing":
            return vote
        case "Refuse":
            return refused(vote, call)
        case "Mark":
            return refused(vote, call) if vote.calls >= call else prepared(vote, call)
        case "Commit":
            return committed(vote, call)
        case "Abort":
            return aborted(vote, call)


def _prepare(vote: SaveVote, call: int) -> Step:
    if call <= vote.refused or call == vote.prepared:
        return "Nothing"
    if vote.prepared is not None:
        # Two operators at once. A later call can wait until ours is settled; an earlier one would
        # wait for us for ever.
        return "Refuse" if call < vote.prepared else "Nothing"
    return "Mark"
