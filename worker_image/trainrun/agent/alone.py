"""A notice, and no operator to be reached: what it would have ordered of a script that never asks.

Layer: agent, pure. The operator's own rules are those of `core/run/sigterm.py`; here they are
followed for the processes of one worker, since no agent can tell others of its notice. A script
that asks `should_save()` gets nothing: its ranks save together, or none of them does.
"""

from __future__ import annotations

from trainrun.contract.answer import RunSettings

PATIENCE = 5.0
"""Seconds without an answer after a notice: an operator that is there answers it at once."""
SILENCE = 15.0
"""Seconds without an answer of an operator that has heard of the notice: it holds answers back for
up to ten."""
SHARE = 4
"""One part in so many of the time that is left is kept for uploads, where `flush_timeout` is not
shorter; and patience takes no more of it."""


def out_of_reach(*, noticed: float, grace: float, answered: float, now: float) -> bool:
    """Whether nobody else will decide: the times of notice and last answer are monotonic."""
    if answered >= noticed:
        return now - answered >= SILENCE
    return now - noticed >= min(PATIENCE, grace / SHARE)


def signals(settings: RunSettings, *, asks: bool) -> bool:
    """Whether the script gets SIGTERM; `asks`: it has called `should_save()` in this attempt."""
    return settings.on_notice == "Signal" or (settings.on_notice == "Auto" and not asks)


def time_to_end(settings: RunSettings, *, left: float) -> float:
    """Seconds that its processes have, of those that the worker has left."""
    return max(0.0, left - min(settings.flush_timeout, left / SHARE))
