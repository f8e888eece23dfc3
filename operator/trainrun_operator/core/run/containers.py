"""The warning that a container beside the training has failed.

Layer: core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.core.run.view import counted

if TYPE_CHECKING:
    from trainrun_operator.core.run.view import View

CONTAINER_FAILED = "ContainerFailed"
"""Type of the condition."""


def failed_beside(view: View) -> tuple[str, str]:
    """Reason and message where one has ended badly: of the lowest slot, and in how many others.

    Ignores the pods of replaced workers, which are kept for their logs.
    """
    kept = [w for w in view.workers if w.phase != "Ended" or w in view.roster]
    found = [worker.failed_beside for worker in kept if worker.failed_beside]
    if not found:
        return "", ""
    others = f"; likewise in {counted(len(found) - 1, 'other worker')}" if len(found) > 1 else ""
    return "NonZeroExit", f"{found[0]}{others}"
