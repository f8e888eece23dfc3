"""One attempt on this worker: its processes and everything that they say.

Layer: agent. Built at its start order and kept until that of the next one, so that the state of an
ended attempt is told for as long as anybody may ask.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent.config import AgentConfig
from trainrun.agent.control import ControlFile
from trainrun.agent.environment import RankFiles, process_environment
from trainrun.agent.exhaustive import assert_never
from trainrun.agent.faults import Faults
from trainrun.agent.fetching import Fetching, Reply
from trainrun.agent.folders import Folders
from trainrun.agent.ipc import Handlers, IpcServer
from trainrun.agent.messages import (
    AskSave,
    CheckpointInfo,
    FetchCheckpoint,
    FetchInitial,
    Finish,
    Raised,
    Report,
    Request,
    Room,
    Statement,
)
from trainrun.agent.metrics_queue import MetricsQueue
from trainrun.agent.oom import OomCounter
from trainrun.agent.output import Sink
from trainrun.agent.processes import Launch, Processes
from trainrun.agent.progress import Progress
from trainrun.agent.rooms import Rooms
from trainrun.agent.saving import Saving
from trainrun.agent.staging import Staging
from trainrun.agent.storage import Storage
from trainrun.agent.uploads import Uploads
from trainrun.agent.waiting import checkpoint_waiting
from trainrun.protocol import Problem, ProcessExit, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What outlives attempts."""

    config: AgentConfig
    folders: Folders
    storage: Storage
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
    around: Surroundings
    processes: Processes
    staging: Staging
    rooms: Rooms
    saving: Saving
    uploads: Uploads
    fetching: Fetching
    report: Progress
    metrics: MetricsQueue | None
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
        self.spawned = time.monotonic()
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
        self.saving.close()
        self.uploads.close()
        if self.metrics is not None:
            self.metrics.close()

    def problems(self, now: float) -> tuple[Problem, ...]:
        """What is wrong now and what its user can do about it."""
        waiting = checkpoint_waiting(
            self.staging, self.processes.living_ranks, now, self.around.config.checkpoint_patience
        )
        uploads = self.uploads
        found = (
            self.report.ignored,
            waiting,
            uploads.problem,
            uploads.turns.problem,
            self.fetching.problem,
        )
        return tuple(problem for problem in found if problem is not None)

    def changed(self) -> None:
        """What is staged or stored has changed: whoever waits for that looks again."""
        self.uploads.wake()
        self.rooms.wake()

    def hear(self, rank: int, statement: Statement) -> None:
        """Take in what a process says."""
        match statement:
            case Report():
                self._report(rank, statement)
            case Finish():
                self.report.finished.add(rank)
                self.around.news()
            case Raised():
                self.processes.exception(rank, statement.error)
            case _:
                assert_never(statement)

    async def answer(self, rank: int, request: Request) -> Reply:  # noqa: RET503 - closed union
        """Do what a process asks for."""
        match request:
            case Room():
                await self.rooms.wait(rank, request.step)
                return {"ok": True}
            case FetchCheckpoint():
                return await self.fetching.checkpoint(request.rank)
            case CheckpointInfo():
                return await self.fetching.info()
            case FetchInitial():
                return await self.fetching.initial_checkpoint()
            case AskSave():
                return {"save": await self.saving.ask(rank, request.call)}
            case _:
                assert_never(request)

    def _report(self, rank: int, report: Report) -> None:
        now = time.monotonic()
        first = self.report.first_report is None
        self.report.report(rank, report.step, report.metrics, now)
        if report.files is not None:
            self._bring(rank, report, report.files, now)
        awaited = self.staging.passes(rank, report.step)
        if self.metrics is not None and report.metrics and rank == self.ranks[0]:
            self.metrics.add(rank, report.step, report.metrics)
        if report.files is not None or awaited:
            self.changed()
            self.around.news()
        elif first:
            self.around.news()
        else:
            self.around.progress()
        if self.around.faults.strikes(rank, report.step):
            self.processes.kill(rank)

    def _bring(self, rank: int, report: Report, name: str, now: float) -> None:
        directory = self._files[rank].staging / name
        self.rooms.staged(rank)
        wanted = self.staging.bring(
            rank,
            report.step,
            directory,
            metrics=report.metrics,
            whole=report.whole,
            after_save=rank in self.saving.saved,
            now=now,
        )
        if not wanted:
            self.uploads.remove([directory])

    def _on_exit(self, end: ProcessExit) -> None:
        if end.code == 0:
            self.staging.exited_well(end.rank)
            yielded = end.rank in self.saving.saved and end.rank not in self.report.finished
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
                os.environ, config, self.start, local_rank, self._files[rank]
            ),
        )


def build(start: Start, around: Surroundings) -> Attempt:
    """Put the parts of an attempt together; `launch` brings them to life."""
    config = around.config
    ranks = tuple(range(config.first_rank, config.first_rank + config.processes_per_worker))
    files = {rank: around.folders.of_rank(start.attempt, rank) for rank in ranks}
    processes = Processes(sink=around.sink, oom=around.oom)
    staging = Staging(ranks)
    rooms = Rooms(staging=staging, max_pending=config.max_pending)

    def stored() -> None:
        rooms.wake()
        around.news()

    return Attempt(
        start=start,
        ranks=ranks,
        around=around,
        processes=processes,
        staging=staging,
        rooms=rooms,
        saving=Saving(
            files={rank: ControlFile(paths.control) for rank, paths in files.items()},
            living=lambda: processes.living_ranks,
            news=around.news,
        ),
        uploads=Uploads(
            attempt=start.attempt,
            slot=config.slot,
            workers=start.workers,
            staging=staging,
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
        report=Progress(ranks=ranks, resume=start.resume),
        metrics=(
            MetricsQueue(attempt=start.attempt, storage=around.storage)
            if config.slot == 0
            else None
        ),
        _files=files,
    )
