"""What of a sweep's folders is deleted, and what where that is not allowed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.support.memory_store import MemoryStore
from tests.support.sweeps import a_view, asked, begun, told
from trainrun.checkpoint.records import RunRecord, add_checksum
from trainrun.checkpoint.run_store import RunStore
from trainrun.errors import StoreDenied
from trainrun.sweep.records import Targets
from trainrun_operator.runtime.clerk_work import RetiredFolders

CHECKPOINT = "search/trials/00000/checkpoints/step-000000001-attempt-1/manifest.json"
VIEW = a_view(asked(0), told(0))
TARGETS = Targets(session=begun(), cleared=(0,))


class WithoutDeleting(MemoryStore):
    """A bucket whose credentials may write, and not delete."""

    def delete(self, keys: Iterable[str]) -> None:
        raise StoreDenied(f"{next(iter(keys))}: s3:DeleteObject is not allowed")


def test_checkpoints_of_a_trial_that_is_not_needed_are_deleted() -> None:
    store = MemoryStore()
    store.put(CHECKPOINT, b"{}")
    RetiredFolders(RunStore(store, "search")).clear(TARGETS, VIEW)
    assert store.objects == {}


def test_the_checkpoints_of_a_trial_that_the_log_does_not_know_are_nobodys_to_delete() -> None:
    store = MemoryStore()
    view = a_view(replace(asked(0), first=2), told(0, opening=2))
    store.put(CHECKPOINT, b"{}")
    store.put(CHECKPOINT.replace("00000/", "00000-i2/", 1), b"{}")
    RetiredFolders(RunStore(store, "search")).clear(TARGETS, view)
    assert list(store.objects) == [CHECKPOINT]


def test_the_checkpoints_of_other_parameters_are_not_deleted_with_a_trial() -> None:
    store, record = MemoryStore(), RunRecord(layout=1, created_by="x", params='{"lr": 0.7}')
    store.put(CHECKPOINT, b"{}")
    store.put("search/trials/00000/run.json", add_checksum(record))
    RetiredFolders(RunStore(store, "search")).clear(TARGETS, VIEW)
    assert CHECKPOINT in store.objects


def test_a_sweep_whose_credentials_may_not_delete_ends_all_the_same() -> None:
    """It stood in Ending for ever: `retention.bestCheckpoints` could not be carried out."""
    store = WithoutDeleting()
    store.put(CHECKPOINT, b"{}")
    RetiredFolders(RunStore(store, "search")).clear(TARGETS, VIEW)
    assert list(store.objects) == [CHECKPOINT]
