"""Runs that drills have left in a cluster which were killed: the next drill of the same run removes
each with its folder.

Layer: cli. Invariant: what is named as left behind was made by a drill, ended so long ago that this
drill would have removed it, and nobody else has ever used its folder.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from trainrun.checkpoint.ownership import claimants
from trainrun.contract import layout
from trainrun_operator.cli.drilling.cluster.document import LABEL

if TYPE_CHECKING:
    from trainrun.checkpoint.run_store import RunStore
    from trainrun_operator.api.resources import TrainRun
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.worlds.kubernetes.run_object import RunVersion

OVER = timedelta(hours=1)
"""After the end of a run: a drill removes it within minutes. Longer, since the end was written by
the clock of its operator."""
_NAME = re.compile(r".+-drill-[0-9a-f]{4}-\d+")


def is_left_behind(version: RunVersion, *, of: TrainRun) -> bool:
    """Whether a drill of this run has made it, with its folder in the storage of this run, and has
    not removed it in time."""
    made, name, ended = version.run, version.run.metadata.name, _ended(version.status)
    storage, users = made.spec.storage, of.spec.storage
    return (
        _NAME.fullmatch(name) is not None
        and made.metadata.labels.get(LABEL) == of.metadata.name
        and (storage.run_name, storage.on_existing) == (name, "Fail")
        and (storage.uri, storage.endpoint_url) == (users.uri, users.endpoint_url)
        and ended is not None
        and datetime.now(UTC) - ended > OVER
    )


def is_its_own(folder: RunStore, uid: str) -> bool:
    """Whether nobody but this TrainRun has ever used the folder. Raises StoreError."""
    # Whoever has begun anew in it, beside what it holds, need not have claimed the folder itself.
    return claimants(folder) <= {uid} and not folder.objects(layout.GENERATIONS)


def _ended(status: TrainRunStatus) -> datetime | None:
    """When its verdict was written, or it was suspended, which is how a drill ends it."""
    suspended = status.condition("Suspended")
    if status.finished:
        return status.completion_time
    if suspended is not None and suspended.status == "True":
        return suspended.last_transition_time
    return None
