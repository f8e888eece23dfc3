"""Write-once records of agents in a run's folder: chapters of its story, hangs, ballots.

Layer: rules over `RunStore`. The command line reads chapters and hangs (where the ranks of a hung
gang were). With ballots, agents agree on a call of `should_save()` while no operator counts votes:
each worker writes its own, and never two different ones for a call (see
`agent.training.vote_rules`), so all agents that have read all ballots reach the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.records import AttemptRecord, HangRecord, StoryRecord, VoteRecord
from trainrun.contract import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainrun.checkpoint.run_store import RunStore
    from trainrun.contract.answer import SaveOrder

MOST_CHAPTERS = 10_000
"""Maximum number of chapters read, the newest ones."""

MOST_HANGS = 1024
"""Maximum number of records read of one hang: the largest gang has as many workers."""


def write_story(run: RunStore, record: StoryRecord) -> bool:
    """Store a chapter; False: another one already exists, and stays.

    Raises StoreError.
    """
    return run.write_once(layout.story_key(record.number, record.uid), record)


def read_story(run: RunStore) -> list[StoryRecord]:
    """The chapters of all TrainRuns that have used the folder, without unreadable ones.

    Raises StoreError.
    """
    keys = [item.key for item in run.objects(layout.STORY) if layout.is_story(item.key)]
    return [*run.find_all(StoryRecord, keys[-MOST_CHAPTERS:]).values()]


def read_attempts(run: RunStore) -> list[AttemptRecord]:
    """The claims of all attempts, oldest first, without unreadable ones.

    Raises StoreError.
    """
    return run.claims(run.attempts()[-MOST_CHAPTERS:])


def write_hang(run: RunStore, record: HangRecord) -> bool:
    """Store a record; False: another one already exists, and stays.

    Raises StoreError.
    """
    key = layout.hang_key(record.attempt, record.number, record.worker)
    return run.write_once(key, record)


def read_hang(run: RunStore, folder: str) -> list[HangRecord]:
    """The records in this folder (`hangs/000003-1/`), by worker, without unreadable ones.

    Raises StoreError.
    """
    if not folder.startswith(layout.HANGS):
        return []
    keys = [item.key for item in run.objects(folder) if layout.read_hang(item.key)]
    return [*run.find_all(HangRecord, sorted(keys)[:MOST_HANGS]).values()]


def write_vote(run: RunStore, vote_record: VoteRecord) -> None:
    """Write a worker's ballot; repeating it changes nothing."""
    key = layout.vote_key(
        vote_record.attempt, vote_record.call, vote_record.slot, agrees=vote_record.agrees
    )
    run.write_once(key, vote_record)


def read_votes(run: RunStore, attempt: int) -> dict[int, dict[int, bool]]:
    """The votes of an attempt's workers so far, by call and slot; True: agrees to save."""
    votes: dict[int, dict[int, bool]] = {}
    for item in run.objects(layout.votes_prefix(attempt)):
        found = layout.read_vote(item.key, attempt)
        if found is not None:
            call, slot, agrees = found
            votes.setdefault(call, {})[slot] = agrees
    return votes


def asked_to_save(
    run: RunStore, attempt: int, call: int, votes: Mapping[int, bool]
) -> SaveOrder | None:
    """The order behind a call, from a worker that agreed to it; None: none of them had an order."""
    for slot in sorted(slot for slot, agrees in votes.items() if agrees):
        vote_record = run.find(VoteRecord, layout.vote_key(attempt, call, slot, agrees=True))
        if vote_record is not None and vote_record.asked is not None:  # else another worker has it
            return vote_record.asked
    return None
