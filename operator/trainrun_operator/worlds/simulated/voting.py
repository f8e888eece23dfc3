"""How an agent obeys orders to agree on a call of `should_save()`, as its module `saving` does.

Layer: worlds. Pure, so that the agreement can be checked with any order of messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from trainrun.protocol import SaveOrder, SaveVote
    from trainrun_operator.core.saving import SaveStage


def obeyed(vote: SaveVote, order: SaveOrder | SaveStage, *, living: bool = True) -> SaveVote:
    """The vote after this order, which may be old, or come again; final once nobody lives."""
    if vote.committed is not None or not living:
        return vote
    match order.stage:
        case "Prepare":
            return _prepared(vote, order.call)
        case "Commit":
            agreed = vote.prepared == order.call
            return replace(vote, committed=order.call, prepared=None) if agreed else vote
        case "Abort":
            kept = None if vote.prepared == order.call else vote.prepared
            return replace(vote, prepared=kept, refused=max(vote.refused, order.call))
        case _:
            assert_never(order.stage)


def _prepared(vote: SaveVote, call: int) -> SaveVote:
    if call <= vote.refused or call == vote.prepared:
        return vote
    if vote.prepared is not None:
        # A later call can wait until ours is settled; an earlier one would wait for us for ever.
        return _refused(vote, call) if call < vote.prepared else vote
    return _refused(vote, call) if vote.calls >= call else replace(vote, prepared=call)


def _refused(vote: SaveVote, call: int) -> SaveVote:
    return replace(vote, refused=max(vote.refused, call), refusals=vote.refusals + 1)
