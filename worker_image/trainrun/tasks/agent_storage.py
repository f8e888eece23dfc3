"""Task storage inside a run: the agent reads and writes the log and the results.

Layer: tasks. Anything that may be large travels as a file in the worker's folder. Invariant: each
thread has its own connection. An agent answers the requests of a connection in order, so a slow
transfer on a shared one would hold up the log.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

from trainrun import errors
from trainrun._process import session
from trainrun._process.connection import Connection
from trainrun._process.context import get_context
from trainrun.contract.environment import Exchange
from trainrun.contract.messages import Hello
from trainrun.contract.questions import AskAttemptKey, AskTasks, AttemptKey, TasksDone
from trainrun.errors import AgentRefused, StoreError, TaskLogDamaged


def attempt_key() -> bytes:
    """The secret that only the ranks of this attempt share. Raises AgentRefused if the operator has
    given none, and AgentLost."""
    return bytes.fromhex(_of_attempt().key)


def lost_ranks(attempt: int) -> tuple[int, ...]:
    """The ranks that this earlier attempt lost without a preemption. Raises the same errors."""
    return tuple(rank for of, rank in _of_attempt().lost if of == attempt)


def _of_attempt() -> AttemptKey:
    return session.current().require_agent().ask(AskAttemptKey())


class AgentTaskStorage:
    """A `TaskStorage` that asks this worker's agent."""

    def __init__(self) -> None:
        """Raises what `attempt_key` raises."""
        self.uri = _of_attempt().uri
        """See TaskStorage.uri."""
        given = Exchange.read(os.environ)
        assert given is not None
        self._socket = str(given.socket)
        self._scratch = given.staging
        self._mine = threading.local()

    def read(self, after: int) -> list[bytes]:
        """See TaskStorage.read."""
        with tempfile.NamedTemporaryFile(dir=self._scratch) as file:
            self._ask(AskTasks(call="read", position=after, path=file.name))
            return file.read().split(b"\n")[:-1]

    def append(self, position: int, batch: bytes) -> bool:
        """See TaskStorage.append."""
        with tempfile.NamedTemporaryFile(dir=self._scratch) as file:
            file.write(batch)
            file.flush()
            asked = AskTasks(call="append", position=position, path=file.name)
            return self._ask(asked).written

    def upload(self, path: Path, name: str) -> None:
        """See TaskStorage.upload. The file must be in the worker's folder."""
        self._ask(AskTasks(call="upload", path=str(path.absolute()), names=(name,)))

    def download(self, name: str, path: Path) -> None:
        """See TaskStorage.download. The file will be in the worker's folder."""
        self._ask(AskTasks(call="download", path=str(path.absolute()), names=(name,)))

    def sizes(self, names: list[str]) -> list[int | None]:
        """See TaskStorage.sizes."""
        return list(self._ask(AskTasks(call="sizes", names=tuple(names))).sizes)

    def set_aside(self, name: str) -> None:
        """See TaskStorage.set_aside."""
        self._ask(AskTasks(call="set_aside", names=(name,)))

    def _ask(self, asked: AskTasks) -> TasksDone:
        if not hasattr(self._mine, "connection"):
            hello = Hello(rank=get_context().rank, pid=os.getpid())
            self._mine.connection = Connection(self._socket, hello)
        connection: Connection = self._mine.connection
        try:
            return connection.ask(asked)
        except AgentRefused as error:
            kind = OSError if error.kind == "OSError" else getattr(errors, error.kind, AgentRefused)
            if issubclass(kind, (StoreError, TaskLogDamaged, OSError)):
                raise kind(str(error)) from None
            raise
