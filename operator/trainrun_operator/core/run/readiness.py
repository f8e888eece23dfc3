"""Whether the script would hear of a notice in time: it saves where it asks `should_save()`.

Layer: core. Said before a notice comes, of scripts that ask at all: those that never do get SIGTERM
instead (see `sigterm`). What is told of the gap grows in steps, so that a long evaluation is not
told anew in every pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.view import View

SAVE_TOO_LATE = "SaveTooLate"
"""Type of the condition."""

TOLD_AGAIN = 1.5
"""A gap is told anew when it has grown by this factor."""


def warning(view: View, status: TrainRunStatus) -> str:
    """What a notice would cost, "" where it would be heard in time."""
    if view.running is None or view.all_done or view.config.on_notice in ("Signal", "Stop"):
        return ""
    grace = view.config.grace.total_seconds()
    gaps = {a.worker: a.ask_gap for a in view.agents if a is not None}
    known = status.condition(SAVE_TOO_LATE)
    worker = max(gaps, key=lambda name: gaps[name], default="")
    if not worker or gaps[worker] <= grace:
        # A new leader has not heard everybody yet: that nobody says it any more is no news.
        return known.message if known is not None and None in view.agents else ""
    gap = max(grace, 1.0)
    while gap * TOLD_AGAIN <= gaps[worker]:
        gap *= TOLD_AGAIN
    text = f"has not asked should_save() for {gap:.0f} s or more (worker {worker})"
    if known is not None and text in known.message:
        return known.message
    return (
        f"a notice of {grace:.0f} s would lose {_at_stake(status)}: the script {text}; ask in "
        "evaluation loops and before long work, too, or raise terminationGracePeriodSeconds"
    )


def _at_stake(status: TrainRunStatus) -> str:
    """What was trained since the newest checkpoint, at the moment when it is told."""
    step, saved = status.progress.step, status.checkpoint
    done = (step or 0) - (saved.step if saved is not None else 0)
    return f"{done} steps" if done > 1 else "what was trained since the newest checkpoint"
