"""The verdict on one fault and on the whole drill; and when a notice that showed too little is
repeated.

Layer: cli; pure. What was not observed is never fine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from trainrun.contract.answer import OnNotice
from trainrun_operator.cli.drilling.comparing import (
    Compared,
    Difference,
    Tolerance,
    common_steps,
    compare,
    shows_weights,
)
from trainrun_operator.cli.drilling.findings import (
    FaultFreeBaseline,
    of_control,
    of_fault,
    of_own_files,
)
from trainrun_operator.cli.drilling.remedies import Finding, Kind
from trainrun_operator.cli.drilling.runs import (
    Curve,
    DrillRun,
    Scenario,
    detected,
    recovery,
    stages,
)
from trainrun_operator.cli.formatting import seconds as in_words

Outcome = Literal["Fine", "Found", "NotRehearsed"]
Curves = Literal["Equal", "WithinTolerance", "Differ", "NotCompared"]
Checkpoints = Literal["Equal", "Differ", "NotCompared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """The result of one fault."""

    scenario: Scenario
    outcome: Outcome
    why_not: str = ""
    """Why it was not rehearsed, or not all of it."""
    resumed_from: int | None = None
    """Step of the checkpoint; None: it started from scratch."""
    lost_steps: int = 0
    """Steps that had to be done again."""
    curves: Curves = "NotCompared"
    checkpoints: Checkpoints = "NotCompared"
    """Those saved after the resume, by content."""
    recovery: float | None = None
    """Seconds from the end of the first attempt to the first step of the last one."""
    detected: float | None = None
    """Seconds until the first failure was detected, if that is known; not part of `recovery`."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Stages of the recovery; empty: not known."""
    unclear: tuple[str, ...] = ()
    """Files of these checkpoints whose bytes differ, and whose content cannot be read."""
    committed: float | None = None
    """Seconds from a notice until its checkpoint was committed; None: none was."""
    curve: Curve = field(default_factory=dict)
    """Metrics after the resume, by step."""
    seconds: float = 0.0
    """Duration of the whole run."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A whole drill."""

    run: str
    """Name of the run that the file describes."""
    world_size: int
    until: int | None
    """The step that its runs went to; None: none was reported."""
    seconds: float
    within: Tolerance | None
    """From the two undisturbed runs; None: they were not both made, or reported no metrics."""
    curve: Curve = field(default_factory=dict)
    """Metrics of the first undisturbed run, by step."""
    control_findings: tuple[Finding, ...] = ()
    rehearsed: tuple[Rehearsed, ...] = ()
    notes: tuple[str, ...] = ()
    """What the reader should know first."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        return (
            *self.control_findings,
            *(f for rehearsed in self.rehearsed for f in rehearsed.findings),
        )

    @property
    def complete(self) -> bool:
        """Every fault was rehearsed."""
        return all(rehearsed.outcome != "NotRehearsed" for rehearsed in self.rehearsed)


def judge(scenario: Scenario, drill_run: DrillRun, baseline: FaultFreeBaseline) -> Rehearsed:
    """The verdict on one fault."""
    found = of_fault(scenario, drill_run, baseline)
    why_not = "" if found else not_observed(scenario, drill_run, baseline)
    handed, ran = drill_run.handed, drill_run.chapters
    compared = compare(drill_run, baseline.contents) if len(ran) > 1 else Compared()
    went_on = drill_run.struck and len(ran) > 1
    starts_over = any(finding.kind == "StartedOver" for finding in found)
    return Rehearsed(
        scenario=scenario,
        outcome="Found" if found else "NotRehearsed" if why_not else "Fine",
        why_not=why_not,
        resumed_from=None if handed is None or starts_over else handed.step,
        lost_steps=_lost(drill_run) if len(ran) > 1 else 0,
        curves=_curves(found, baseline.within, complete=not _cut_short(drill_run, baseline)),
        checkpoints=_checkpoints(compared),
        unclear=compared.unclear,
        recovery=recovery(drill_run),
        detected=detected(drill_run),
        stages=stages(drill_run),
        committed=drill_run.noticed.committed if scenario.name == "Notice" else None,
        curve=drill_run.curve(drill_run.last) if went_on else {},
        seconds=drill_run.seconds,
        findings=tuple(found),
    )


def findings_of_controls(
    controls: list[DrillRun], *, grace: float, on_notice: OnNotice
) -> tuple[Finding, ...]:
    """What all undisturbed runs show: one alone may have ended before a slow rank was ready."""
    if len(controls) == 2 and files_shared(*controls):
        return (of_own_files(*controls),)
    first, *others = (of_control(control, grace=grace, on_notice=on_notice) for control in controls)
    kinds_of_others = [{finding.kind for finding in found} for found in others]
    return tuple(
        finding for finding in first if all(finding.kind in kinds for kinds in kinds_of_others)
    )


def files_shared(first: DrillRun, second: DrillRun) -> bool:
    """Whether the second undisturbed run continued where the first one ended."""
    first_step = min(second.steps(1), default=None)
    if not first.steps(1) or not first.committed:
        return False
    if first_step is None:
        return second.ending == "Succeeded"
    return first_step > max(first.committed[0], min(first.steps(1)))


def not_observed(scenario: Scenario, drill_run: DrillRun, baseline: FaultFreeBaseline) -> str:
    """What of this fault could not be observed; empty: nothing is missing."""
    if not drill_run.struck:
        return "the fault never struck: the training ended before, or its time ran out"
    if len(drill_run.chapters) < 2:
        return "no attempt was started after the fault in the remaining time"
    if scenario.name == "KillAtEnd":
        return _not_at_end(scenario, drill_run)
    return (
        _not_as_planned(scenario, drill_run)
        or _by_luck(scenario, drill_run, baseline)
        or _not_comparable(baseline.control, baseline.within)
        or _cut_short(drill_run, baseline)
        or _blind(drill_run, baseline)
    )


def _not_as_planned(scenario: Scenario, drill_run: DrillRun) -> str:
    name, handed = scenario.name, drill_run.handed
    if name in ("KillAfterCheckpoint", "KillMidEpoch", "NodeLoss") and handed is None:
        return "no checkpoint was committed yet when the rank was killed"
    if name == "KillBeforeCheckpoint" and handed is not None:
        return f"the checkpoint of step {handed.step} was committed before the kill"
    if name != "CorruptNewest":
        return ""
    if drill_run.spoilt is None:
        return "no checkpoint was committed yet that could be damaged"
    if handed is not None and handed.step >= drill_run.spoilt:
        if drill_run.last in drill_run.opened:
            return f"the damaged file of the checkpoint of step {drill_run.spoilt} was never read"
        return f"the checkpoint of step {drill_run.spoilt} was damaged, but no rank opened it"
    return ""


TOO_EARLY = "the checkpoint of the last step was not committed yet when the rank was killed"


def _not_at_end(scenario: Scenario, drill_run: DrillRun) -> str:
    (fault,) = scenario.faults
    if drill_run.ending != "Succeeded":
        return "it did not end in the remaining time: raise --within"
    if drill_run.handed is None or drill_run.handed.step < fault.step:
        return TOO_EARLY
    return ""


def _by_luck(scenario: Scenario, drill_run: DrillRun, baseline: FaultFreeBaseline) -> str:
    """The run survived a notice with a checkpoint that it saved anyway."""
    if scenario.name != "Notice" or baseline.on_notice == "Stop":
        return ""
    if drill_run.handed is None or drill_run.noticed.reported is not None:
        return ""
    step = drill_run.handed.step
    if 0 < baseline.control.commit_gap < scenario.faults[0].grace / 2:
        return ""  # it saves so often that a notice changes nothing
    if step < scenario.faults[0].step or step not in baseline.control.committed:
        return ""
    return (
        f"the checkpoint of step {step} was saved anyway, so the drill did not see what a notice "
        "saves"
    )


def _not_comparable(control: DrillRun, within: Tolerance | None) -> str:
    if not control.steps(1) and control.reads_output:
        return (
            "only the step is known with which it continues: the output shows no metrics. Add a "
            "group such as loss to spec.progress.patterns, to see whether the save was loaded"
        )
    if not control.steps(1):
        return "rank 0 reports no metrics, so the drill cannot compare the curves"
    if within is None:
        return "there is no second undisturbed run to compare with"
    if not within.allowed and not within.noisy:
        return "no metric can be compared: all of them are about time or memory"
    return ""


def _blind(drill_run: DrillRun, baseline: FaultFreeBaseline) -> str:
    """Why a run that loads nothing would not differ by more than is allowed; empty: it would."""
    within, handed, until = baseline.within, drill_run.handed, baseline.until
    if handed is None or within is None:
        return ""
    if shows_weights(baseline.control.curve(1), within, after=handed.step, until=until):
        return ""
    if within.noisy:
        apart = ", ".join(
            f"{difference.metric} {_by(difference)}" for difference in within.largest[:3]
        )
        differ = apart or f"in {', '.join(within.noisy[:3])}"
        unread = "" if drill_run.last in drill_run.opened else "no rank opened the checkpoint, and "
        return (
            f"{unread}your two undisturbed runs differ ({differ}), so the curves show nothing: "
            "seed all random generators and the order of the data, and drill again"
        )
    return (
        "no metric shows whether anything was loaded: report the loss, which changes from the "
        "first steps to those after the resume"
    )


def _by(difference: Difference) -> str:
    return f"by {difference.size:.4g}" if math.isfinite(difference.size) else "at all"


def _cut_short(drill_run: DrillRun, baseline: FaultFreeBaseline) -> str:
    """Why the attempt after the fault has not done all steps; empty: it has."""
    control, until, reached = baseline.control, baseline.until, drill_run.reached(drill_run.last)
    # The last heartbeat of successful processes may be missed, their metrics are not.
    last = max((s for s in control.steps(1) if s <= until), default=until)
    if reached is None or reached >= (last if drill_run.ending == "Succeeded" else until):
        after = drill_run.handed.step if drill_run.handed is not None else -1
        common = common_steps(
            drill_run.curve(drill_run.last), control.curve(1), after=after, until=until
        )
        return "" if common else "no step after the resume was reported in the remaining time"
    ended = " and ended with exit code 0" if drill_run.ending == "Succeeded" else ""
    return f"after the fault it only got to step {reached} of {until}{ended}"


NOT_COMPARED = frozenset(
    {
        "StartedOver",
        "StepsRepeated",
        "StepsSkipped",
        "CheckpointNeverAsked",
        "OwnFilesUsed",
        "RecoveryFailed",
    }
)
"""Findings after which equal steps do not stand for equal work."""
MEASURED: frozenset[Kind] = frozenset({"SaveTooSlow", "SaveTooLate", "NoticeNotUsed"})
"""Findings after which the notice is repeated with enough time. NoticeNotUsed is one, since a rank
may keep calling should_save() while another one, or a thread, is saving."""
OTHER = MEASURED | {"CheckpointsDiffer", "ShouldSaveNeverAsked", "NoticeSavedNothing"}
"""Findings that say nothing about curves."""


def _lost(drill_run: DrillRun) -> int:
    """Steps that had to be done again: those of earlier attempts after the checkpoint of the last
    resume."""
    reached = max((chapter.reached or 0 for chapter in drill_run.chapters[:-1]), default=0)
    return max(reached - (drill_run.handed.step if drill_run.handed is not None else 0), 0)


def _curves(found: list[Finding], within: Tolerance | None, *, complete: bool) -> Curves:
    kinds = {finding.kind for finding in found} - OTHER
    if within is None or not within.allowed or not complete or kinds & NOT_COMPARED:
        return "NotCompared"
    if kinds:
        return "Differ"
    return "Equal" if within.exact else "WithinTolerance"


def _checkpoints(compared: Compared) -> Checkpoints:
    if not compared.steps:
        return "NotCompared"
    return "Differ" if compared.wrong else "Equal"


LONGER, MORE = 10.0, 30.0
"""Times the grace, and seconds in addition."""


def longer(rehearsed: Rehearsed) -> Scenario | None:
    """The notice with enough time to see when it saves; None if that is not the question."""
    kinds = {finding.kind for finding in rehearsed.findings}
    if rehearsed.scenario.name != "Notice" or not kinds & MEASURED:
        return None
    (fault,) = rehearsed.scenario.faults
    return replace(rehearsed.scenario, faults=(replace(fault, grace=LONGER * fault.grace + MORE),))


def earlier(rehearsed: Rehearsed, drill_run: DrillRun, *, until: int) -> Scenario | None:
    """The notice so early that twice as many steps may pass until it is saved; None if it was not
    too late, or cannot come earlier."""
    if rehearsed.scenario.name != "Notice" or rehearsed.outcome != "NotRehearsed":
        return None
    handed, first = drill_run.handed, min(drill_run.steps(1), default=until)
    if handed is None or handed.step < until:
        return None
    (fault,) = rehearsed.scenario.faults
    step = max(first, until - 2 * (handed.step - fault.step))
    if step >= fault.step:
        return None
    return replace(rehearsed.scenario, faults=(replace(fault, step=step),))


def with_measured(rehearsed: Rehearsed, drill_run: DrillRun) -> Rehearsed:
    """The verdict with what the longer grace has shown."""
    took = drill_run.noticed.committed
    if took is None:
        note = ". With a much longer grace it saved nothing either"
    else:
        note = (
            f". With a longer grace the checkpoint was committed {in_words(took)} after the "
            f"notice: set terminationGracePeriodSeconds to {math.ceil(1.5 * took)} to leave some "
            "room"
        )
    findings = list(rehearsed.findings)
    for number, finding in enumerate(findings):
        if finding.kind in MEASURED:
            kind = (
                "SaveTooSlow"
                if finding.kind == "NoticeNotUsed" and took is not None
                else finding.kind
            )
            findings[number] = replace(finding, kind=kind, text=finding.text + note)
    return replace(rehearsed, findings=tuple(findings), committed=took)
