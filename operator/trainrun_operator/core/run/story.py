"""The story of a run: each pass adds its decision to the open chapter.

Layer: core. Derived from the status before and after a decision, and written with it: so it
records what was written, once, whichever operator leads. No decision reads it back. The start of
the next attempt, a suspension or the verdict closes a chapter; then an agent stores it (see
`answers`) and confirms that, and the status forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Literal

from trainrun._common.text import cut
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.output import OutputSteps, source_of
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import StartRecord, TrainRunStatus, incident_object
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.api.run.story import MAX_CHAPTERS, Chapter, Goodput, Note, chapter_size
from trainrun_operator.core.run.boundary import Event, Plan
from trainrun_operator.core.run.incidents.attempt_progress import has_steps, highest_step
from trainrun_operator.core.run.incidents.hangs import HUNG
from trainrun_operator.core.run.incidents.output import by_output, output_of, output_progress
from trainrun_operator.core.run.times import divided, goodput, total, waits
from trainrun_operator.core.run.view import View

LIMIT = 3_400
"""Bytes of all chapters in a status: the story has its own room, like the history."""

OPEN_LIMIT = 1_600
"""Bytes of the open chapter; further notes are counted, not kept."""

NOTE = 300
"""Bytes of the message of a note."""

LINE, LINES = 160, 6
"""Bytes of a line of output, and how many last lines of the culprit a chapter keeps."""

UNTOLD = ("Started", "Accepted")
"""Events that add nothing to the chapter."""


def with_story(view: View, plan: Plan) -> Plan:
    """The plan, with the story in its status brought up to date."""
    before, after = view.status, plan.status
    if after.start_time is None:
        return plan
    stored = {number for w in view.workers if w.agent is not None for number in w.agent.recorded}
    story = tuple(chapter for chapter in before.story if chapter.number not in stored)
    status = replace(after, story=story)
    status = _continued(view, plan, status) if not before.finished else status
    if status != before:  # the goodput alone must not cause a write
        status = replace(status, goodput=_goodput(status, view.observation.now))
    return replace(plan, status=status)


def _continued(view: View, plan: Plan, status: TrainRunStatus) -> TrainRunStatus:
    before, now = view.status, view.observation.now
    chapter = before.chapter
    if chapter is None and not (before.is_true("Suspended") or _is_new_attempt(before, status)):
        # Accepted now, or another client has removed the chapter from the status.
        chapter, status = _opened(view, status, begun=now)
    if chapter is not None:
        chapter = _stamped(view, chapter)
        if chapter.ended is None and _is_over(before, status, chapter):
            chapter = _given_up(view, status, chapter)
        if _is_new_attempt(before, status) or _rests(status):
            noted = _noted(chapter, _events_before(plan, status), now)
            status = _closed(view, status, noted)
            chapter = None
        elif plan.transition:
            chapter = _noted(chapter, plan.events, now)
    if chapter is None and not _rests(status):
        chapter, status = _opened(view, status, begun=now)
        chapter = _noted(chapter, _events_after(plan, status), now)
    if chapter is not None:
        chapter = _ticked(view, plan, chapter)
    return replace(status, chapter=chapter)


def _rests(status: TrainRunStatus) -> bool:
    return status.finished or status.is_true("Suspended")


def _is_new_attempt(before: TrainRunStatus, after: TrainRunStatus) -> bool:
    """Started, or given up before it was started."""
    if after.attempt == before.attempt:
        return False
    failed = after.ending is not None and after.ending.attempt == after.attempt
    return after.start_record is not None or failed


def _is_over(before: TrainRunStatus, after: TrainRunStatus, chapter: Chapter) -> bool:
    """Its attempt has been given up, or ended with the verdict."""
    if not chapter.workers:
        return False
    ending = before.ending is None and after.ending is not None
    return ending or after.finished or after.attempt > chapter.attempt


# ---------------------------------------------------------------- the open chapter


def _opened(
    view: View, status: TrainRunStatus, *, begun: datetime
) -> tuple[Chapter, TrainRunStatus]:
    """The next chapter, and the status that counts it."""
    number, record = status.chapters + 1, status.start_record
    chapter = Chapter(number=number, attempt=status.attempt, begun=begun)
    ending = status.ending
    if record is not None and ending is None:
        chapter = replace(
            chapter,
            begun=min(record.time, begun),
            workers=len(record.roster),
            world_size=record.world_size,
            resumed_from=record.resume_point,
            resumed_via=_via(view, record),
            facts=dict(view.config.facts),
        )
    elif ending is not None and ending.attempt == status.attempt and record is None:
        chapter = replace(chapter, ended=begun, end="Incident", since=begun)
    else:
        chapter = replace(chapter, since=begun)
    reports = has_steps(view.status)
    return replace(chapter, reports=reports), replace(status, chapters=number)


def _via(view: View, record: StartRecord) -> Literal["Disks", "Buddies"] | None:
    """Where the resume point of an attempt that starts now was, if not in the store."""
    if record.staged:
        return "Disks"
    copies = (copy for agent in view.heard for copy in agent.copies if copy.uploaded)
    stored = {CheckpointId(attempt=view.status.attempt, step=copy.step) for copy in copies}
    return "Buddies" if record.resume_point in stored else None


def _stamped(view: View, chapter: Chapter) -> Chapter:
    """With the times at which its processes were started and made their first step."""
    if not chapter.workers or chapter.first_step is not None:
        return chapter
    ages = (agent.first_step for agent in by_output(view, view.ever_heard))
    first = max((age for age in ages if age is not None), default=None)
    if first is None:
        return chapter
    first_step = _ago(view.observation.now, first)
    return replace(_read(view, _prepared(view, chapter)), reports=True, first_step=first_step)


def _read(view: View, chapter: Chapter) -> Chapter:
    """With where its steps are read, if in its output."""
    output = output_of(view)
    if output is None:
        return chapter
    text = source_of(output.form, output.line, output.rank)
    return replace(chapter, read_from=cut(text, NOTE), began_with=output.first)


def _with_output(chapter: Chapter, output: OutputSteps | None) -> Chapter:
    """With how far its output shows that it came."""
    if output is None or chapter.began_with is None:
        return chapter
    step = output.step if output.step is not None else chapter.began_with
    again = max(min(output.reached, step) - chapter.began_with, 0)
    return replace(chapter, reached=output.step, stepped=output.time, repeated=again)


def _prepared(view: View, chapter: Chapter) -> Chapter:
    """When its processes were started, and how long its slowest worker took to get ready."""
    agents = view.ever_heard
    spawned = max((a.spawned for a in agents if a.spawned is not None), default=None)
    return replace(
        chapter,
        spawned=_ago(view.observation.now, spawned),
        rendezvous_seconds=round(max((a.rendezvous for a in agents), default=0.0), 3),
        load_seconds=round(max((a.load for a in agents), default=0.0), 3),
    )


def _given_up(view: View, status: TrainRunStatus, chapter: Chapter) -> Chapter:
    """Its attempt is over: how far it came, as far as agents have reported."""
    now, agents = view.observation.now, by_output(view, view.ever_heard)
    end: str = status.ending.kind if status.ending is not None else "Skipped"
    if status.finished and view.status.ending is None:
        end = "Succeeded" if status.is_true("Complete") else "Failed"
    ages = [a.stepped for a in agents if a.stepped is not None]
    reported = view.status.progress.time
    stepped = _ago(now, min(ages)) if ages else reported
    chapter = _prepared(view, chapter) if chapter.first_step is None else _read(view, chapter)
    chapter = _with_output(chapter, output_progress(view, status))
    shown_stall = float(view.status.progress.stall_seconds)
    return replace(
        chapter,
        stepped=stepped if chapter.first_step is not None else None,
        reached=highest_step(view) if chapter.began_with is None else chapter.reached,
        stall_seconds=round(max((a.stall for a in agents), default=shown_stall), 3),
        saves=max((a.saves for a in agents), default=0),
        save_seconds=max((a.save_cost for a in agents), default=0.0),
        survived=_kept_step(status, highest_step(view)),
        ended=now,
        end=end,
        since=now,
    )


def _kept_step(status: TrainRunStatus, reached: int | None) -> int | None:
    """The step to resume from now, as far as is known."""
    if status.runs_tasks:
        return reached
    return status.checkpoint.step if status.checkpoint is not None else None


def _ago(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now - timedelta(seconds=round(seconds, 3))


def _noted(chapter: Chapter, events: Iterable[Event], now: datetime) -> Chapter:
    """With these events as notes, as far as there is room."""
    for event in events:
        if event.reason in UNTOLD:
            continue
        note = Note(time=now, reason=event.reason[:64], message=cut(event.message, NOTE))
        longer = replace(chapter, notes=(*chapter.notes, note))
        if chapter_size(longer) > OPEN_LIMIT:
            longer = replace(chapter, dropped_notes=chapter.dropped_notes + 1)
        chapter = longer
    return chapter


def _events_before(plan: Plan, status: TrainRunStatus) -> Iterable[Event]:
    """Events of the chapter that ends: a verdict, without the incident, which the chapter contains
    anyway; and what a start reports about the previous end."""
    if not _rests(status):
        return (event for event in plan.events if event.reason in BACKWARD)
    known = [f"{last.message} ({last.cause}); " for last in status.incidents[-1:]]
    return (replace(e, message=e.message.removeprefix("".join(known))) for e in plan.events)


def _events_after(plan: Plan, status: TrainRunStatus) -> Iterable[Event]:
    return () if _rests(status) else (e for e in plan.events if e.reason not in BACKWARD)


BACKWARD = ("FlushGivenUp",)
"""Events of a start that are about the previous attempt."""


def _ticked(view: View, plan: Plan, chapter: Chapter) -> Chapter:
    """With the finished wait, if the run now waits for something else."""
    if chapter.since is None or plan.transition:
        return chapter
    doing, now = _doing(view, plan), view.observation.now
    if doing == chapter.doing:
        return chapter
    if not chapter.doing:  # unknown until now
        return replace(chapter, doing=doing)
    return replace(chapter, waits=_rounded(waits(chapter, now)), doing=doing, since=now)


def _doing(view: View, plan: Plan) -> str:
    """What the run waits for, as a reason."""
    busy = any(agent.phase != "Idle" for agent in view.heard)
    if plan.reason != "Gathering":
        return plan.reason[:64]
    if not busy:
        return (plan.status.reason or plan.reason)[:64]
    return "Ending" if any(agent.phase == "Running" for agent in view.heard) else "Flushing"


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(amount, 3) for name, amount in seconds.items() if amount}


# ---------------------------------------------------------------- closed chapters


def _closed(view: View, status: TrainRunStatus, chapter: Chapter) -> TrainRunStatus:
    """The status with this chapter closed, waiting to be stored."""
    # The clock of another leader may have been ahead: no duration may be negative.
    known = (chapter.begun, chapter.since, chapter.ended)
    now = max(view.observation.now, *(moment for moment in known if moment is not None))
    record, verdict = status.start_record, _verdict(status)
    if record is not None and record.attempt > chapter.attempt and not status.runs_tasks:
        survived = record.resume_point.step if record.resume_point is not None else None
    else:
        survived = (
            chapter.reached if status.is_true("Complete") else _kept_step(status, chapter.reached)
        )
    done = replace(
        chapter,
        waits=_rounded(waits(chapter, now)),
        doing="",
        since=None,
        closed=now,
        survived=survived,
        incident=_incident(view.status, status, chapter),
        verdict=verdict,
    )
    done = replace(done, spent=divided(done, now))
    return replace(
        status,
        story=_newest((*status.story, done)),
        spent=total(status.spent, done.spent),
    )


def _verdict(status: TrainRunStatus) -> str:
    found = map(status.condition, ("Complete", "Failed"))
    return next((mark.reason for mark in found if mark and mark.status == "True"), "")


def _incident(before: TrainRunStatus, after: TrainRunStatus, chapter: Chapter) -> dict[str, object]:
    """The incident that ended its attempt, if this pass has settled it; else empty."""
    known = {incident.attempt for incident in before.incidents}
    for incident in after.incidents:
        if incident.attempt == chapter.attempt and incident.attempt not in known:
            return incident_object(_brief(incident))
    return {}


def _brief(incident: Incident) -> Incident:
    lines = tuple(cut(line, LINE) for line in incident.last_lines[-LINES:])
    return replace(incident, message=cut(incident.message, 2 * NOTE), last_lines=lines)


def _newest(chapters: tuple[Chapter, ...]) -> tuple[Chapter, ...]:
    """As many as fit, the newest ones; gaps in the numbers show which are missing."""
    chapters = chapters[-MAX_CHAPTERS:]
    while len(chapters) > 1 and sum(map(chapter_size, chapters)) > LIMIT - OPEN_LIMIT:
        chapters = chapters[1:]
    last = chapters[-1]
    for shorter in SHORTER:
        if len(chapters) > 1 or chapter_size(last) <= LIMIT - OPEN_LIMIT:
            break
        last = shorter(last)
    return (*chapters[:-1], last)


def _without_lines(chapter: Chapter) -> Chapter:
    incident = {**chapter.incident, "lastLines": []} if chapter.incident else {}
    return replace(chapter, notes=chapter.notes[-1:], incident=incident)


def _without_bases(chapter: Chapter) -> Chapter:
    incident = dict(chapter.incident)
    if kinds := incident.get("exception"):
        incident["exception"] = [cut(kinds[0], LINE)]
    return replace(chapter, incident=incident)


def _in_short(chapter: Chapter) -> Chapter:
    """Only what happened, in few words, and what it cost."""
    incident = {k: cut(v, LINE) if isinstance(v, str) else v for k, v in chapter.incident.items()}
    return replace(chapter, notes=(), facts={}, incident=incident)


SHORTER: tuple[Callable[[Chapter], Chapter], ...] = (_without_lines, _without_bases, _in_short)
"""Ways to shorten a chapter that alone exceeds its share, least important part first."""


# ---------------------------------------------------------------- goodput


def _goodput(status: TrainRunStatus, now: datetime) -> Goodput:
    chapter = status.chapter
    seconds = status.spent
    if chapter is not None:
        seconds = total(seconds, divided_now(chapter, status, now))
    share = goodput(seconds)
    reports = status.progress.time is not None or (chapter is not None and chapter.reports)
    text = "" if share is None or not reports else f"{100 * share:.1f} %"
    return Goodput(text=text, time=now, seconds=seconds)


def divided_now(chapter: Chapter, status: TrainRunStatus, now: datetime) -> dict[str, float]:
    """The time of the open chapter, by bucket; while its attempt runs, its progress is that of the
    status."""
    if chapter.ended is None and status.progress.time is not None:
        chapter = replace(
            chapter,
            reached=status.progress.step,
            stepped=status.progress.time,
            stall_seconds=float(status.progress.stall_seconds),
        )
    elif chapter.ended is None:
        chapter = _with_output(chapter, status.output)
    hung = chapter.first_step is not None and status.condition(HUNG) is not None
    named = {"unknown": "hang"} if hung else {}
    return {named.get(bucket, bucket): took for bucket, took in divided(chapter, now).items()}
