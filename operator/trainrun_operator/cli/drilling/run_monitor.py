"""What a drill observes of a run: when a fault is due, when the run has got far enough, what its
metrics do not show, and what it leaves in its storage. While it runs, on this machine from the
heartbeats of its agents, in a cluster from its status.

Layer: cli; reads the run's storage and status.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.checkpoint.metrics_log import read_metrics
from trainrun.checkpoint.reader import read_manifest
from trainrun.checkpoint.records import Manifest, ManifestFile
from trainrun.checkpoint.run_store import RunStore
from trainrun.contract import layout
from trainrun.contract.agent_state import AgentState
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.metrics import decode
from trainrun.errors import TrainRunError
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.drilling.checkpoint_digests import LARGEST, Entries, content
from trainrun_operator.cli.drilling.runs import Content, DrillRun, Ending, Files, Noticed, Point
from trainrun_operator.cli.explaining.life import life_of
from trainrun_operator.cli.sources import Source
from trainrun_operator.worlds.local.faults import Fault, steps_of


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """How far one run has got."""

    until: int | None
    """The step that it must reach; None: until it leaves room for every fault."""
    share: float = math.inf
    """Seconds after which two checkpoints are enough."""
    clock: Callable[[], float] = time.monotonic
    goal_reached: bool = False
    committed: set[int] = field(default_factory=set)
    """Steps of the first attempt's checkpoints."""
    reported_steps: set[int] = field(default_factory=set)
    """Steps reported in the first attempt, as far as they were seen."""
    started_at: float | None = None

    def leaves_room(self) -> bool:
        """Whether an undisturbed run with these checkpoints and steps leaves room for every
        fault."""
        saved, reported = self.committed, self.reported_steps | self.committed
        if len(saved) < 2:
            return False
        between = any(min(saved) < step < max(saved) for step in reported - saved)
        beyond = max(reported) > sorted(saved)[1] + 1
        late = self.started_at is not None and self.clock() - self.started_at > self.share
        return len(saved) >= (THIRD if between else FIFTH) or (late and beyond)


@dataclass(slots=True, kw_only=True)
class Watcher(RunProgress):
    """Receives every heartbeat of one run."""

    attempt: int
    """The attempt that must get there, or a later one."""
    ready: Callable[[], bool]
    """Whether the faults have struck."""
    enough: Callable[[], None]
    """Called once, when it has got there."""
    reads_output: bool = False
    """See `DrillRun`."""
    began: Callable[[], bool] = lambda: False
    """Whether a fault has struck."""
    on_strike: Callable[[], None] = lambda: None
    """Called once, when one has."""
    struck_at: float | None = None
    reported: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """The highest step, by attempt and rank."""
    sought: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    not_taken: str = ""
    """Why a save of the script's own folder was not stored."""
    parts: set[int] = field(default_factory=set)
    ask_gap: float = 0.0
    longest_step: float = 0.0
    _arrived: float | None = None
    """When its last step was seen."""
    _agreed: float | None = None
    _calls: dict[int, int] = field(default_factory=dict)
    """By slot: a rank that waits for no other keeps calling while another one saves."""
    _saved: float | None = None
    _asked_for: set[int] = field(default_factory=set)
    """Steps of checkpoints saved because should_save() returned true."""
    _commits: dict[int, float] = field(default_factory=dict)

    def observe(self, state: AgentState) -> None:
        """Record a heartbeat."""
        if self.struck_at is None and self.began():
            self.struck_at = self.clock()
            self.on_strike()
        if not state.attempt:
            return
        for rank, step in self._shown(state).items():
            steps = self.reported[state.attempt]
            steps[rank] = max(step, steps.get(rank, step))
        if state.asked_for_checkpoint:
            self.sought.add(state.attempt)
        if state.save.calls:
            self.asked.add(state.attempt)
        if state.rendezvous:
            self.opened.add(state.attempt)
        if state.attempt == 1:
            self._note_first_attempt(state)
        if not self.goal_reached and state.phase == "Running" and self._at_goal(state):
            self.goal_reached = True
            self.enough()

    def noticed(self, step: int) -> Noticed:
        """What happened after a notice at this step."""
        # A regular checkpoint meanwhile does not show how long a save on a notice takes.
        commits = [
            moment
            for at, moment in self._commits.items()
            if (at in self._asked_for if self._asked_for else at >= step)
        ]
        return Noticed(
            agreed=self._after(self._agreed),
            reported=self._after(self._saved),
            committed=self._after(min(commits, default=None)),
            calls=max(min(self._calls.values(), default=0), 0),
        )

    @property
    def commit_gap(self) -> float:
        """Longest time between two commits of the first attempt, in seconds; 0: there were not
        two."""
        moments = sorted(self._commits.values())
        return max((b - a for a, b in pairwise(moments)), default=0.0)

    def _note_first_attempt(self, state: AgentState) -> None:
        self.started_at = self.started_at or self.clock()
        shown = self._shown(state).values()
        self.reported_steps |= {*shown}
        for problem in state.problems:
            if problem.type == "FolderNotTaken":
                self.not_taken = problem.message
        self.parts |= {s.step for s in state.staged if s.ranks and not s.whole}
        self.ask_gap = max(self.ask_gap, state.ask_gap)
        if self.struck_at is None:
            self.longest_step = max(self.longest_step, state.owes or 0.0)
        if state.committed is not None and state.committed.id.step not in self._commits:
            self._commits[state.committed.id.step] = self.clock()
            if not self.reads_output:
                self.committed.add(state.committed.id.step)
            elif shown:
                self.committed.add(max(shown))
        if state.save.committed is not None:
            self._agreed = self._agreed or self.clock()
            self._calls[state.slot] = state.save.calls - state.save.committed
        asked_for = {staged.step for staged in state.staged if staged.after_save and staged.ranks}
        if asked_for and self._saved is None:
            self._saved = self.clock()
        self._asked_for |= asked_for

    def _shown(self, state: AgentState) -> dict[int, int]:
        """Steps by rank."""
        if not self.reads_output:
            state = replace(state, output=None)
        return steps_of(state, state.slot * len(state.steps))

    def _after(self, moment: float | None) -> float | None:
        """Seconds since the strike."""
        if moment is None or self.struck_at is None:
            return None
        return max(moment - self.struck_at, 0.0)

    def _at_goal(self, state: AgentState) -> bool:
        if state.attempt < self.attempt or not self.ready():
            return False
        if self.until is None:
            return self.leaves_room()
        steps = self.reported[state.attempt]
        ranks = range(state.slot * len(state.steps), (state.slot + 1) * len(state.steps))
        if not steps or min(steps) not in ranks or steps[min(steps)] < self.until:
            return False
        # Its checkpoint there is compared, so it is stopped when that is committed.
        self._arrived = self.clock() if self._arrived is None else self._arrived
        is_stored = not any(staged.step <= self.until for staged in state.staged)
        return is_stored or self.clock() - self._arrived > LAST_COMMIT


LAST_COMMIT = 5.0
"""Seconds to wait for the checkpoint of the last step."""
THIRD = 3
"""Checkpoints: two to resume from, and as many steps again to compare after that."""
FIFTH = 5
"""Likewise for a script that reports only when it saves: a fault strikes with the third one."""


Due = Literal["Nothing", "Strike", "Stop"]


@dataclass(slots=True, kw_only=True)
class StatusPoller(RunProgress):
    """Polls one run in a cluster. Its status lags some seconds behind the training, and what is
    committed about a second: what is due at a step comes a little after it."""

    fault: Fault | None
    struck: bool = False

    def due(self, status: TrainRunStatus, saved: Iterable[CheckpointId] = ()) -> Due:
        """What to do now, with these checkpoints in its storage; `Stop` once."""
        last, reported = (
            {checkpoint.step for checkpoint in saved if checkpoint.attempt == status.attempt},
            _reported(status),
        )
        if status.attempt == 1:
            self.committed |= last
            self.reported_steps |= reported
        if self.fault is not None and not self.struck:
            # What is committed was saved a while ago: the training is beyond it.
            begun = any(
                step >= self.fault.step for step in (*reported, *(step + 1 for step in last))
            )
            runs = status.attempt == 1 and status.phase == "Running"
            return "Strike" if runs and begun else "Nothing"
        if self.goal_reached or not self._at_goal(status, last | reported):
            return "Nothing"
        self.goal_reached = True
        return "Stop"

    def _at_goal(self, status: TrainRunStatus, steps: set[int]) -> bool:
        if status.attempt < (1 if self.fault is None else 2):
            return False
        if self.until is None:
            self.started_at = self.started_at or self.clock()
            return self.leaves_room()
        return any(step >= self.until for step in steps)


def _reported(status: TrainRunStatus) -> set[int]:
    """The step that the running attempt has reported, as far as is known; empty: none yet."""
    chapter, step = status.chapter, status.progress.step
    if step is None or chapter is None or chapter.first_step is None:
        return set()
    return {step} if chapter.attempt == status.attempt and status.phase == "Running" else set()


def with_stored(drill_run: DrillRun, source: Source) -> DrillRun:
    """With what its storage and its story show. Raises StoreError."""
    store = source.checkpoints()
    # A fenced checkpoint was not committed; an incomplete one never will be.
    good = [info for info in list_checkpoints(store) if info.state == "good"]
    manifests = []
    for info in good:
        with suppress(TrainRunError):  # complete, and not committed yet
            manifests.append(read_manifest(store, info.id))
    first = {info.id.step for info in good if info.id.attempt == 1}
    stored = replace(
        drill_run,
        points=tuple(_points(store)),
        chapters=life_of(source).ran,
        committed=tuple(sorted({*drill_run.committed, *first})),
        contents={
            (manifest.attempt, manifest.step): read_files(store, manifest) for manifest in manifests
        },
        savers=tuple(
            sorted({r for manifest in manifests for file in manifest.files for r in file.ranks})
        ),
    )
    if not drill_run.reads_output:
        return stored
    own = {}
    for manifest in manifests:
        note, place = manifest.metadata.get("folder", {}), (manifest.attempt, manifest.step)
        if note.get("number") is not None:  # else it depends on luck which save has which step
            own[place] = of_save(stored.contents[place], note["names"])
    return in_steps_of_output(replace(stored, committed=drill_run.committed, contents=own))


def of_save(files: Files, names: Iterable[str]) -> Files:
    """The files of a save with these names. How far a log beside it has got depends on luck."""
    within = tuple(f"{name}/" for name in names)
    return {name: content for name, content in files.items() if f"{name}/".startswith(within)}


def in_steps_of_output(drill_run: DrillRun) -> DrillRun:
    """With what each attempt was handed as the step before the first one that its output shows.
    Nobody sees whether the script opened it."""

    def shown(chapter: Chapter) -> Chapter:
        point, first = chapter.resumed_from, drill_run.began(chapter.attempt)
        if point is None or first is None:
            return chapter
        return replace(chapter, resumed_from=replace(point, step=first - 1))

    chapters = tuple(map(shown, drill_run.chapters))
    attempts = frozenset(chapter.attempt for chapter in chapters)
    return replace(drill_run, chapters=chapters, sought=attempts, opened=attempts)


def ended(status: TrainRunStatus, *, goal_reached: bool) -> tuple[Ending, str]:
    """How it ended, and why it failed; `goal_reached`: it was stopped at its goal."""
    failed = status.condition("Failed")
    if failed is not None and failed.status == "True":
        return "Failed", failed.message
    if status.is_true("Complete"):
        return "Succeeded", ""
    return "Stopped" if goal_reached else "OutOfTime", ""


def _points(store: RunStore) -> Iterator[Point]:
    for record in read_metrics(store):
        if record.get("rank") == 0:
            metrics = decode(record["metrics"])
            yield Point(attempt=record["attempt"], step=record["step"], metrics=metrics)


def read_files(run: RunStore, manifest: Manifest) -> Files:
    """All files of a checkpoint. Of a large one that is not on this machine, only size and checksum
    are known."""
    folder = layout.folder(CheckpointId(attempt=manifest.attempt, step=manifest.step))
    found = {}
    for item in manifest.files:
        key = run.key(folder + layout.file_name(item.worker, item.name))
        try:
            entries = _entries(run, key, item)
        except (OSError, TrainRunError):
            entries = None  # deleted or damaged meanwhile
        found[item.name] = Content((item.size, item.crc32), entries)
    return found


def _entries(run: RunStore, key: str, item: ManifestFile) -> Entries | None:
    at = urlsplit(run.store.uri)
    if at.scheme == "file":
        with Path(unquote(at.path), key).open("rb") as file:
            return content(file, item.size)
    if item.size > LARGEST:
        return None
    with tempfile.TemporaryDirectory() as made:
        path = Path(made, "file")
        run.store.get_file(key, path, size=item.size, crc32=item.crc32)
        with path.open("rb") as file:
            return content(file, item.size)
