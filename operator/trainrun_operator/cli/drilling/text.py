"""A drill in lines for people.

Layer: cli; pure.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainrun_operator.cli.wording import seconds as in_words

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.rehearsed import Curves, Drill, Outcome, Rehearsed
    from trainrun_operator.cli.drilling.remedies import Kind
    from trainrun_operator.cli.drilling.scenarios import FaultName

WIDTH = 79
LONG = 1.0
"""Seconds until a failure was found that are worth a word."""

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
OUTCOMES: dict[Outcome, str] = {
    "Fine": "fine",
    "Found": "FOUND",
    "NotRehearsed": "not rehearsed",
}
STAGES = {
    "stop": "stop",
    "start": "start",
    "rendezvous": "rendezvous",
    "load": "load",
    "firstStep": "first step",
}
CURVES: dict[Curves, str] = {
    "Equal": "equal",
    "WithinTolerance": "as close",
    "Differ": "differ",
    "NotCompared": "-",
}


def lines(drill: Drill) -> Iterator[str]:
    """All of it."""
    to = f"to step {drill.until}" if drill.until is not None else "without a step"
    word = "process" if drill.world_size == 1 else "processes"
    yield f"Drill of {drill.run}: {drill.world_size} {word}, {to}, {in_words(drill.seconds)}"
    for text in (*control_lines(drill), *drill.notes):
        yield from _wrapped(text, "  ")
    yield ""
    yield _row("fault", "verdict", "resumed from", "lost", "curves", "back after")
    for it in drill.rehearsed:
        yield from _verdict(it)
    yield ""
    yield from _findings(drill)


def control_lines(drill: Drill) -> Iterator[str]:
    """What two undisturbed runs say of each other."""
    within = drill.within
    if within is None:
        yield "two undisturbed runs could not be compared"
    elif within.exact:
        named = ", ".join(list(within.allowed)[:5]) or "none that can be compared"
        yield f"two undisturbed runs are equal in {within.steps} steps (metrics: {named})"
    else:
        for it in within.largest[:5]:
            apart = f"by {it.size:.4g}" if math.isfinite(it.size) else "and is no number"
            allowed = within.allowed.get(it.metric)
            so = "It is not compared" if allowed is None else f"{allowed:.4g} is allowed"
            yield (
                f"the script does not equal itself: {it.metric} of two undisturbed runs differs "
                f"{apart} in step {it.step}. {so} after a resume"
            )
    if within is not None and within.noisy and within.exact:
        named = ", ".join(within.noisy[:5])
        yield f"not compared, since the two undisturbed runs differ in them: {named}"
    if within is not None and within.skipped:
        more = f" and {len(within.skipped) - 5} more" if len(within.skipped) > 5 else ""
        yield (
            "not compared, since they are named after time, speed or memory: "
            f"{', '.join(within.skipped[:5])}{more}"
        )


def _verdict(it: Rehearsed) -> Iterator[str]:
    seen = bool(it.seconds)
    resumed = f"step {it.resumed_from}" if it.resumed_from is not None else "the start"
    yield _row(
        FAULTS[it.scenario.name],
        OUTCOMES[it.outcome],
        resumed if seen else "-",
        str(it.lost_steps) if seen else "-",
        CURVES[it.curves],
        in_words(it.recovery),
    )
    if it.why_not:
        yield from _wrapped(it.why_not, "    ")
    if it.stages:
        yield from _wrapped(stage_words(it), "    ")
    if it.committed is not None:
        (fault,) = it.scenario.faults
        took = f"committed {in_words(it.committed)} after the notice, of {in_words(fault.grace)}"
        yield from _wrapped(took, "    ")


def stage_words(it: Rehearsed) -> str:
    """`stop 130 ms, start 93 ms, ...`, and when it was found where that took long."""
    parts = [f"{STAGES[name]} {in_words(took)}" for name, took in it.stages.items()]
    if it.detected is not None and it.detected >= LONG:
        parts.insert(0, f"found after {in_words(it.detected)}")
    return ", ".join(parts)


def _row(*cells: str) -> str:
    fault, outcome, resumed, lost, curves, back = cells
    return f"{fault:24}{outcome:15}{resumed:14}{lost:>4}  {curves:10}{back}".rstrip()


def _findings(drill: Drill) -> Iterator[str]:
    if drill.findings:
        yield "What would go wrong"
        for it in drill.control_findings:
            yield from _wrapped(f"undisturbed: {it.text}", "  ")
            yield from _wrapped(it.remedy, "    -> ")
        for kind in dict.fromkeys(f.kind for it in drill.rehearsed for f in it.findings):
            yield from _found(drill, kind)
    elif drill.complete:
        yield "Nothing was found."
    else:
        yield "Nothing was found in what was rehearsed."


def _found(drill: Drill, kind: Kind) -> Iterator[str]:
    """Once, however many faults have shown it."""
    shown = [(it, f) for it in drill.rehearsed for f in it.findings if f.kind == kind]
    (rehearsed, first), *others = shown
    yield from _wrapped(f"{FAULTS[rehearsed.scenario.name]}: {first.text}", "  ")
    if others:
        also = ", ".join(FAULTS[it.scenario.name] for it, _ in others)
        yield from _wrapped(f"(likewise: {also})", "  ")
    yield from _wrapped(first.remedy, "    -> ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
