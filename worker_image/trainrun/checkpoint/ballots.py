"""The ballots by which agents agree on a call of `should_save()` while no operator counts votes.

Layer: rules over `RunStore`. Each worker writes its own, and never two that differ about one call
(see `agent.training.ballot`); so whoever has read all of them knows what all others will know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.rules.records import Ballot
from trainrun.contract import layout
from trainrun.errors import CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainrun.checkpoint.stores.run_store import RunStore
    from trainrun.contract.answer import SaveOrder


def cast_ballot(run: RunStore, ballot: Ballot) -> None:
    """Write a worker's ballot; repeating it changes nothing."""
    key = layout.ballot_key(ballot.attempt, ballot.call, ballot.slot, agrees=ballot.agrees)
    run.write_once(key, ballot)


def read_ballots(run: RunStore, attempt: int) -> dict[int, dict[int, bool]]:
    """Whether the workers of an attempt agree to save, by call and slot, as far as is known."""
    said: dict[int, dict[int, bool]] = {}
    for item in run.objects(layout.ballots_prefix(attempt)):
        found = layout.read_ballot(item.key, attempt)
        if found is not None:
            call, slot, agrees = found
            said.setdefault(call, {})[slot] = agrees
    return said


def asked_to_save(
    run: RunStore, attempt: int, call: int, said: Mapping[int, bool]
) -> SaveOrder | None:
    """What asked for a call, from those who agree to it; None where none of them was asked."""
    for slot in sorted(slot for slot, agrees in said.items() if agrees):
        key = layout.ballot_key(attempt, call, slot, agrees=True)
        try:
            asked = run.read(Ballot, key).asked
        except (CheckpointDamaged, ObjectNotFound):
            continue  # another one has it, too
        if asked is not None:
            return asked
    return None
