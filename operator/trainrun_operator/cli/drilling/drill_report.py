"""A drill as a report: the verdict on each fault, the curves over each other, what would go wrong.

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
"""Seconds until a failure was found that are worth a word."""
MOST_NAMED = 5
"""Metrics in a sentence."""

FAULTS: dict[FaultName, str] = {
    "KillAfterCheckpoint": "kill after a checkpoint",
    "KillWhileSaving": "kill while saving",
    "Notice": "notice",
    "KillBeforeCheckpoint": "kill before the first",
    "KillMidEpoch": "kill in mid-epoch",
    "KillAtEnd": "kill at the end",
    "CorruptNewest": "newest one damaged",
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
    "WithinTolerance": "as close",
    "Differ": "differ",
    "NotCompared": "-",
}
HEADS = ("fault", "verdict", "resumed from", "lost", "curves", "back after")


def report_of(drill: Drill, *, exit_code: int, pictures: int = 0) -> Document:
    """All of it, with the curves of so many metrics at most."""
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
    """What two undisturbed runs say of each other."""
    if within is None:
        yield "two undisturbed runs could not be compared"
        return
    if within.exact:
        named = some(within.allowed, MOST_NAMED) or "none that can be compared"
        yield f"two undisturbed runs are equal in {within.steps} steps (metrics: {named})"
        if within.noisy:
            named = some(within.noisy, MOST_NAMED)
            yield f"not compared, since the two undisturbed runs differ in them: {named}"
    for it in () if within.exact else within.largest[:MOST_NAMED]:
        apart = f"by {it.size:.4g}" if math.isfinite(it.size) else "and is no number"
        allowed = within.allowed.get(it.metric)
        so = "It is not compared" if allowed is None else f"{allowed:.4g} is allowed"
        yield (
            f"the script does not equal itself: {it.metric} of two undisturbed runs differs "
            f"{apart} in step {it.step}. {so} after a resume"
        )
    if within.skipped:
        named = some(within.skipped, MOST_NAMED)
        yield f"not compared, since they are named after time, speed or memory: {named}"


def _row(it: Rehearsed) -> TableRow:
    verdict, tone = OUTCOMES[it.outcome]
    resumed = f"step {it.resumed_from}" if it.resumed_from is not None else "the start"
    seen = (resumed, str(it.lost_steps)) if it.seconds else ("-", "-")
    fault, back = FAULTS[it.scenario.name], in_words(it.recovery)
    return TableRow(
        cells=(fault, verdict, *seen, CURVES[it.curves], back), below=tuple(_below(it)), tone=tone
    )


def _below(it: Rehearsed) -> Iterator[str]:
    """Why it was not rehearsed, the parts of the recovery, what a notice has saved."""
    if it.why_not:
        yield it.why_not
    if it.stages:
        late = it.detected is not None and it.detected >= LONG
        found = f"found after {in_words(it.detected)}, " if late else ""
        yield f"{found}{stages(it.stages)}"
    if it.committed is not None:
        (fault,) = it.scenario.faults
        yield f"committed {in_words(it.committed)} after the notice, of {in_words(fault.grace)}"


def _advice(drill: Drill) -> Iterator[Advice]:
    """Each kind once, however many faults have shown it."""
    told = [("undisturbed", it) for it in drill.control_findings]
    told += [(FAULTS[it.scenario.name], found) for it in drill.rehearsed for found in it.findings]
    for kind in dict.fromkeys(it.kind for _, it in told):
        (where, first), *others = ((where, it) for where, it in told if it.kind == kind)
        also = f" (likewise: {', '.join(it for it, _ in others)})" if others else ""
        yield Advice(kind=kind, text=f"{where}: {first.text}{also}", remedy=first.remedy)


def curves(drill: Drill, *, most: int) -> Curves:
    """Of so many metrics at most: those that are named as losses first. The undisturbed run is the
    one that the others are compared with."""
    names = dict.fromkeys(name for metrics in drill.curve.values() for name in metrics)
    compared = drill.within.allowed if drill.within is not None else {}
    shown = [name for name in names if name in compared or not about_machine(name)]
    shown.sort(key=lambda name: "loss" not in name.lower())
    runs = (drill.curve, *(it.curve for it in drill.rehearsed))
    pictures = {
        name: {at: points for at, run in enumerate(runs) if (points := _points(run, name, drill))}
        for name in shown
        if len(_points(drill.curve, name, drill)) > 1
    }
    return Curves(
        names=("undisturbed", *(FAULTS[it.scenario.name] for it in drill.rehearsed)),
        pictures=dict(list(pictures.items())[:most]),
        compared=True,
    )


def _points(curve: Curve, metric: str, drill: Drill) -> tuple[Point, ...]:
    """By step; what is no finite number is left out."""
    last = math.inf if drill.until is None else drill.until
    told = ((step, curve[step].get(metric)) for step in sorted(curve) if step <= last)
    return tuple(
        (step, float(value))
        for step, value in told
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )


def _data(drill: Drill, exit_code: int) -> dict[str, object]:
    """docs/drill.md is its schema."""
    findings = [(None, it) for it in drill.control_findings]
    of_faults = [(it.scenario.name, found) for it in drill.rehearsed for found in it.findings]
    return {
        "version": 1,
        "run": drill.run,
        "exitCode": exit_code,
        "worldSize": drill.world_size,
        "untilStep": drill.until,
        "seconds": drill.seconds,
        "control": drill.within and _control(drill.within),
        "faults": [_fault(it) for it in drill.rehearsed],
        "findings": [_finding(fault, it) for fault, it in (*findings, *of_faults)],
        "notes": list(drill.notes),
    }


def _control(within: Tolerance) -> dict[str, object]:
    return {
        "equal": within.exact,
        "steps": within.steps,
        "allowed": dict(within.allowed),
        "differences": [
            {"metric": it.metric, "step": it.step, "difference": _finite(it.size)}
            for it in within.largest
        ],
        "notCompared": [*within.skipped, *within.noisy],
    }


def _finite(size: float) -> float | None:
    """JSON has no infinity."""
    return size if math.isfinite(size) else None


def _fault(it: Rehearsed) -> dict[str, object]:
    return {
        "name": it.scenario.name,
        "fault": it.scenario.shown or None,
        "store": it.scenario.store,
        "outcome": it.outcome,
        "whyNot": it.why_not,
        "resumedFrom": it.resumed_from,
        "lostSteps": it.lost_steps,
        "curves": it.curves,
        "checkpoints": it.checkpoints,
        "detectSeconds": it.detected,
        "recoverySeconds": it.recovery,
        "stages": dict(it.stages),
        "committedSeconds": it.committed,
        "seconds": it.seconds,
    }


def _finding(fault: str | None, it: Finding) -> dict[str, object]:
    return {"kind": it.kind, "fault": fault, "text": it.text, "remedy": it.remedy}
