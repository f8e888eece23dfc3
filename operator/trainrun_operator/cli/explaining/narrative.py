"""The text of a chapter of a run's life: what happened when, what ended it, what that cost.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from trainrun.checkpoint.logs import RankLog
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.explaining.advice import lost_steps, on_node, step_seconds
from trainrun_operator.cli.explaining.life import Life, Rank
from trainrun_operator.cli.formatting import counted, stages
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.report.model import Block, Preformatted, Section, TextLine
from trainrun_operator.core.run.causes import BUDGETS
from trainrun_operator.core.run.times import STAGES

REASONS: dict[str, str] = {
    "Attributing": "for workers that had not reported yet, or for the state of a silent "
    "worker's node, because the known loss could be a consequence of another one",
    "Ending": "for the processes of the attempt to end",
    "Stopping": "for processes to end after SIGTERM, because killing them would have lost what "
    "the run resumes from",
    "Flushing": "for checkpoints that every rank had staged, to be uploaded or, on the disks of "
    "workers that all stay, to be summed, so that fewer steps are done again",
    "BackingOff": "before the restart, because attempts had ended without a new step",
    "Gathering": "for workers to start and to report to the operator",
    "Starting": "for workers to start",
    "Unschedulable": "for room for workers",
    "SchedulingGated": "for the scheduling gates of workers to be lifted",
    "QuotaExceeded": "for quota",
    "GangNotPlaced": "for room for the whole gang, with all its pods deleted meanwhile",
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
"""What a wait was for, and why it was needed."""

VIA = {"Disks": " on the workers' disks", "Buddies": " with lost parts that buddies had copied"}
"""Where a resume point was, if not in the store."""

NOTABLE_WAIT = 0.5
"""Seconds below which a wait is not shown."""


def section(
    chapter: Chapter, life: Life, *, changed: Iterable[str] = (), logs: Iterable[RankLog] = ()
) -> Section:
    """Everything about a chapter; `logs` are the last lines of its processes."""
    lines = sorted(_events(chapter), key=lambda line: line.at or chapter.begun)
    blocks: tuple[Block, ...] = (
        *(TextLine(text, "note") for text in changed),
        *lines,
        *_incident(chapter, life),
        *(
            Preformatted(tuple(_stacks(ranks)), title=STACKS_TITLE)
            for ranks in [life.stacks_of(chapter)]
            if ranks
        ),
        *(TextLine(text) for text in (*_saves(chapter), *_waits(chapter))),
        *_tails(logs),
    )
    return Section(
        title=_title(chapter, life), blocks=blocks, at=chapter.begun, id=section_id(chapter)
    )


def section_id(chapter: Chapter) -> str:
    """Unique in a story."""
    return f"chapter-{chapter.number}-{chapter.attempt}"


def _title(chapter: Chapter, life: Life) -> str:
    """`attempt 2, from step 40 of attempt 1, 4 workers`."""
    if not chapter.workers:
        if chapter.end == "Incident":
            return f"attempt {chapter.attempt} could not start"
        return "preparing" if chapter.attempt == 0 else "preparing to resume"
    reports = chapter.reports and not chapter.read_from
    begin = beginning(chapter.resumed_from, life, reports=reports)
    begin += VIA.get(chapter.resumed_via or "", "")
    return f"attempt {chapter.attempt}, {begin}, {counted(chapter.workers, 'worker')}"


def beginning(point: CheckpointId | None, life: Life, *, reports: bool = False) -> str:
    """What an attempt started from; `reports`: its script is known to report steps."""
    if point is not None:
        return f"from step {point.step} of attempt {point.attempt}"
    if life.tasks is not None:
        return "after the tasks that were done"
    # A script that reports nothing may have resumed by itself: only its output shows it.
    return "from scratch" if reports else "no checkpoint handed to it"


def _events(chapter: Chapter) -> Iterator[TextLine]:
    """What happened, and when."""
    if chapter.first_step is not None:
        yield TextLine(f"first step{_start_parts(chapter)}", at=chapter.first_step)
    elif chapter.workers and chapter.reports:
        yield TextLine("no step was reported", at=chapter.ended or chapter.begun)
    if chapter.read_from:
        yield TextLine(f"steps are read from output, {chapter.read_from}", deeper=True)
    if chapter.repeated:
        again = counted(chapter.repeated, "step")
        text = f"its output begins at step {chapter.began_with}: {again} done again"
        yield TextLine(text, deeper=True)
    for note in chapter.notes:
        if note.reason != chapter.incident.get("cause"):  # shown with the incident
            yield TextLine(f"{note.reason}: {note.message}", at=note.time)
    if chapter.dropped_notes:
        more = f"and {chapter.dropped_notes} more events that did not fit into the record"
        yield TextLine(more, at=chapter.notes[-1].time if chapter.notes else chapter.begun)


def _start_parts(chapter: Chapter) -> str:
    """How long each part of a start took."""
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


def _incident(chapter: Chapter, life: Life) -> Iterator[Block]:
    """Culprit, node, cause, charge and cost; then the other fields of the incident."""
    incident: Mapping[str, object] = chapter.incident
    if not incident:
        return
    who = [f"rank {incident['rank']}"] if "rank" in incident else []
    who += [f"worker {incident['worker']}"] if incident.get("worker") else []
    who += [f"node {on_node(incident)}"] if on_node(incident) else []
    message = f": {incident['message']}" if incident.get("message") else ""
    head = f"{incident.get('cause', 'Unknown')} of {', '.join(who) or 'the gang'}{message}"
    yield TextLine(head, "bad", at=chapter.ended or chapter.begun)
    yield TextLine(f"charged: {_charge(incident)}")
    yield TextLine(f"cost: {_cost(chapter, life)}")
    for name, value in incident.items():
        if name not in OWN_LINES and value not in (None, "", [], {}, False):
            yield TextLine(f"{LABELS.get(name) or _in_words(name)}: {_value_text(value)}")
    if last := chapter.incident.get("lastLines"):
        yield Preformatted(tuple(map(str, last)), title="its last lines")


def _in_words(name: str) -> str:
    """`raised at` of `raisedAt`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def _value_text(value: object) -> str:
    """A checkpoint, the stages of a recovery in their order, a list, or yes; anything else as it
    is."""
    if isinstance(value, dict) and "step" in value:
        return f"step {value['step']} of attempt {value.get('attempt')}"
    if isinstance(value, dict):
        return stages(
            {stage: value[stage] for stage in STAGES if isinstance(value.get(stage), float | int)}
        )
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)


def _stacks(ranks: tuple[Rank, ...]) -> Iterator[str]:
    """A line per rank, with its stacks below."""
    for rank in ranks[:MOST_RANKS]:
        yield f"rank {rank.get('rank')}: {', '.join(_rank_state(rank))}"
        lines = str(rank.get("stacks") or "").splitlines()
        yield from (f"  {line}" for line in lines[:MOST_LINES])
        if len(lines) > MOST_LINES:
            yield f"  ({len(lines) - MOST_LINES} more lines in the store)"
    if len(ranks) > MOST_RANKS:
        yield f"({len(ranks) - MOST_RANKS} more ranks in the store)"


def _rank_state(rank: Rank) -> Iterator[str]:
    yield f"step {rank['step']}" if rank.get("step") is not None else "no step"
    for name, text in RANK_STATE.items():
        if rank.get(name) not in (None, "") and (name != "remark" or not rank.get("readBy")):
            yield text.format(rank[name])


def _tails(logs: Iterable[RankLog]) -> Iterator[Block]:
    """The last lines of the processes of a failed attempt."""
    if tails := [_tail(rank) for rank in logs]:
        yield TextLine("Last lines of its processes:")
        yield from tails


def _tail(rank: RankLog) -> Preformatted:
    lines = tuple(line.text for line in rank.lines[-MOST_LINES:])
    before = rank.dropped + len(rank.lines) - len(lines)
    more = f", {before:,} earlier ones left out" if before else ""
    return Preformatted(
        lines, title=f"rank {rank.rank}: {counted(len(lines), 'line')}{more}", folded=True
    )


STACKS_TITLE = "where the ranks were stuck"
MOST_RANKS, MOST_LINES = 64, 60
"""Ranks whose stacks are shown, since a large gang is stuck in few places; lines of each rank."""

RANK_STATE = {
    "state": "state {}",
    "cpu": "{} cores",
    "kernel": "{}",
    "readBy": "by {}",
    "remark": "{}",
    "flightRecorder": "flight recorder: {}",
}
"""What is shown of a stuck rank (docs/hangs.md); the records are not checked."""

LABELS = {"evidence": "stacks in", "opened": "died while opening", "trialOf": "had left out"}
"""Labels for fields of an incident whose names do not say enough."""

OWN_LINES = frozenset(
    {
        "attempt", "cause", "budget", "counted", "slot", "rank", "worker", "node", "exitCode",
        "message", "lastLines", "time", "detectSeconds", "restartSeconds", "recoverySeconds",
        "lostSteps", "resumedFrom",
    }
)  # fmt: skip
"""Fields of an incident with lines of their own; others are shown under their names."""


def _charge(incident: Mapping[str, object]) -> str:
    budget = BUDGETS.get(str(incident.get("budget")))  # type: ignore[call-overload]
    if budget is None:
        return "to no budget"
    return f"as a {budget.one} to {budget.field}"


def _cost(chapter: Chapter, life: Life) -> str:
    lost, step = lost_steps(chapter), step_seconds(life)
    parts = []
    if lost:
        again = f" ({in_words(lost * step)} of training)" if step else ""
        parts.append(f"{counted(lost, 'step')} to be done again{again}")
    elif chapter.reached is not None and not chapter.read_from:  # later output shows it
        parts.append("no steps lost")
    detect = chapter.incident.get("detectSeconds")
    if isinstance(detect, float | int) and detect >= NOTABLE_WAIT:
        parts.append(f"{in_words(float(detect))} until it was detected")
    if chapter.ended is not None and chapter.closed is not None:
        gone = (chapter.closed - chapter.ended).total_seconds()
        then = "the verdict" if chapter.verdict else "the next attempt"
        parts.append(f"{in_words(gone)} until {then}")
    first = _next_first_step(chapter, life)
    if first is not None:
        parts.append(f"{in_words(first)} until the next first step")
    return ", ".join(parts) or "not known"


def _next_first_step(chapter: Chapter, life: Life) -> float | None:
    following = [c for c in life.chapters if chapter.closed and c.begun >= chapter.closed]
    found = following[0].first_step if following else None
    if found is None or chapter.ended is None:
        return None
    return (found - chapter.ended).total_seconds()


def _saves(chapter: Chapter) -> Iterator[str]:
    """What its saves cost the training."""
    cost, waited = chapter.save_seconds, chapter.stall_seconds
    told = [counted(chapter.saves, "checkpoint")] if chapter.saves else []
    told += [f"each made its step {in_words(cost)} longer"] if cost else []
    told += [f"report() waited {in_words(waited)} for room"] if waited else []
    if told:
        yield f"saves: {', '.join(told)}"


def _waits(chapter: Chapter) -> Iterator[str]:
    """The waits, with their reasons."""
    for reason, waited in sorted(chapter.waits.items(), key=lambda item: -item[1]):
        if waited >= NOTABLE_WAIT:
            why = REASONS.get(reason, "")
            what = f"{reason}: {why}" if why else reason
            yield f"waited {in_words(waited)} ({what})"


def changes(life: Life) -> dict[int, tuple[str, ...]]:
    """What changed in spec and image from one attempt to the next, by position of the chapter."""
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
    if name == "template":  # of which only a digest is known
        return "the pod template was changed"
    return f"{name} was changed from {before or 'none'} to {after or 'none'}"
