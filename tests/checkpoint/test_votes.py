"""What agents tell each other of a save by way of the store, on every kind of store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.agent_records import asked_to_save, read_votes, write_vote
from trainrun.checkpoint.records import VoteRecord
from trainrun.checkpoint.retention import retain
from trainrun.contract.answer import SaveOrder

if TYPE_CHECKING:
    from tests.support.checkpoints import Bench

ASKED = SaveOrder(stage="Prepare", call=12, reason="SIGTERM", deadline=20.0, writer_rank=1)


def cast(bench: Bench, call: int, slot: int, *, agrees: bool, asked: SaveOrder | None) -> None:
    vote_record = VoteRecord(attempt=3, call=call, slot=slot, agrees=agrees, asked=asked)
    write_vote(bench.run, vote_record)


def test_ballots_of_an_attempt_are_seen_by_all_and_say_what_was_asked(any_bench: Bench) -> None:
    assert read_votes(any_bench.run, 3) == {}
    cast(any_bench, 12, 0, agrees=True, asked=None)  # its processes have ended well
    cast(any_bench, 12, 1, agrees=True, asked=ASKED)
    cast(any_bench, 12, 1, agrees=True, asked=None)  # again: the first one stands
    cast(any_bench, 9, 1, agrees=False, asked=None)
    found = read_votes(any_bench.run, 3)
    assert found == {9: {1: False}, 12: {0: True, 1: True}}
    assert read_votes(any_bench.run, 2) == {}
    assert asked_to_save(any_bench.run, 3, 12, found[12]) == ASKED
    assert asked_to_save(any_bench.run, 3, 9, found[9]) is None


def test_a_damaged_ballot_is_counted_by_its_name_and_what_was_asked_is_read_elsewhere(
    any_bench: Bench,
) -> None:
    cast(any_bench, 12, 0, agrees=True, asked=ASKED)
    cast(any_bench, 12, 1, agrees=True, asked=ASKED)
    any_bench.run.store.put("run/saves/000003/000000012/worker-00000.yes.json", b"{}")
    any_bench.run.store.put("run/saves/000003/notes.txt", b"not a ballot")
    found = read_votes(any_bench.run, 3)
    assert found == {12: {0: True, 1: True}}
    assert asked_to_save(any_bench.run, 3, 12, found[12]) == ASKED


def test_ballots_of_attempts_before_the_last_two_go_with_old_checkpoints(any_bench: Bench) -> None:
    for attempt in (1, 2, 3, 4):
        any_bench.resolve(attempt)
        vote_record = VoteRecord(attempt=attempt, call=12, slot=0, agrees=True, asked=ASKED)
        write_vote(any_bench.run, vote_record)
    any_bench.run.store.put(any_bench.run.key("saves/000001/notes.txt"), b"not a ballot")
    retain(any_bench.run, attempt=4, keep=2)
    assert [bool(read_votes(any_bench.run, attempt)) for attempt in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        True,
    ]
    left = [item.key for item in any_bench.run.objects("saves/000001/")]
    assert left == ["saves/000001/notes.txt"], "what is not ours stays"
