"""One attempt on this worker: its processes and the messages they send.

Layer: agent. Built at its start order and kept until the next start order, so that heartbeats can
report the state of an ended attempt until then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainrun.agent.attempt_context import AttemptContext
from trainrun.agent.checkpoints.bringing import Bringing
from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.checkpoints.overdue import overdue_checkpoint
from trainrun.agent.checkpoints.run_artifacts import MetricsQueue
from trainrun.agent.checkpoints.staged import StagedSteps, StagingCapacity
from trainrun.agent.checkpoints.tasks import TaskKeeping
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.agent.evidence.gathering import Subject
from trainrun.agent.evidence.rank_connections import RankConnectionMonitor
from trainrun.agent.folder.keeping import FolderCheckpoints
from trainrun.agent.output.reading import OutputReading
from trainrun.agent.processes.environment import RankFiles
from trainrun.agent.processes.group import Launch, ProcessGroup
from trainrun.agent.processes.launches import launches_of
from trainrun.agent.training.activity import Activity, Pacing
from trainrun.agent.training.ipc import IpcServer
from trainrun.agent.training.posted_progress import ProgressServer
from trainrun.agent.training.save_cost import SaveCost
from trainrun.agent.training.step_clock import Asking, Loading, StepClock, TrainingProgress
from trainrun.agent.training.tally import Tally
from trainrun.agent.training.vote import Voter
from trainrun.contract.agent_state import Problem, ProcessExit
from trainrun.contract.answer import OpenStep, Start
from trainrun.contract.environment import placed
from trainrun.contract.evidence import RankConnections
from trainrun.contract.messages import (
    AskedForCheckpoint,
    Finish,
    Raised,
    Report,
    Saved,
    SaveFailed,
    SectionBegun,
    SectionEnded,
    Statement,
    Unstaged,
    Working,
)
from trainrun.contract.questions import (
    AskAttemptKey,
    AskSave,
    AskTasks,
    AskToStage,
    Decided,
    DescribeCheckpoint,
    FetchCheckpoint,
    FetchInitial,
    FetchRanges,
    Granted,
    Reply,
    Request,
)

LOG = logging.getLogger("trainrun.agent")

SETTLED = 3.0
"""Seconds from the first step until standbys are loaded: by then the attempt has allocated its
memory, and loading does not slow down the first steps of its peers."""
SETTLED_UNREPORTED = 60.0
"""The same, counted from the spawn, for a script that reports nothing."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The parts of one attempt, wired together."""

    start: Start
    ranks: tuple[int, ...]
    around: AttemptContext
    processes: ProcessGroup
    staged: StagedSteps
    rooms: StagingCapacity
    voter: Voter
    tally: Tally
    uploads: Uploads
    bringing: Bringing
    fetching: Fetching
    folder: FolderCheckpoints
    tasks: TaskKeeping
    report: TrainingProgress
    metrics: MetricsQueue
    """Of rank 0."""
    posts: ProgressServer
    """Likewise."""
    output: OutputReading
    asking: Asking
    clock: StepClock
    activity: Activity = field(default_factory=Activity)
    pacing: Pacing = field(default_factory=Pacing)
    save_cost: SaveCost = field(default_factory=SaveCost)
    loading: Loading = field(default_factory=Loading)
    meetings: RankConnectionMonitor = field(default_factory=RankConnectionMonitor)
    spawned: float = 0.0
    """When the processes were started, on the monotonic clock."""
    begun: float = 0.0
    """The same on the wall clock, for display."""
    _launches: list[Launch] = field(default_factory=list)
    _server: IpcServer | None = None
    _files: dict[int, RankFiles] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The attempt's number."""
        return self.start.attempt

    @property
    def meeting(self) -> RankConnections | None:
        """Whether its ranks are connected to those of other workers; None: a single rank."""
        if self.start.world_size == 1:
            return None
        found, files = self.meetings.found, self._files.values()
        asked = any(placed(paths.control_file).exists() for paths in files)
        return replace(found, known=found.known or self.processes.introduced, placed=asked)

    @property
    def _unmet(self) -> bool:
        """No sign yet that its ranks are connected to others."""
        return self.start.world_size > 1 and not self.processes.introduced

    def launch(self) -> None:
        """Start the processes and everything that serves them."""
        around = self.around
        self._server = IpcServer(
            around.folders.socket(self.number),
            self.ranks,
            statement=self.receive,
            request=self.answer,
            hello=self.processes.introduce,
        )
        self.processes.before_exit = self.drain
        self.processes.on_exit = self._on_exit
        self.uploads.start()
        if around.config.slot == 0:
            self.metrics.start()
            self.posts.open()
        self.spawned, self.begun = time.monotonic(), time.time()
        self.clock.start(self.spawned)
        self.output.start(self.spawned)
        self.activity.start(self.spawned)
        self._launches = launches_of(
            around.config,
            self.start,
            self._files,
            posts=self.posts.url,
            generation=around.storage.generation,
        )
        given = {launch.rank: launch.environment for launch in self._launches}
        self.meetings.start(self.start.master_port, given, self.spawned)
        self.folder.begin(self._launches, self.clock)
        around.news()

    def drain(self) -> None:
        """Read what the processes have sent until now."""
        if self._server is not None:
            self._server.drain()

    def terminate(self) -> None:
        """Send the processes SIGTERM, or do not start them."""
        self.processes.terminate()
        self.folder.cancel()

    def stop(self) -> None:
        """Kill the processes."""
        if self.processes.alive:
            self.processes.stop()

    @property
    def alive(self) -> bool:
        """A process lives, or its folder is being restored or stored."""
        return self.processes.alive or self.folder.busy

    def close(self) -> None:
        """The next attempt begins: write nothing more under this one."""
        if self._server is not None:
            self._server.close()
        self.tally.close()
        self.voter.close()
        self.uploads.close()
        self.tasks.close()
        self.metrics.close()
        self.posts.close()
        self.output.close()

    def problems(self, now: float) -> tuple[Problem, ...]:
        """What is wrong now and what the user can do about it."""
        overdue = overdue_checkpoint(
            self.staged, self.processes.living_ranks, now, self.around.config.checkpoint_patience
        )
        uploads = self.uploads
        found = (
            self.report.ignored,
            None if self.folder.rule.path else overdue,
            uploads.problem,
            uploads.retaining.problem,
            uploads.torn.problem,
            uploads.turns.problem,
            self.fetching.problem,
            self.tasks.problem,
            self.tally.problem,
            self.output.problem,
            self.folder.problem,
            self.around.standbys.problem,
        )
        return tuple(problem for problem in found if problem is not None)

    def look(self, now: float) -> None:
        """Check timers, saves that continue after their report, and calls of `should_save()`;
        called about once a second."""
        self.uploads.look()
        self.clock.tick(now)
        self.output.tick(now)
        self.folder.tick(now)
        if self.activity.look(self.processes.living_pids, now):
            excused = self.clock.owes(now) is None
            self.pacing.look(self.activity.busy, now, excused=excused)
        if self._unmet and self.meetings.look(self.processes.living_pids, now):
            self.around.news()
        vote = self.voter.vote
        stopped = vote.prepared is not None or vote.committed is not None
        self.asking.look(self.processes.living_ranks, now, stopped=stopped)

    def keep_standbys(self, now: float) -> None:
        """Make sure that each rank has one, while nothing more urgent is going on."""
        first, vote = self.report.first_report, self.voter.vote
        begun, settled = (self.spawned, SETTLED_UNREPORTED) if first is None else (first, SETTLED)
        complete = len(self.processes.living_ranks) == len(self.ranks)
        saving = vote.prepared is not None or vote.committed is not None
        if complete and not saving and now - begun >= settled:
            self.around.standbys.keep(self._launches)

    def changed(self) -> None:
        """Staged or stored steps have changed: wake uploads and ranks that wait for room."""
        self.uploads.wake()
        self.rooms.wake()

    def hear(self, steps: Sequence[OpenStep]) -> None:
        """Other workers have files for these steps, or have stored their parts."""
        self.staged.open((step.step for step in steps), time.monotonic())
        self.folder.hear(step.step for step in steps)
        for step in steps:
            self.uploads.stored(step.step, step.slots)

    def receive(self, rank: int, statement: Statement) -> None:
        """Handle a statement of a process."""
        match statement:
            case Report():
                self._report(rank, statement)
            case Saved():
                self.bringing.saved(rank, statement)
            case SaveFailed():
                self.bringing.save_failed(rank, statement)
            case Unstaged():
                self.bringing.unstaged(rank, statement)
            case Finish():
                self.report.finished.add(rank)
                self.around.news()
            case AskedForCheckpoint():
                self.report.asked_for_checkpoint = True
                self.around.progress()
            case Raised():
                self.processes.exception(rank, statement)
            case SectionBegun():
                self.clock.begun(rank, statement, time.monotonic())
            case SectionEnded():
                self.clock.ended(rank, statement.number, time.monotonic())
            case Working():
                self.clock.moved(time.monotonic())

    async def answer(self, rank: int, request: Request) -> Reply:
        """Answer a request of a process."""
        if self._dies_of(rank, request):
            self.processes.kill(rank)
            await asyncio.Event().wait()  # until its connection closes: it must get no answer
        if isinstance(request, AskToStage):  # other ranks may have to end this wait
            await self.rooms.wait(rank, request.step)
            self.clock.moved(time.monotonic())
            return Granted()
        self.clock.begin_wait()
        try:
            return await self._answer(rank, request)
        finally:
            self.clock.end_wait(time.monotonic())

    async def _answer(
        self,
        rank: int,
        request: FetchCheckpoint
        | DescribeCheckpoint
        | FetchInitial
        | FetchRanges
        | AskSave
        | AskTasks
        | AskAttemptKey,
    ) -> Reply:
        match request:
            case FetchCheckpoint():
                self.report.loaded = True
                with self.loading:
                    return await self.fetching.checkpoint(request.rank, request.include)
            case DescribeCheckpoint():
                return await self.fetching.info()
            case FetchInitial():
                with self.loading:
                    return await self.fetching.initial_checkpoint(request.include)
            case FetchRanges():
                self.report.loaded = True
                with self.loading:
                    return await self.fetching.ranges(request.file, request.ranges)
            case AskSave():
                return Decided(save=await self.voter.ask(rank, request.call))
            case AskTasks():
                return await self.tasks.answer(request)
            case AskAttemptKey():
                return self.tasks.attempt_key()

    def subjects(self) -> tuple[Subject, ...]:
        """The ranks whose processes live, for gathering evidence."""
        steps = dict(zip(self.ranks, self.staged.last_steps, strict=True))
        return tuple(
            Subject(
                rank=process.rank,
                pid=process.pid,
                spokesman=process.hello,
                step=steps[process.rank],
                last_lines=process.tail.last_lines,
                stacks=self._files[process.rank].stacks,
            )
            for process in self.processes.living
        )

    def _report(self, rank: int, report: Report) -> None:
        now = time.monotonic()
        before = self.staged.last_step(rank)
        first = self.report.first_report is None
        self.report.report(rank, report.step, report.metrics, now)
        self.clock.stepped(now)
        self.pacing.stepped(rank, report.step, now)
        saves = report.files is not None or report.pending
        self.save_cost.stepped(rank, report.step, now, saves=saves)
        self.folder.reported(rank, report)
        changed = self.bringing.reported(rank, report)
        if report.metrics and rank == 0:
            self.metrics.add(rank, report.step, report.metrics)
        if first or any(before < step <= report.step for step in self.around.config.tell_at):
            self.around.news()
        elif not changed:
            self.around.progress()
        if rank in self.processes.living_ranks and self.around.faults.strikes(rank, report.step):
            self.processes.kill(rank)

    def _dies_of(self, rank: int, request: Request) -> bool:
        """Whether this request triggers a fault on demand."""
        if rank not in self.processes.living_ranks:
            return False
        if isinstance(request, AskToStage):
            return self.around.faults.strikes(rank, request.step, "save")
        resume = self.start.resume
        if not isinstance(request, FetchCheckpoint) or resume is None:
            return False
        return self.around.faults.strikes(rank, resume.step, "load")

    def _on_exit(self, end: ProcessExit) -> None:
        self.around.faults.ended(end.rank, end.signal)
        self.clock.left(end.rank, time.monotonic())
        if self._unmet:
            self.meetings.ended()
        self.uploads.look()
        if end.well:
            self.staged.exited_well(end.rank)
            self.bringing.drop_lost()
            yielded = end.rank in self.voter.saved and end.rank not in self.report.finished
            self.processes.update_exit(end.rank, yielded=yielded)
        if not self.processes.alive:
            self.output.finish()
            self.metrics.hurry()
            self.folder.ended()
        self.changed()
        self.around.news()
