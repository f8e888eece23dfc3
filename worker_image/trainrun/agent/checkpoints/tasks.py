"""Reads and writes the run's store for a program of tasks.

Layer: agent. Invariants: only below `tasks/` of the run's folder, only files of this worker, and
nothing for an attempt once the next one has begun. A slow upload delays neither the log nor the
agent's own calls, since each has its own threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from trainrun.agent.checkpoints.opened_store import OpenedStore
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.contract import layout
from trainrun.contract.agent_state import Problem
from trainrun.contract.answer import Answer, LostRank
from trainrun.contract.questions import AskTasks, AttemptKey, Failed, Reply, TasksDone
from trainrun.errors import ObjectNotFound, StoreError, TrainRunError

BULK = 8
"""Concurrent transfers, for all ranks of the worker."""
OF_THE_LOG = ("read", "append")


class TaskStore:
    """The folder `tasks/` of the run, for all attempts of this agent."""

    def __init__(self, store: OpenedStore) -> None:
        self._store = store
        self._log = ThreadPoolExecutor(1, thread_name_prefix="task-log")
        self._bulk = ThreadPoolExecutor(BULK, thread_name_prefix="task-objects")
        self._opening = threading.Lock()
        self._folder: TaskFolder | None = None

    @property
    def uri(self) -> str:
        """Of the folder. Does no I/O."""
        storage, generation = self._store.config.storage, self._store.generation
        run = layout.run_uri(storage.uri, storage.run_name)
        return layout.tasks_uri(layout.generation_folder(run, generation))

    async def call(self, asked: AskTasks, *, allowed: Callable[[], bool], begun: int) -> TasksDone:
        """Carry out a call. `allowed` is called right before, in a thread; for `begun` see
        TaskFolder.

        Raises StoreError, TaskLogDamaged; ValueError for a path outside this worker's folder or an
        unknown call; OSError.
        """

        def work() -> TasksDone:
            if not allowed():
                raise TrainRunError("the next attempt has started")
            folder = self._opened()
            folder.begun = begun
            return self._do(folder, asked)

        pool = self._log if asked.call in OF_THE_LOG else self._bulk
        return await asyncio.wrap_future(pool.submit(work))

    def close(self) -> None:
        """Take no more calls; abandon those under way."""
        self._log.shutdown(wait=False, cancel_futures=True)
        self._bulk.shutdown(wait=False, cancel_futures=True)

    def _opened(self) -> TaskFolder:
        with self._opening:
            run = self._store.run()
            if self._folder is None or self._folder.folder != run:
                self._folder = TaskFolder(run, scratch=self._own)
            return self._folder

    def _do(self, folder: TaskFolder, asked: AskTasks) -> TasksDone:
        names = list(asked.names)
        match asked.call:
            case "read":
                lines = (batch + b"\n" for batch in folder.read(asked.position))
                self._file(asked).write_bytes(b"".join(lines))
            case "append":
                batch = self._file(asked).read_bytes()
                return TasksDone(written=folder.append(asked.position, batch))
            case "upload":
                folder.upload(self._file(asked), names[0])
            case "download":
                folder.download(names[0], self._file(asked))
            case "sizes":
                return TasksDone(sizes=tuple(folder.sizes(names)))
            case "set_aside":
                folder.set_aside(names[0])
            case _:
                raise ValueError(f"the agent does not know the call {asked.call!r} of tasks")
        return TasksDone()

    def _file(self, asked: AskTasks) -> Path:
        path = Path(asked.path).resolve()
        if not path.is_relative_to(self._own.resolve()):
            raise ValueError(f"{path} is not in the folder of this worker, {self._own}")
        return path

    @property
    def _own(self) -> Path:
        return Path(self._store.config.directory).absolute()


@dataclass(slots=True, kw_only=True)
class TaskKeeping:
    """Serves the task calls of one attempt."""

    store: TaskStore
    attempt: int
    news: Callable[[], None]
    key: str = field(default="", repr=False)
    """Of the attempt, from the operator's answer."""
    lost: tuple[LostRank, ...] = ()
    """In earlier attempts; from the answer, too."""
    problem: Problem | None = None
    _begun: int = 0
    _closed: bool = False

    async def answer(self, asked: AskTasks) -> Reply:
        """Answer a rank's call."""
        try:
            done = await self.store.call(asked, allowed=lambda: not self._closed, begun=self._begun)
        except (TrainRunError, OSError, ValueError) as error:
            kind = "OSError" if isinstance(error, OSError) else type(error).__name__
            waits = isinstance(error, StoreError) and not isinstance(error, ObjectNotFound)
            self._set_problem(error if waits else None)
            return Failed(error=str(error), kind=kind)
        self._set_problem(None)
        return done

    def apply(self, answer: Answer) -> None:
        """Take the fields of the operator's answer about the attempt."""
        self.key, self.lost = answer.key, answer.lost
        self._begun = answer.begun

    def attempt_key(self) -> Reply:
        """Reply with the key of the attempt."""
        if self.key:
            lost = tuple((entry.attempt, entry.rank) for entry in self.lost)
            return AttemptKey(key=self.key, uri=self.store.uri, lost=lost)
        return Failed(
            error="the operator sent no key for this attempt, so its ranks cannot authenticate "
            "each other"
        )

    def close(self) -> None:
        """The next attempt begins: write nothing more for this one."""
        self._closed = True

    def _set_problem(self, error: Exception | None) -> None:
        problem = None
        if error is not None:
            message = f"tasks of attempt {self.attempt} wait for the store: {error}"
            kind = type(error).__name__
            problem = Problem(type="StorageUnavailable", reason=kind, message=message)
        if problem != self.problem:
            self.problem = problem
            self.news()
