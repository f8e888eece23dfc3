"""What is said of a life, in sentences: the same for the terminal and for a page.

Layer: cli; pure. Colors, columns and markup are the business of those who show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from trainrun_operator.cli.explaining.figures import lost_steps, step_seconds
from trainrun_operator.cli.wording import printable
from trainrun_operator.cli.wording import seconds as in_words
from trainrun_operator.core.run.causes import BUDGETS
from trainrun_operator.core.run.times import goodput

if TYPE_CHECKING:
    from trainrun_operator.api.run.story import Chapter
    from trainrun_operator.cli.explaining.life import Life

REASONS: dict[str, str] = {
    "Attributing": "for workers that had not reported yet, or for news of a silent worker's node, "
    "because what was known could be a consequence of a loss elsewhere",
    "Ending": "for the processes of the attempt to end",
    "Stopping": "for processes to end after SIGTERM, because killing them would have thrown away "
    "what the run goes on from",
    "Flushing": "for uploads of checkpoints that every rank had staged, so that fewer steps are "
    "done again",
    "BackingOff": "before the restart, because attempts had ended without a new step",
    "Gathering": "for workers to start and to call",
    "Starting": "for workers to start",
    "Unschedulable": "for room for workers",
    "SchedulingGated": "for the scheduling gates of workers to be lifted",
    "QuotaExceeded": "for quota",
    "GangNotPlaced": "for room for the whole gang, with all pods given back",
    "ImagePull": "for images",
    "ConfigError": "for secrets, config maps or volumes",
    "Resolving": "for the store to name the newest good checkpoint",
    "Barrier": "for slot 0 to find a free master port",
    "StorageUnavailable": "for the store, which could not be reached",
    "StorageInUse": "for the storage, which belonged to another run",
    "StorageMisconfigured": "for the store, which refused its credentials or settings",
    "NoGoodCheckpoint": "for the store to show a good checkpoint",
    "CheckpointSuspect": "for a second node to read a checkpoint that one node read wrongly",
    "Suspending": "for processes to stop and uploads to end before the suspension",
}
"""What a wait was for, and why it was worth it."""

NOTABLE_WAIT = 0.5
"""Seconds below which a wait is not told."""

CHANGED = {"template": "the pod template"}
"""Facts whose values say nothing to people."""


def headline(life: Life) -> str:
    """How it stands, after how long, in how many attempts."""
    whole, attempts = sum(life.seconds.values()), len(life.ran)
    last = life.chapters[-1] if life.chapters else None
    took = f"after {in_words(whole)}" if whole else "after an unknown time"
    tries = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    reached = max((c.reached for c in life.ran if c.reached is not None), default=None)
    steps = f", step {reached}" if reached is not None else ""
    if last is None or last.closed is None:
        state = "goes on" if life.status is not None else "has no recorded end"
        state = "was stopped" if life.left else state
        return f"Run {life.name} {state} {took}: {tries}{steps}."
    if last.verdict:
        word = "succeeded" if last.end == "Succeeded" or _complete(life) else "failed"
        why = "" if last.verdict == "Succeeded" else f" ({last.verdict})"
        return f"Run {life.name} {word}{why} {took}: {tries}{steps}."
    suspended = life.status is not None and life.status.is_true("Suspended")
    state = "is suspended" if suspended else "has no recorded end"
    return f"Run {life.name} {state} {took}: {tries}{steps}."


def _complete(life: Life) -> bool:
    if life.status is not None:
        return life.status.is_true("Complete")
    return life.chapters[-1].verdict in ("Succeeded", "AlreadyFinished")


def goodput_sentence(life: Life) -> str:
    """How much of the time made steps that count."""
    spent = life.seconds
    share = goodput(spent)
    if share is None:
        return ""
    whole = in_words(sum(spent.values()))
    if not life.reports:
        return f"Goodput is not known: the script reports no steps. The run took {whole}."
    useful = in_words(spent.get("useful", 0.0))
    return f"Goodput {100 * share:.1f} %: {useful} of {whole} went into steps that count."


def title(chapter: Chapter, life: Life) -> str:
    """`attempt 2, from step 40 of attempt 1, 4 workers`."""
    if not chapter.workers:
        if chapter.end == "Incident":
            return f"attempt {chapter.attempt} could not start"
        return "preparing" if chapter.attempt == 0 else "preparing to go on"
    point = chapter.resumed_from
    begin = "from nothing" if life.tasks is None else "after the tasks that were done"
    if point is not None:
        begin = f"from step {point.step} of attempt {point.attempt}"
    noun = "worker" if chapter.workers == 1 else "workers"
    return f"attempt {chapter.attempt}, {begin}, {chapter.workers} {noun}"


def sentences(chapter: Chapter) -> Iterator[tuple[datetime, str]]:
    """What happened in a chapter, with when."""
    if chapter.first_step is not None:
        yield chapter.first_step, f"first step{_beginning(chapter)}"
    elif chapter.workers and chapter.reports:
        yield chapter.ended or chapter.begun, "no step was reported"
    for note in chapter.notes:
        if note.reason != chapter.incident.get("cause"):  # told with the incident
            yield note.time, f"{note.reason}: {printable(note.message)}"
    if chapter.dropped_notes:
        more = f"and {chapter.dropped_notes} more events, for which the record had no room"
        yield chapter.notes[-1].time if chapter.notes else chapter.begun, more


def _beginning(chapter: Chapter) -> str:
    """How long the parts of a start took."""
    assert chapter.first_step is not None
    spawned = chapter.spawned or chapter.begun
    took = (chapter.first_step - spawned).total_seconds()
    prepared = chapter.rendezvous_seconds + chapter.load_seconds
    parts = {
        "start": (spawned - chapter.begun).total_seconds(),
        "imports and rendezvous": chapter.rendezvous_seconds,
        "load": chapter.load_seconds,
        "first step": max(took - prepared, 0.0),
    }
    return f" ({', '.join(f'{name} {in_words(s)}' for name, s in parts.items() if s)})"


def incident_lines(chapter: Chapter, life: Life) -> Iterator[str]:
    """Culprit, node, cause, charge and cost; and what else the incident carries."""
    incident = chapter.incident
    if not incident:
        return
    who = [f"rank {incident['rank']}"] if "rank" in incident else []
    who += [f"worker {incident['worker']}"] if incident.get("worker") else []
    who += [f"node {incident['node']}"] if incident.get("node") else []
    said = printable(str(incident.get("message", "")))
    head = f"{incident.get('cause', 'Unknown')} of {', '.join(who) or 'the gang'}"
    yield f"{head}: {said}" if said else head
    yield f"charged: {_charge(incident)}"
    yield f"cost: {_cost(chapter, life)}"
    for name, value in incident.items():
        if name not in KNOWN and value not in (None, "", [], {}, False):
            yield f"{LABELS.get(name, name)}: {printable(str(value))}"
    for line in incident.get("lastLines", ()):
        yield f"| {printable(str(line))}"


LABELS = {"knownBy": "known by", "evidence": "stacks in"}
"""Names of an incident's fields that are no words."""

KNOWN = frozenset(
    {
        "attempt", "cause", "budget", "counted", "slot", "rank", "worker", "node", "exitCode",
        "message", "lastLines", "time", "detectSeconds", "restartSeconds", "recoverySeconds",
        "lostSteps", "resumedFrom",
    }
)  # fmt: skip
"""Fields of an incident that have their own words; others are told by their names."""


def _charge(incident: dict[str, object]) -> str:
    budget = BUDGETS.get(str(incident.get("budget")))  # type: ignore[call-overload]
    if budget is None:
        return "to no budget"
    return f"as a {budget.one} to {budget.field}"


def _cost(chapter: Chapter, life: Life) -> str:
    lost, step = lost_steps(chapter), step_seconds(life)
    parts = []
    if lost:
        again = f" ({in_words(lost * step)} of training)" if step else ""
        parts.append(f"{lost} steps to be done again{again}")
    elif chapter.reached is not None:
        parts.append("no step")
    detect = chapter.incident.get("detectSeconds")
    if isinstance(detect, float | int) and detect >= NOTABLE_WAIT:
        parts.append(f"{in_words(float(detect))} until it was noticed")
    if chapter.ended is not None and chapter.closed is not None:
        gone = (chapter.closed - chapter.ended).total_seconds()
        parts.append(f"{in_words(gone)} until {_what_followed(chapter)}")
    first = _next_first_step(chapter, life)
    if first is not None:
        parts.append(f"{in_words(first)} until the next first step")
    return ", ".join(parts) or "not known"


def _what_followed(chapter: Chapter) -> str:
    return "the verdict" if chapter.verdict else "the next attempt"


def _next_first_step(chapter: Chapter, life: Life) -> float | None:
    following = [c for c in life.chapters if chapter.closed and c.begun >= chapter.closed]
    found = following[0].first_step if following else None
    if found is None or chapter.ended is None:
        return None
    return (found - chapter.ended).total_seconds()


def waits_of(chapter: Chapter) -> Iterator[str]:
    """Decisions to wait, with their reasons."""
    for reason, waited in sorted(chapter.waits.items(), key=lambda item: -item[1]):
        if waited >= NOTABLE_WAIT:
            why = REASONS.get(reason, "")
            what = f"{reason}: {why}" if why else reason
            yield f"waited {in_words(waited)} ({what})"


def changes(life: Life) -> dict[int, tuple[str, ...]]:
    """What the spec and the image of an attempt have that those before had not, by position."""
    ran = [(i, c) for i, c in enumerate(life.chapters) if c.workers]
    found: dict[int, tuple[str, ...]] = {}
    for (_, before), (i, after) in pairwise(ran):
        names = sorted(before.facts.keys() | after.facts.keys())
        differ = [n for n in names if before.facts.get(n) != after.facts.get(n)]
        if "image" in differ and "template" in differ:
            differ.remove("template")
        if differ and before.facts and after.facts:
            found[i] = tuple(_change(n, before.facts.get(n), after.facts.get(n)) for n in differ)
    return found


def _change(name: str, before: str | None, after: str | None) -> str:
    if name in CHANGED:
        return f"{CHANGED[name]} was changed"
    return f"{name} was changed from {before or 'none'} to {after or 'none'}"
