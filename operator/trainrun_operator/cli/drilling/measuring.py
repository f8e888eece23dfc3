"""A notice that did not show what it was to show, and how it is given once more.

Layer: cli; pure. With a longer grace, where a save did not fit: how long does it take? Earlier,
where so many steps were done before it was saved that none was left to compare.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.cli.wording import seconds as in_words

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.rehearsed import Rehearsed
    from trainrun_operator.cli.drilling.remedies import Kind
    from trainrun_operator.cli.drilling.scenarios import Scenario

MEASURED: frozenset[Kind] = frozenset({"SaveTooSlow", "SaveTooLate", "NoticeNotUsed"})
"""The last one, since a rank may go on asking while another one, or a thread, is saving."""
LONGER, MORE = 10.0, 30.0
"""Times the grace, and seconds beside that."""


def longer(told: Rehearsed) -> Scenario | None:
    """The notice with time enough to see when it saves; None where that is not the question."""
    kinds = {finding.kind for finding in told.findings}
    if told.scenario.name != "Notice" or not kinds & MEASURED:
        return None
    (fault,) = told.scenario.faults
    return replace(told.scenario, faults=(replace(fault, grace=LONGER * fault.grace + MORE),))


def earlier(told: Rehearsed, course: Course, *, until: int) -> Scenario | None:
    """The notice so early that twice as many steps may be done until it is saved; None where it was
    not too late, or cannot come so early."""
    if told.scenario.name != "Notice" or told.outcome != "NotRehearsed":
        return None
    handed, first = course.handed, min(course.steps(1), default=until)
    if handed is None or handed.step < until:
        return None
    (fault,) = told.scenario.faults
    step = max(first, until - 2 * (handed.step - fault.step))
    return (
        replace(told.scenario, faults=(replace(fault, step=step),)) if step < fault.step else None
    )


def with_measured(told: Rehearsed, course: Course) -> Rehearsed:
    """The verdict with what the longer grace has shown."""
    took = course.noticed.committed
    if took is None:
        said = ". With a much longer grace it saved nothing either"
    else:
        said = (
            f". With a longer grace it was committed {in_words(took)} after the notice: "
            f"terminationGracePeriodSeconds of {math.ceil(1.5 * took)} would leave some room"
        )
    findings = tuple(
        replace(it, kind=_measured(it.kind, took), text=it.text + said)
        if it.kind in MEASURED
        else it
        for it in told.findings
    )
    return replace(told, findings=findings, committed=took)


def _measured(kind: Kind, took: float | None) -> Kind:
    return "SaveTooSlow" if kind == "NoticeNotUsed" and took is not None else kind
