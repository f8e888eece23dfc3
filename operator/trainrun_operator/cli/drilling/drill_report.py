"""A drill as a report: the verdict on each fault, the curves, and what would go wrong.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainrun_operator.cli.drilling.comparing import Tolerance, about_machine
from trainrun_operator.cli.drilling.remedies import Finding
from trainrun_operator.cli.drilling.runs import Curve, FaultName
from trainrun_operator.cli.drilling.verdicts import Curves as Compared
from trainrun_operator.cli.drilling.verdicts import Drill, Outcome, Rehearsed
from trainrun_operator.cli.formatting import counted, some, stages
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.report.model import (
    Advice,
    Curves,
    Document,
    Point,
    Recommendations,
    Section,
    Table,
    TableRow,
    TextLine,
    Tone,
)

LONG = 1.0
"""Seconds from which the time until a failure was detected is shown."""
MOST_NAMED = 5
"""Metrics in a sentence, at most."""

FAULTS: dict[FaultName, str] = {
    "KillAfterCheckpoint": "kill after a checkpoint",
    "KillWhileSaving": "kill while saving",
    "Notice": "notice",
    "KillBeforeCheckpoint": "kill before the first",
    "KillMidEpoch": "kill mid-epoch",
    "KillAtEnd": "kill at the end",
    "CorruptNewest": "newest damaged",
    "StoreAway": "store away",
    "DoubleFailure": "kill in the recovery",
    "NodeLoss": "node lost",
    "Hang": "hang",
}
OUTCOMES: dict[Outcome, tuple[str, Tone]] = {
    "Fine": ("fine", "good"),
    "Found": ("FOUND", "bad"),
    "NotRehearsed": ("not rehearsed", "note"),
}
CURVES: dict[Compared, str] = {
    "Equal": "equal",
    "WithinTolerance": "close",
    "Differ": "differ",
    "NotCompared": "-",
}
HEADS = ("fault", "verdict", "resumed from", "lost", "curves", "recovery")


def report_of(drill: Drill, *, exit_code: int, pictures: int = 0) -> Document:
    """The whole report, with the curves of at most `pictures` metrics."""
    to = f"to step {drill.until}" if drill.until is not None else "without a step"
    size = counted(drill.world_size, "process")
    table = Table(heads=HEADS, rows=tuple(map(_row, drill.rehearsed)))
    drawn = curves(drill, most=pictures)
    where = "" if drill.complete else " in what was rehearsed"
    return Document(
        name=f"Drill of {drill.run}",
        headline=f"Drill of {drill.run}: {size}, {to}, {in_words(drill.seconds)}",
        tone="bad" if drill.findings else "good" if drill.complete else "note",
        lead=tuple(map(TextLine, (*control_lines(drill.within), *drill.notes))),
        sections=(
            Section(title="Faults", blocks=(table,)),
            *((Section(title="Curves", blocks=(drawn,)),) if drawn.pictures else ()),
        ),
        advice=Recommendations(
            title="What would go wrong",
            items=tuple(_advice(drill)),
            otherwise=f"Nothing was found{where}.",
        ),
        data=_data(drill, exit_code),
    )


def control_lines(within: Tolerance | None) -> Iterator[str]:
    """How equal two undisturbed runs are."""
    if within is None:
        yield "two undisturbed runs could not be compared"
        return
    if within.exact:
        named = some(within.allowed, MOST_NAMED) or "none that can be compared"
        yield f"two undisturbed runs are equal in {within.steps} steps (metrics: {named})"
        if within.noisy:
            named = some(within.noisy, MOST_NAMED)
            yield f"not compared, since the two undisturbed runs differ in them: {named}"
    for difference in () if within.exact else within.largest[:MOST_NAMED]:
        apart = (
            f"by {difference.size:.4g}" if math.isfinite(difference.size) else "and is not a number"
        )
        allowed = within.allowed.get(difference.metric)
        so = "It is not compared" if allowed is None else f"{allowed:.4g} is allowed"
        yield (
            f"the script is not reproducible: {difference.metric} of two undisturbed runs "
            f"differs {apart} in step {difference.step}. {so} after a resume"
        )
    if within.skipped:
        named = some(within.skipped, MOST_NAMED)
        yield f"not compared, since they are named after time, speed or memory: {named}"


def _row(rehearsed: Rehearsed) -> TableRow:
    verdict, tone = OUTCOMES[rehearsed.outcome]
    resumed = (
        f"step {rehearsed.resumed_from}" if rehearsed.resumed_from is not None else "the start"
    )
    progress = (resumed, str(rehearsed.lost_steps)) if rehearsed.seconds else ("-", "-")
    fault, back = FAULTS[rehearsed.scenario.name], in_words(rehearsed.recovery)
    return TableRow(
        cells=(fault, verdict, *progress, CURVES[rehearsed.curves], back),
        below=tuple(_below(rehearsed)),
        tone=tone,
    )


def _below(rehearsed: Rehearsed) -> Iterator[str]:
    """Why it was not rehearsed, the stages of the recovery, and when a notice's save was
    committed."""
    if rehearsed.why_not:
        yield rehearsed.why_not
    if rehearsed.stages:
        late = rehearsed.detected is not None and rehearsed.detected >= LONG
        found = f"detected after {in_words(rehearsed.detected)}, " if late else ""
        yield f"{found}{stages(rehearsed.stages)}"
    if rehearsed.committed is not None:
        (fault,) = rehearsed.scenario.faults
        took = in_words(rehearsed.committed)
        yield f"committed {took} after the notice (grace {in_words(fault.grace)})"


def _advice(drill: Drill) -> Iterator[Advice]:
    """Each kind of finding once, with all faults that showed it."""
    findings = [("undisturbed", finding) for finding in drill.control_findings]
    findings += [
        (FAULTS[rehearsed.scenario.name], found)
        for rehearsed in drill.rehearsed
        for found in rehearsed.findings
    ]
    for kind in dict.fromkeys(finding.kind for _, finding in findings):
        (where, first), *others = (
            (where, finding) for where, finding in findings if finding.kind == kind
        )
        also = f" (also: {', '.join(fault for fault, _ in others)})" if others else ""
        yield Advice(kind=kind, text=f"{where}: {first.text}{also}", remedy=first.remedy)


def curves(drill: Drill, *, most: int) -> Curves:
    """Curves of at most `most` metrics, those named as losses first. The undisturbed run is the one
    that the others are compared with."""
    names = dict.fromkeys(name for metrics in drill.curve.values() for name in metrics)
    compared = drill.within.allowed if drill.within is not None else {}
    drawn = [name for name in names if name in compared or not about_machine(name)]
    drawn.sort(key=lambda name: "loss" not in name.lower())
    runs = (drill.curve, *(rehearsed.curve for rehearsed in drill.rehearsed))
    pictures = {
        name: {at: points for at, run in enumerate(runs) if (points := _points(run, name, drill))}
        for name in drawn
        if len(_points(drill.curve, name, drill)) > 1
    }
    return Curves(
        names=("undisturbed", *(FAULTS[rehearsed.scenario.name] for rehearsed in drill.rehearsed)),
        pictures=dict(list(pictures.items())[:most]),
        compared=True,
    )


def _points(curve: Curve, metric: str, drill: Drill) -> tuple[Point, ...]:
    """By step; only finite numbers."""
    last = math.inf if drill.until is None else drill.until
    values = ((step, curve[step].get(metric)) for step in sorted(curve) if step <= last)
    return tuple(
        (step, float(value))
        for step, value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )


def _data(drill: Drill, exit_code: int) -> dict[str, object]:
    """The schema is in docs/drill.md."""
    findings = [(None, finding) for finding in drill.control_findings]
    of_faults = [
        (rehearsed.scenario.name, found)
        for rehearsed in drill.rehearsed
        for found in rehearsed.findings
    ]
    return {
        "version": 1,
        "run": drill.run,
        "exitCode": exit_code,
        "worldSize": drill.world_size,
        "untilStep": drill.until,
        "seconds": drill.seconds,
        "control": drill.within and _control(drill.within),
        "faults": [_fault(rehearsed) for rehearsed in drill.rehearsed],
        "findings": [_finding(fault, finding) for fault, finding in (*findings, *of_faults)],
        "notes": list(drill.notes),
    }


def _control(within: Tolerance) -> dict[str, object]:
    return {
        "equal": within.exact,
        "steps": within.steps,
        "allowed": dict(within.allowed),
        "differences": [
            {
                "metric": difference.metric,
                "step": difference.step,
                "difference": _finite(difference.size),
            }
            for difference in within.largest
        ],
        "notCompared": [*within.skipped, *within.noisy],
    }


def _finite(size: float) -> float | None:
    """JSON has no infinity."""
    return size if math.isfinite(size) else None


def _fault(rehearsed: Rehearsed) -> dict[str, object]:
    return {
        "name": rehearsed.scenario.name,
        "fault": rehearsed.scenario.shown or None,
        "store": rehearsed.scenario.store,
        "outcome": rehearsed.outcome,
        "whyNot": rehearsed.why_not,
        "resumedFrom": rehearsed.resumed_from,
        "lostSteps": rehearsed.lost_steps,
        "curves": rehearsed.curves,
        "checkpoints": rehearsed.checkpoints,
        "detectSeconds": rehearsed.detected,
        "recoverySeconds": rehearsed.recovery,
        "stages": dict(rehearsed.stages),
        "committedSeconds": rehearsed.committed,
        "seconds": rehearsed.seconds,
    }


def _finding(fault: str | None, finding: Finding) -> dict[str, object]:
    return {"kind": finding.kind, "fault": fault, "text": finding.text, "remedy": finding.remedy}
