"""One attempt on this worker: its processes and everything that they say.

Layer: agent. Built at its start order and kept until that of the next one, so that the state of an
ended attempt is told for as long as anybody may ask.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.checkpoints.metrics_queue import MetricsQueue
from trainrun.agent.checkpoints.overdue import overdue_checkpoint
from trainrun.agent.checkpoints.rooms import Rooms
from trainrun.agent.checkpoints.staged import StagedSteps
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.agent.exhaustive import assert_never
from trainrun.agent.faults import Faults
from trainrun.agent.processes.environment import RankFiles, process_environment
from trainrun.agent.processes.folders import Folders
from trainrun.agent.processes.group import Launch, ProcessGroup
from trainrun.agent.processes.oom import OomCounter
from trainrun.agent.processes.output import Sink
from trainrun.agent.training.asking import Asking
from trainrun.agent.training.ipc import Handlers, IpcServer
from trainrun.agent.training.loading import Loading
from trainrun.agent.training.posts import Posts
from trainrun.agent.training.progress import TrainingProgress
from trainrun.agent.training.step_clock import StepClock
from trainrun.agent.training.tally import Tally
from trainrun.agent.training.vote import Voter
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import Problem, ProcessExit
from trainrun.contract.answer import Start
from trainrun.contract.control_file import CallGate
from trainrun.contract.messages import (
    AskRoom,
    AskSave,
    DescribeCheckpoint,
    FetchCheckpoint,
    FetchInitial,
    Finish,
    Raised,
    Report,
    Request,
    SectionBegun,
    SectionEnded,
    Statement,
    Unstaged,
)
from trainrun.contract.replies import Decided, Granted, Reply

LOG = logging.getLogger("trainrun.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """What outlives attempts."""

    config: AgentConfig
    folders: Folders
    storage: AsyncRunStore
    sink: Sink
    oom: OomCounter
    faults: Faults
    news: Callable[[], None]
    """Something changed that the operator waits for."""
    progress: Callable[[], None]
    """Steps or metrics changed."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The parts of one attempt, wired together."""

    start: Start
    ranks: tuple[int, ...]
    around: AttemptContext
    processes: ProcessGroup
    staged: StagedSteps
    rooms: Rooms
    voter: Voter
    tally: Tally
    uploads: Uploads
    fetching: Fetching
    report: TrainingProgress
    metrics: MetricsQueue | None
    posts: Posts | None
    asking: Asking
    clock: StepClock
    loading: Loading = field(default_factory=Loading)
    spawned: float = 0.0
    """When the processes were started, on the monotonic clock."""
    _server: IpcServer | None = None
    _files: dict[int, RankFiles] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The attempt's number."""
        return self.start.attempt

    def launch(self) -> None:
        """Start the processes and everything that serves them."""
        around = self.around
        self._server = IpcServer(
            around.folders.socket(self.number),
            self.ranks,
            Handlers(statement=self.hear, request=self.answer),
        )
        self.processes.before_exit = self.drain
        self.processes.on_exit = self._on_exit
        self.uploads.start()
        if self.metrics is not None:
            self.metrics.start()
        if self.posts is not None:
            self.posts.open()
        self.spawned = time.monotonic()
        self.clock.start(self.spawned)
        self.processes.start([self._launch(local) for local in range(len(self.ranks))])
        around.news()

    def drain(self) -> None:
        """Read what the processes have sent so far."""
        if self._server is not None:
            self._server.drain()

    def stop(self) -> None:
        """Kill the processes."""
        if self.processes.alive:
            self.processes.stop()

    def close(self) -> None:
        """The next attempt begins: nothing is written under this one any more."""
        if self._server is not None:
            self._server.close()
        self.tally.close()
        self.voter.close()
        self.uploads.close()
        if self.metrics is not None:
            self.metrics.close()
        if self.posts is not None:
            self.posts.close()

    def problems(self, now: float) -> tuple[Problem, ...]:
        """What is wrong now and what its user can do about it."""
        overdue = overdue_checkpoint(
            self.staged, self.processes.living_ranks, now, self.around.config.checkpoint_patience
        )
        uploads = self.uploads
        found = (
            self.report.ignored,
            overdue,
            uploads.problem,
            uploads.turns.problem,
            self.fetching.problem,
            self.tally.problem,
        )
        return tuple(problem for problem in found if problem is not None)

    def look(self, now: float) -> None:
        """See that time passes, and who has asked `should_save()`; called about once a second."""
        self.clock.tick(now)
        vote = self.voter.vote
        stopped = vote.prepared is not None or vote.committed is not None
        self.asking.look(self.processes.living_ranks, now, stopped=stopped)

    def changed(self) -> None:
        """What is staged or stored has changed: whoever waits for that looks again."""
        self.uploads.wake()
        self.rooms.wake()

    def hear(self, rank: int, statement: Statement) -> None:
        """Take in what a process says."""
        match statement:
            case Report():
                self._report(rank, statement)
            case Unstaged():
                self.rooms.used(rank)
                self.rooms.wake()
                self.staged.lacks(rank, statement.step)
            case Finish():
                self.report.finished.add(rank)
                self.around.news()
            case Raised():
                self.processes.exception(rank, statement)
            case SectionBegun():
                self.clock.begun(rank, statement, time.monotonic())
            case SectionEnded():
                self.clock.ended(rank, statement.number, time.monotonic())
            case _:
                assert_never(statement)

    async def answer(self, rank: int, request: Request) -> Reply:
        """Do what a process asks for."""
        if isinstance(request, AskRoom):  # a wait that other ranks may have to end
            await self.rooms.wait(rank, request.step)
            self.clock.moved(time.monotonic())
            return Granted()
        self.clock.waits()
        try:
            return await self._answer(rank, request)
        finally:
            self.clock.goes_on(time.monotonic())

    async def _answer(  # noqa: RET503 - closed union
        self,
        rank: int,
        request: FetchCheckpoint | DescribeCheckpoint | FetchInitial | AskSave,
    ) -> Reply:
        match request:
            case FetchCheckpoint():
                with self.loading:
                    return await self.fetching.checkpoint(request.rank)
            case DescribeCheckpoint():
                return await self.fetching.info()
            case FetchInitial():
                with self.loading:
                    return await self.fetching.initial_checkpoint()
            case AskSave():
                return Decided(save=await self.voter.ask(rank, request.call))
            case _:
                assert_never(request)

    def _report(self, rank: int, report: Report) -> None:
        now = time.monotonic()
        before = self.staged.last_step(rank)
        first = self.report.first_report is None
        self.report.report(rank, report.step, report.metrics, now)
        self.clock.moved(now)
        if report.files is not None:
            self._bring(rank, report, report.files, now)
        awaited = self.staged.passes(rank, report.step)
        self._drop_lost()
        if self.metrics is not None and report.metrics and rank == self.ranks[0]:
            self.metrics.add(rank, report.step, report.metrics)
        if report.files is not None or awaited:
            self.changed()
            self.around.news()
        elif first or any(before < step <= report.step for step in self.around.config.tell_at):
            self.around.news()
        else:
            self.around.progress()
        if rank in self.processes.living_ranks and self.around.faults.strikes(rank, report.step):
            self.processes.kill(rank)

    def _drop_lost(self) -> None:
        for step in self.staged.lost():
            LOG.warning(
                "files for step %d could not be staged, and their rank went on: there will be no "
                "checkpoint of this step, on any rank",
                step,
            )
            self.uploads.drop(step)
            self.around.news()

    def _bring(self, rank: int, report: Report, name: str, now: float) -> None:
        directory = self._files[rank].staging / name
        self.rooms.used(rank)
        wanted = self.staged.bring(
            rank,
            report.step,
            directory,
            metrics=report.metrics,
            metadata=report.metadata,
            whole=report.whole,
            after_save=rank in self.voter.saved,
            now=now,
        )
        if not wanted:
            self.uploads.remove([directory])

    def _on_exit(self, end: ProcessExit) -> None:
        self.around.faults.ended(end.rank, end.signal)
        self.clock.left(end.rank, time.monotonic())
        if end.well:
            self.staged.exited_well(end.rank)
            self._drop_lost()
            yielded = end.rank in self.voter.saved and end.rank not in self.report.finished
            self.processes.update_exit(end.rank, yielded=yielded)
        self.changed()
        self.around.news()

    def _launch(self, local_rank: int) -> Launch:
        config = self.around.config
        rank = self.ranks[local_rank]
        return Launch(
            rank=rank,
            command=config.command,
            working_dir=config.working_dir,
            environment=process_environment(
                os.environ,
                config,
                self.start,
                local_rank,
                self._files[rank],
                posts=self.posts.url if self.posts is not None else "",
                generation=self.around.storage.generation,
            ),
        )


def build(start: Start, around: AttemptContext) -> Attempt:
    """Put the parts of an attempt together; `launch` brings them to life."""
    config = around.config
    ranks = tuple(range(config.first_rank, config.first_rank + config.processes_per_worker))
    files = {rank: around.folders.of_rank(start.attempt, rank) for rank in ranks}
    processes = ProcessGroup(sink=around.sink, oom=around.oom)
    staged = StagedSteps(ranks)
    rooms = Rooms(staged=staged, max_pending=config.max_pending)

    gates = {rank: CallGate(paths.control_file) for rank, paths in files.items()}
    voter = Voter(
        files=gates,
        living=lambda: processes.living_ranks,
        news=around.news,
        ended_well=lambda: processes.ended_well,
    )

    def stored() -> None:
        rooms.wake()
        around.news()

    return Attempt(
        start=start,
        ranks=ranks,
        around=around,
        processes=processes,
        staged=staged,
        rooms=rooms,
        voter=voter,
        tally=Tally(
            attempt=start.attempt,
            slot=config.slot,
            workers=start.workers,
            votes=voter,
            box=around.storage,
        ),
        uploads=Uploads(
            attempt=start.attempt,
            slot=config.slot,
            workers=start.workers,
            staged=staged,
            storage=around.storage,
            news=stored,
        ),
        fetching=Fetching(
            storage=around.storage,
            resume=start.resume,
            initial=config.initial_from,
            news=around.news,
            source=start.source,
        ),
        clock=StepClock(excused=lambda: rooms.wait_for_store),
        report=TrainingProgress(ranks=ranks, resume=start.resume),
        metrics=(
            MetricsQueue(attempt=start.attempt, storage=around.storage)
            if config.slot == 0
            else None
        ),
        asking=Asking(files=gates),
        posts=Posts(files[0].token_file, news=around.progress) if config.slot == 0 else None,
        _files=files,
    )
