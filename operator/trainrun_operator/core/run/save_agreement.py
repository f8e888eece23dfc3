"""Agreeing on the one call of `should_save()` that is answered with yes on every rank.

Layer: core. Two phases, so that no rank enters the collectives of a save alone: every worker
*prepares* call n (its ranks wait there), then all are told to *commit*. A worker whose ranks have
passed n refuses, everybody aborts n, and a later call is tried.

Why it is safe with lost operators and two at a time: preparing is binding until commit or abort;
a refusal is final (an agent never prepares a call that it has refused), as is the whole vote of one
whose processes have ended; n is committed only when all prepared it and aborted only when one
refused it, so no call can be both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.contract.answer import SaveOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainrun.contract.agent_state import SaveVote

MAX_LOOKAHEAD = 4096
"""Calls ahead at most: 4 s at one call per millisecond, far above any heartbeat."""


def coordinate(
    votes: Sequence[SaveVote | None], *, ended: Sequence[SaveVote] = ()
) -> SaveOrder | None:
    """The next order, without its reason, from the votes of all workers whose processes still run.

    None stands for a worker that has not been heard: nothing new is decided without it. `ended` are
    the last votes of workers whose processes have ended well: they are not waited for, but a call
    that one of them has passed or refused may have been aborted already and must never be
    committed, and one that they have committed must never be aborted. A call
    that somebody has prepared must be carried through, whoever still wants the save: another
    operator may have told a worker to commit it, and a save that only some ranks enter is a
    deadlock.
    """
    known = [vote for vote in votes if vote is not None]
    committed = [vote.committed for vote in (*known, *ended) if vote.committed is not None]
    if committed:
        return SaveOrder(stage="Commit", call=min(committed))
    prepared = [vote.prepared for vote in known if vote.prepared is not None]
    if prepared:
        return _settle(min(prepared), known, ended, complete=len(known) == len(votes))
    if not known or len(known) < len(votes):
        return None
    ahead = min(2 ** min(max(vote.refusals for vote in known), 64), MAX_LOOKAHEAD)
    reached = max(vote.calls for vote in (*known, *ended)) + ahead
    refused = max(vote.refused for vote in (*known, *ended))  # asking for it again is no use
    return SaveOrder(stage="Prepare", call=max(reached, refused + 1))


def _settle(
    call: int, known: Sequence[SaveVote], ended: Sequence[SaveVote], *, complete: bool
) -> SaveOrder:
    refused = any(vote.refused >= call and vote.prepared != call for vote in (*known, *ended))
    # Of the living the same is learned by asking them: until then they may go on to prepare it.
    if refused or any(vote.calls >= call for vote in ended):
        return SaveOrder(stage="Abort", call=call)
    if complete and all(vote.prepared == call for vote in known):
        return SaveOrder(stage="Commit", call=call)
    return SaveOrder(stage="Prepare", call=call)
