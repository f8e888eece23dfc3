"""Budgets of a time: with failurePolicy.window only the incidents of so long count.

Layer: core. Pure by the times at which incidents were written, so that no pass decides otherwise
for being late. The counters in the status stay what they are; beside them stand the moments of the
newest incidents of each budget. They are bounded, and so is, with a window, each limit: more than
are remembered could not be told from fewer.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from trainrun_operator.api.run.spec import MAX_IN_WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainrun_operator.api.run.incident import BudgetName, Incident
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.config import RunConfig

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DIGITS = 13
"""Hexadecimal digits of a moment, in microseconds since 1970: until the year 2112. No shorter than
the times themselves: a moment cut to its second would leave the window before its incident does."""

KEPT = (MAX_IN_WINDOW + 1) * DIGITS
"""Characters of the moments of a budget: of as many incidents as any limit allows, and one more."""


def remembered(moments: Mapping[str, str], incident: Incident) -> dict[str, str]:
    """The moments, with that of an incident which was charged to its budget."""
    known = moments.get(incident.budget, "")
    now = f"{_microseconds(incident.time):0{DIGITS}x}"
    return {**moments, incident.budget: f"{known}{now}"[-KEPT:]}


def recent(
    status: TrainRunStatus, name: BudgetName, config: RunConfig, *, at: datetime
) -> int | None:
    """Incidents charged to the budget in the window before this moment; None: there is none."""
    if config.window is None:
        return None
    begin = _microseconds(at - config.window)
    text = status.moments.get(name, "")
    known = (int(text[i : i + DIGITS], 16) for i in range(0, len(text), DIGITS))
    return sum(begin < moment for moment in known)  # also those of a leader whose clock was ahead


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
