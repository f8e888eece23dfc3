"""A run's life, read from its storage and, if there is one, its status; and what a page adds:
curves, and the last lines of attempts that failed.

Layer: cli. The storage holds the finished chapters; the status holds the current one and those that
no agent has stored yet. A chapter in both is the same. What a page adds is read for a page only,
since it may take a while; its size is bounded, whatever a run has reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from trainrun.checkpoint.agent_records import MOST_CHAPTERS, read_attempts, read_hang, read_story
from trainrun.checkpoint.inspection import CheckpointInfo, list_checkpoints
from trainrun.checkpoint.logs import RankLog, read_logs
from trainrun.checkpoint.metrics_log import read_metrics
from trainrun.checkpoint.records import AttemptRecord, HangRecord, StoryRecord
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.contract import layout
from trainrun.errors import StoreError, TaskLogDamaged
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.api.run.story import Chapter, chapter_from
from trainrun_operator.cli.explaining.metric_curves import MetricCurves
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.log_lines.history import stored_slots
from trainrun_operator.cli.report.model import Block
from trainrun_operator.cli.sources import (
    RunState,
    Source,
    UnknownGeneration,
    generation_of,
    never_started,
)
from trainrun_operator.cli.tasks.program import TaskHistory
from trainrun_operator.core.run.incidents.hangs import HUNG
from trainrun_operator.core.run.story import divided_now
from trainrun_operator.core.run.times import goodput, total

Rank = Mapping[str, object]
"""Where a rank was stuck, as its agent has stored it (docs/hangs.md)."""
MOST_HANGS = 10
"""Hangs whose stacks are read, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Everything that is known about a run."""

    name: str
    uri: str
    """URI of its folder in its storage, or of its generation's folder if that is not the first."""
    chapters: tuple[Chapter, ...]
    """Ordered by time; the last one may be unfinished."""
    attempts: tuple[AttemptRecord, ...] = ()
    """What the attempts started from, as stored."""
    checkpoints: tuple[CheckpointInfo, ...] = ()
    hangs: Mapping[str, tuple[Rank, ...]] = field(default_factory=dict)
    """Where the ranks of a hang were stuck, by folder."""
    tasks: TaskHistory | None = None
    """Contents of its task log, if it is a program of tasks."""
    status: TrainRunStatus | None = None
    abandoned: bool = False
    """No process leads it now: its last chapter ends with its last status."""
    remarks: tuple[str, ...] = ()
    """What could not be read, or is missing."""

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of all chapters, by bucket."""
        sums: dict[str, float] = {}
        for chapter in self.chapters:
            sums = total(sums, chapter.spent)
        return sums

    @property
    def ran(self) -> tuple[Chapter, ...]:
        """The chapters in which an attempt started."""
        return tuple(chapter for chapter in self.chapters if chapter.workers)

    @property
    def incidents(self) -> tuple[Chapter, ...]:
        """The chapters that an incident ended."""
        return tuple(chapter for chapter in self.chapters if chapter.incident)

    @property
    def until(self) -> datetime:
        """The end of the story: now, while a chapter is unfinished."""
        return max(map(_until, self.chapters))

    @property
    def hung(self) -> Condition | None:
        """The condition of a run that hangs now."""
        return (
            self.status.condition(HUNG) if self.status is not None and not self.abandoned else None
        )

    def stacks_of(self, chapter: Chapter) -> tuple[Rank, ...]:
        """Where the ranks of a chapter were stuck, or are now."""
        return self.hangs.get(_hang_of(chapter, self.status), ())

    @property
    def reached(self) -> int | None:
        """The highest step of all attempts; None: none is known."""
        return max((c.reached for c in self.ran if c.reached is not None), default=None)

    @property
    def goodput(self) -> float | None:
        """The share of the time that made steps that count, from 0 to 1; None: not known."""
        return goodput(self.seconds) if self.reports else None

    @property
    def succeeded(self) -> bool | None:
        """How it ended, by its last chapter and, if there is one, its status; None: it has not."""
        last = self.chapters[-1] if self.chapters else None
        if last is None or not last.verdict:
            return None
        if self.status is not None:
            return last.end == "Succeeded" or self.status.is_true("Complete")
        return last.end == "Succeeded" or last.verdict in ("Succeeded", "AlreadyFinished")

    @property
    def reports(self) -> bool:
        """The script reports steps."""
        return any(chapter.reached is not None for chapter in self.chapters)

    @property
    def reads_output(self) -> bool:
        """Its steps are read from output."""
        return any(chapter.read_from for chapter in self.chapters)


def _hang_of(chapter: Chapter, status: TrainRunStatus | None) -> str:
    """The folder with the stacks of a chapter's hang; empty: it did not hang."""
    asked = status.evidence_asked if status is not None and status.condition(HUNG) else None
    if asked is not None and chapter.closed is None:
        return layout.hang_folder(asked.attempt, asked.number)
    return str(chapter.incident.get("evidence", ""))


def _until(chapter: Chapter) -> datetime:
    if chapter.closed is not None:
        return chapter.closed
    # An unfinished chapter has no end, only the time spent so far.
    return chapter.begun + timedelta(seconds=sum(chapter.spent.values()))


def life_of(run: Source, *, generation: int | None = None, now: datetime | None = None) -> Life:
    """Read the life of a run, of this generation or the one that `generation_of` chooses. Raises
    UnknownRun if nothing is known of the run, UnknownGeneration, and StoreError if the storage
    cannot be read and there is no status."""
    moment = now or datetime.now(UTC)
    remarks: list[str] = []
    status = _status(run, generation, remarks)
    records: list[StoryRecord] = []
    attempts: list[AttemptRecord] = []
    claimed: list[int] = []
    checkpoints: list[CheckpointInfo] = []
    uri, at = f"{run.storage}/{run.name}", None
    try:
        at = generation_of(run, generation)
        uri = at.uri if at.generation > 1 else uri
        numbers = at.attempts()[-MOST_CHAPTERS:]
        records, attempts = read_story(at), read_attempts(at)
        claimed = numbers  # only now: if a read fails, it is not known which claims are damaged
        checkpoints = list_checkpoints(at)
    except StoreError as error:
        if status is None:
            raise
        remarks.append(f"the storage cannot be read: {error}")
    if status is None and not records and not claimed and not checkpoints:
        raise never_started(run)
    if status is not None and status.abandoned:
        moment = _last_written(status.status, moment)
    chapters = chapters_of(records, status, moment, remarks)
    described = {record.attempt for record in attempts} | {
        chapter.attempt for chapter in chapters if chapter.workers
    }
    remarks += (
        f"attempt {number}: it is not known what it started from, because "
        f"{layout.attempt_key(number)} is damaged"
        for number in claimed
        if number not in described
    )
    run_status = status.status if status else None
    folders = [folder for chapter in chapters if (folder := _hang_of(chapter, run_status))]
    hangs = _hangs(at, folders[-MOST_HANGS:], remarks) if at is not None else {}
    tasks = _tasks(at, remarks) if at is not None else None
    return Life(
        name=run.name,
        uri=uri,
        chapters=chapters,
        attempts=tuple(attempts),
        checkpoints=tuple(checkpoints),
        status=run_status,
        abandoned=status is not None and status.abandoned,
        hangs=hangs,
        tasks=tasks,
        remarks=tuple(remarks),
    )


def _tasks(run: RunStore, remarks: list[str]) -> TaskHistory | None:
    """Read the task log."""
    try:
        if run.objects(layout.TASK_LOG):
            return TaskHistory().read_on(TaskFolder(run))
    except (StoreError, TaskLogDamaged) as error:
        remarks.append(f"its task log cannot be read: {error}")
    return None


def _last_written(status: TrainRunStatus, now: datetime) -> datetime:
    """When the last leader last wrote about the run, as far as the status shows."""
    times = (status.goodput.time if status.goodput else None, status.progress.time)
    return min(max(filter(None, times), default=now), now)


def _hangs(run: RunStore, folders: list[str], remarks: list[str]) -> dict[str, tuple[Rank, ...]]:
    """The stacks of hangs, by folder."""
    found: dict[str, tuple[Rank, ...]] = {}
    try:
        for folder in folders:
            found[folder] = _ranks(read_hang(run, folder))
            if not found[folder]:
                remarks.append(f"{folder}: no stacks were stored")
    except StoreError as error:
        remarks.append(f"the stacks of hangs cannot be read: {error}")
    return found


def _ranks(records: Iterable[HangRecord]) -> tuple[Rank, ...]:
    """All ranks in order; of data for machines only the path."""
    found = [{**rank, "worker": record.worker} for record in records for rank in record.ranks]
    for rank in found:
        recorder = rank.get("flightRecorder")
        rank["flightRecorder"] = recorder.get("file") if isinstance(recorder, Mapping) else None
    return tuple(sorted(found, key=lambda rank: int(rank.get("rank", 0))))


def _status(run: Source, generation: int | None, remarks: list[str]) -> RunState | None:
    """The state of the run; None if there is none, or if it belongs to another generation than the
    one asked for."""
    state = run.known_state()
    own = state.status.storage_generation if state is not None else None
    if generation is None or generation == own:
        return state
    if own is not None:
        shown = f"generation {own}" if own else "no generation yet"
        remarks.append(f"the status is left out: it belongs to {shown}")
    return None


def chapters_of(
    records: Iterable[StoryRecord], state: RunState | None, now: datetime, remarks: list[str]
) -> tuple[Chapter, ...]:
    """All chapters in these records and in this state, each once. Those of one TrainRun are ordered
    by their numbers, since clocks jump; TrainRuns by time."""
    found: dict[tuple[datetime, int], tuple[str, Chapter]] = {}
    for record in records:
        try:
            chapter = chapter_from(record.chapter)
        except ValueError:
            remarks.append(f"chapter {record.number} of the story was written by another version")
        else:
            found[chapter.begun, chapter.number] = record.uid, chapter
    for chapter in _unstored(state.status if state else None, now):
        found.setdefault((chapter.begun, chapter.number), (state.uid if state else "", chapter))
    numbered = sorted(found.values(), key=lambda entry: entry[1].number)
    last = {uid: chapter.begun for uid, chapter in numbered}
    ordered = sorted(numbered, key=lambda entry: (last[entry[0]], entry[0], entry[1].number))
    chapters = tuple(chapter for _, chapter in ordered)
    remarks += (*_gaps(chapters), *_jumps(chapters))
    return chapters


def _unstored(status: TrainRunStatus | None, now: datetime) -> Iterable[Chapter]:
    if status is None:
        return
    yield from status.story
    if status.chapter is not None:
        spent = divided_now(status.chapter, status, now)
        reached = status.chapter.reached or status.progress.step
        if reached is None and status.output is not None:
            reached = status.output.step
        yield replace(status.chapter, spent=spent, reached=reached)


def _gaps(chapters: tuple[Chapter, ...]) -> Iterable[str]:
    """Chapters that are missing, by their numbers."""
    for before, after in pairwise(chapters):
        if after.number > before.number + 1:
            first, last = before.number + 1, after.number - 1
            which = f"chapter {first}" if first == last else f"chapters {first} to {last}"
            yield (
                f"{which} of the story (between attempts {before.attempt} and {after.attempt}) "
                "could not be stored or read"
            )


def _jumps(chapters: tuple[Chapter, ...]) -> Iterable[str]:
    """Where the leader's clock was set back; the clocks of two leaders differ by less."""
    for before, after in pairwise(chapters):
        until = before.closed or before.begun
        if after.number > before.number and until - after.begun > timedelta(minutes=1):
            back = in_words((until - after.begun).total_seconds())
            yield f"the clock was set back by {back} before attempt {after.attempt}"


MOST_PIECES = 600
"""Pieces of metrics that are read, at most; a piece is half a minute."""
MOST_ATTEMPTS = 10
"""Failed attempts whose last lines are shown: the newest."""
MOST_WORKERS = 8
"""Workers shown per attempt, the culprit's among them."""
MOST_RANKS = 16
"""Processes shown per attempt, the culprit first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a page of a run shows in addition."""

    curves: tuple[Block, ...] = ()
    """Metrics that rank 0 reported."""
    logs: Mapping[int, tuple[RankLog, ...]] = field(default_factory=dict)
    """By attempt, the culprit first."""
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class ExtrasReader:
    """Reads the extras of one run, and what is new in them at each further call."""

    curves: MetricCurves = field(default_factory=MetricCurves)
    _uri: str = ""
    """Of the generation that they belong to."""
    _pieces: set[str] = field(default_factory=set)
    _logs: dict[tuple[int, tuple[int, ...]], tuple[RankLog, ...]] = field(default_factory=dict)
    """By attempt and the slots that had stored lines: these lines never change."""

    def read(
        self, source: Source, life: Life, *, generation: int | None = None, lines: bool = True
    ) -> Extras:
        """The extras; without `lines`, only the curves."""
        try:
            run = generation_of(source, generation)
            if run.uri != self._uri:
                self.curves, self._pieces, self._logs = MetricCurves(), set(), {}
                self._uri = run.uri
            self.curves.add(read_metrics(run, most=MOST_PIECES, known=self._pieces))
            logs = self._last_lines(run, life) if lines else {}
            return Extras(curves=self.curves.blocks(), logs=logs)
        except (StoreError, UnknownGeneration) as error:
            return Extras(remarks=(f"curves and last lines cannot be read: {error}",))

    def _last_lines(self, run: RunStore, life: Life) -> dict[int, tuple[RankLog, ...]]:
        """The last lines of attempts that failed. Raises StoreError."""
        failed = {c.attempt: c.incident.get("rank") for c in life.incidents if c.workers}
        slots = stored_slots(run)
        found = {}
        for attempt in sorted(failed.keys() & slots)[-MOST_ATTEMPTS:]:
            key = attempt, tuple(slots[attempt])
            if key not in self._logs:
                self._logs[key] = _of(run, attempt, slots[attempt], failed[attempt])
            found[attempt] = self._logs[key]
        return found


def _of(run: RunStore, attempt: int, slots: list[int], culprit: object) -> tuple[RankLog, ...]:
    first = next(iter(read_logs(run, [(attempt, slots[0])])), None)
    each = max(len(first.ranks), 1) if first is not None else 1
    guilty = culprit // each if isinstance(culprit, int) else None
    chosen = sorted(slots, key=lambda slot: (slot != guilty, slot))[:MOST_WORKERS]
    logs = read_logs(run, [(attempt, slot) for slot in chosen])
    ranks = [rank for log in logs if log is not None for rank in log.ranks]
    ranks.sort(key=lambda rank: (rank.rank != culprit, rank.rank))
    return tuple(ranks[:MOST_RANKS])
