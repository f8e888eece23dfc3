"""The verdict on one fault, and on the whole drill.

Layer: cli; pure. What was not seen is never fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainrun_operator.cli.drilling.curves import compared_steps
from trainrun_operator.cli.drilling.findings import Finding, of_control, of_fault
from trainrun_operator.cli.explaining.figures import lost_steps

if TYPE_CHECKING:
    from trainrun.contract.answer import OnNotice
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.curves import Tolerance
    from trainrun_operator.cli.drilling.scenarios import Scenario

Outcome = Literal["Fine", "Found", "NotRehearsed"]
Curves = Literal["Equal", "WithinTolerance", "Differ", "NotCompared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What came of one fault."""

    scenario: Scenario
    outcome: Outcome
    why_not: str = ""
    """Why it was not rehearsed, or not all of it."""
    resumed_from: int | None = None
    """Step of the checkpoint; None: it began from nothing."""
    lost_steps: int = 0
    """That had to be done again."""
    curves: Curves = "NotCompared"
    recovery: float | None = None
    """Seconds from the end of the first attempt to the first step of the next."""
    seconds: float = 0.0
    """The whole run took."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """All of a drill."""

    run: str
    """Name of the run that the file describes."""
    world_size: int
    until: int | None
    """The step that its runs went to; None: none was reported."""
    seconds: float
    within: Tolerance | None
    """From the two undisturbed runs; None: they were not both made, or told no metrics."""
    control_findings: tuple[Finding, ...] = ()
    rehearsed: tuple[Rehearsed, ...] = ()
    notes: tuple[str, ...] = ()
    """What the reader should know first."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them."""
        return (*self.control_findings, *(f for it in self.rehearsed for f in it.findings))

    @property
    def complete(self) -> bool:
        """Everything was rehearsed."""
        return all(it.outcome != "NotRehearsed" for it in self.rehearsed)


def judge(
    scenario: Scenario,
    course: Course,
    control: Course,
    within: Tolerance | None,
    *,
    until: int,
    on_notice: OnNotice,
) -> Rehearsed:
    """The verdict on one fault."""
    found = of_fault(scenario, course, control, within, until=until, on_notice=on_notice)
    why_not = "" if found else _unseen(scenario, course, control, within, until=until)
    handed, ran = course.handed, course.chapters
    return Rehearsed(
        scenario=scenario,
        outcome="Found" if found else "NotRehearsed" if why_not else "Fine",
        why_not=why_not,
        resumed_from=handed.step if handed is not None else None,
        lost_steps=lost_steps(ran[0]) if len(ran) > 1 else 0,
        curves=_curves(found, within, seen=not _cut_short(course, control, until)),
        recovery=_recovery(course),
        seconds=course.seconds,
        findings=tuple(found),
    )


def findings_of_controls(controls: list[Course]) -> tuple[Finding, ...]:
    """What all undisturbed runs show: one alone may have ended before a slow rank got ready."""
    each = [of_control(control) for control in controls]
    return tuple(each[0]) if each and all(each) else ()


def _compared(course: Course, control: Course, until: int) -> int:
    after = course.handed.step if course.handed is not None else -1
    return compared_steps(course.curve(2), control.curve(1), after=after, until=until)


def _unseen(
    scenario: Scenario,
    course: Course,
    control: Course,
    within: Tolerance | None,
    *,
    until: int,
) -> str:
    """What of this fault could not be seen; empty: nothing is missing."""
    if not course.struck:
        return "the fault never struck: the training was over before, or out of time"
    if len(course.chapters) < 2:
        return "no attempt was started after the fault in the time that was left"
    if scenario.name == "KillAfterCheckpoint" and course.handed is None:
        return "no checkpoint was committed yet when the rank was killed"
    if scenario.name == "KillBeforeCheckpoint" and course.handed is not None:
        return f"the checkpoint of step {course.handed.step} was committed before the kill"
    if not control.steps(1):
        return "rank 0 reports no metrics: whether the training goes on equally was not seen"
    if within is None:
        return "there is no second undisturbed run to compare with"
    if not within.allowed:
        return "no metric can be compared: all of them are about time or memory, or no numbers"
    return _cut_short(course, control, until)


def _cut_short(course: Course, control: Course, until: int) -> str:
    """Where the attempt after the fault has not done all steps to `until`."""
    reached = course.reached(2)
    # Of processes that have ended well the last heartbeat may be missed, their metrics are not.
    last = max((s for s in control.steps(1) if s <= until), default=until)
    if reached is None or reached >= (last if course.ending == "Succeeded" else until):
        seen = _compared(course, control, until)
        return "" if seen else "no step after the resume was reported in the time that was left"
    ended = " and ended with exit code 0" if course.ending == "Succeeded" else ""
    return f"after the fault it got to step {reached} of {until} only{ended}"


def _curves(found: list[Finding], within: Tolerance | None, *, seen: bool) -> Curves:
    if any(finding.kind == "CurvesDiffer" for finding in found):
        return "Differ"
    mixed = {"StepsRepeated", "StepsSkipped", "CheckpointIgnored", "RecoveryFailed"}
    if within is None or not within.allowed or not seen or mixed & {f.kind for f in found}:
        return "NotCompared"
    return "Equal" if within.exact else "WithinTolerance"


def _recovery(course: Course) -> float | None:
    if len(course.chapters) < 2:
        return None
    ended, first = course.chapters[0].ended, course.chapters[1].first_step
    return (first - ended).total_seconds() if ended is not None and first is not None else None
