"""What the next attempt of a run would resume from, without starting one.

Layer: rules over `RunStore`, read-only; used by `trainrun checkpoints --can-resume`. Invariant: the
answer is that of `resolve`, over a store that takes no writes; nothing here chooses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.ownership import BeatWatch, owner_uid
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.stores.read_only import ReadOnlyStore

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.run_store import RunStore
    from trainrun.contract.agent_state import Resolution

TRIES = 5
"""While the run is on, an attempt or a checkpoint may come between the look and the answer."""


def next_resolution(run: RunStore) -> Resolution:
    """What the agent would be told that claimed the next attempt now, for the run's last owner.

    Whether that owner lives does not matter. Raises StoreError.
    """
    found = _ask(run)
    for _ in range(TRIES - 1):
        if found.outcome not in ("Behind", "InUse"):
            break
        found = _ask(run)
    return found


def _ask(run: RunStore) -> Resolution:
    return resolve(
        replace(run, store=ReadOnlyStore(run.store)),
        uid=owner_uid(run),
        generation=run.generation,
        attempt=max(run.attempts(), default=0) + 1,
        watch=BeatWatch(),
    )
