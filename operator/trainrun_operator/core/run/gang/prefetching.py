"""What the next attempt will most likely resume from, and who reads it before that is claimed.

Layer: core. A wrong guess costs a download and nothing else: what is handed out is what slot 0's
agent claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.core.run.flush import to_flush
from trainrun_operator.core.run.gang import roster as gang
from trainrun_operator.core.run.steps import newest_known

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.core.run.view import View


def prefetched(view: View) -> dict[str, CheckpointId]:
    """By name of the worker whose agent reads it, for its node: the lowest slot of each, as it will
    be once the attempt runs."""
    likely = _likely(view)
    if likely is None:
        return {}
    found: dict[str, str] = {}
    for worker in gang.choose(view):
        if worker is not None and worker.agent is not None:
            found.setdefault(worker.node or worker.agent.node or worker.name, worker.name)
    return dict.fromkeys(found.values(), likely)


def _likely(view: View) -> CheckpointId | None:
    """The newest that is in the store; none while something newer is on its way there."""
    known, flush = newest_known(view), to_flush(view)
    if known is None or not flush:
        return known
    return known if (known.attempt, known.step) >= (view.status.attempt, max(flush)) else None
