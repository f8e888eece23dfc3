"""The session of this process: its connection to the agent, if there is one.

A process belongs to a run if `TRAINRUN_SOCKET` is set. Otherwise (plain `python`, `torchrun`) the
same calls check the same arguments but send nothing. Only the training process itself may act for
its rank: calls from its child processes are refused.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import trainrun
from trainrun._common.tree import remove_directory
from trainrun._process import stacks
from trainrun._process.connection import Connection
from trainrun._process.context import get_context
from trainrun._process.staging import Staging
from trainrun.contract import messages, variables
from trainrun.contract.environment import Exchange, place_of
from trainrun.contract.local_files import CallCounter
from trainrun.errors import AgentLost, ForeignLauncher, NotTheTrainingProcess

if TYPE_CHECKING:
    from collections.abc import Callable


class Session:
    """The connection, staging folder and counters of this process; made once, on first use."""

    def __init__(self) -> None:
        """Raises NotTheTrainingProcess in a child of the training process, and ForeignLauncher."""
        self.connection: Connection | None = None
        """None without an agent, or if it exited before this process connected."""
        self.calls: CallCounter | None = None
        """None without an agent."""
        self.lost = ""
        """Why the connection is missing, if there should be one."""
        self.reporting = threading.Lock()
        """Held during a report with files: one at a time."""
        self.ordering = threading.Lock()
        """Held while a report takes its place in the order; guards the three steps below."""
        self.counting = threading.Lock()
        """Held while a call of `should_save()` gets its number."""
        self.highest_step = -1
        """Highest step that this rank has reported."""
        self.checkpoint_step = -1
        """Newest step for which this rank has reported files."""
        self.empty_step = -1
        """Newest step for which this rank has reported that it has no files."""
        self.asked_to_save = False
        """Whether `should_save()` has returned a request."""
        self._background: threading.Thread | None = None
        """Of the last pending save."""
        self._staging: Staging | None = None
        self._own_root: Path | None = None
        self._given = Exchange.read(os.environ)
        if self._given is not None:
            _check_place(self._given)
            _claim()
            self._join_agent(self._given)
            if _asked_for_checkpoint:
                self.asked_for_checkpoint()

    @property
    def staging(self) -> Staging:
        """The staging folder: the agent's, or a temporary one that is removed at exit."""
        if self._staging is None:
            if self._given is not None:
                self._staging = Staging(self._given.staging)
            else:
                self._own_root = Path(tempfile.mkdtemp(prefix="trainrun-staging-"))
                self._staging = Staging(self._own_root)
        return self._staging

    @property
    def under_agent(self) -> bool:
        """Whether the process has an agent, even one that has exited."""
        return self.connection is not None or bool(self.lost)

    def require_agent(self) -> Connection:
        """Return the connection, for calls that need one. Raises AgentLost."""
        if self.connection is None:
            raise AgentLost(self.lost)
        return self.connection

    def asked_for_checkpoint(self) -> None:
        """Report to the agent that this process has called `get_checkpoint()`."""
        if self.connection is not None:
            self.connection.send(messages.line_of(messages.AskedForCheckpoint()))

    def check_left(self) -> None:
        """Raises CheckpointUnfinished, once, if a save continued after its report."""
        if self._staging is not None:
            self._staging.check_left()

    def in_background(self, work: Callable[[], None]) -> None:
        """Do some work in a thread, after all that was given before."""
        before = self._background
        if before is None:
            _await_at_exit()

        def in_turn() -> None:
            if before is not None:
                before.join()
            work()

        self._background = threading.Thread(target=in_turn, name="trainrun-save", daemon=True)
        self._background.start()

    def await_background(self) -> None:
        """Wait until all of it is done."""
        if self._background is not None:
            self._background.join()

    def await_at_exit(self) -> None:
        """The same, unless an uncaught exception ends the process: then no rank continues."""
        if getattr(sys, "last_value", None) is None:
            self.await_background()

    def close(self) -> None:
        """Wait for pending saves, send the remaining messages, remove temporary files."""
        self.await_at_exit()
        if self.connection is not None:
            self.connection.flush()
            self.connection.close()
        if self.calls is not None:
            self.calls.close()
        if self._own_root is not None:
            remove_directory(self._own_root)

    def _join_agent(self, given: Exchange) -> None:
        listens = stacks.listen(given.stacks)
        hello = messages.Hello(
            rank=get_context().rank,
            pid=os.getpid(),
            stacks=listens,
            imported=round(time.monotonic() - trainrun.IMPORTED, 3),
            memory=trainrun.IMPORTED_PAGES * os.sysconf("SC_PAGE_SIZE"),
        )
        try:
            self.connection = Connection(str(given.socket), hello)
            self.calls = CallCounter(given.control_file)
        except AgentLost as error:
            self.lost = str(error)
        except OSError as error:
            self.lost = f"the agent of this worker has exited: its control file: {error}"


_asked_for_checkpoint = False
"""Reported when the session begins: `get_checkpoint()` does not begin one, since a launcher may
call it."""
_current: Session | None = None
_making = threading.Lock()


def current() -> Session:
    """Return the session of this process. Raises NotTheTrainingProcess in a child of it."""
    return _current or _make()


def note_checkpoint_asked_for() -> None:
    """Report the call to the agent, once, as soon as this process connects to it."""
    global _asked_for_checkpoint  # noqa: PLW0603 - reported once per process
    if _asked_for_checkpoint:
        return
    _asked_for_checkpoint = True
    if _current is not None:
        _current.asked_for_checkpoint()


def close() -> None:
    """End the session of this process, if there is one; the next call begins a new one."""
    global _current, _asked_for_checkpoint
    ended, _current, _asked_for_checkpoint = _current, None, False
    if ended is not None:
        ended.close()


_awaited_at_exit = False


def _await_at_exit() -> None:
    """Let pending saves end while the process can still start threads for them.

    `atexit` is too late: by then Python has shut down its executors, and orbax needs one.
    """
    global _awaited_at_exit  # noqa: PLW0603 - registered once per process
    if not _awaited_at_exit:
        _awaited_at_exit = True
        importlib.import_module("concurrent.futures.thread")  # what is registered last runs first
        threading._register_atexit(_await_current)  # type: ignore[attr-defined]  # noqa: SLF001


def _await_current() -> None:
    if _current is not None:
        _current.await_at_exit()


def _make() -> Session:
    global _current  # noqa: PLW0603 - one session per process is the point
    with _making:
        if _current is None:
            _current = Session()
        return _current


def connection_of(error: BaseException) -> Connection | None:
    """The connection for reporting the exception that ends this process; None: there is no agent.

    For ForeignLauncher only, a process of another launcher acts for the process that the agent
    started.
    """
    given = Exchange.read(os.environ)
    if not isinstance(error, ForeignLauncher) or given is None:
        return current().connection
    rank, _, _ = given.place.partition("/")
    return Connection(str(given.socket), messages.Hello(rank=int(rank), pid=os.getpid()))


def _check_place(given: Exchange) -> None:
    here = get_context()
    if given.place in ("", place_of(here)):
        return
    rank, world_size = given.place.split("/")
    raise ForeignLauncher(
        f"this process has rank {here.rank} of {here.world_size}, but TrainRun started rank {rank} "
        f"of {world_size} here: a launcher in between (torchrun or accelerate launch in a shell "
        "script, say) starts its own processes. Begin the command itself with torchrun, or start "
        "the script with python and workers.processesPerWorker"
    )


def _claim() -> None:
    owner = os.environ.setdefault(variables.PROCESS, str(os.getpid()))
    if owner != str(os.getpid()):
        raise NotTheTrainingProcess(
            f"process {os.getpid()} is a child of the training process {owner} of rank "
            f"{get_context().rank} (a DataLoader worker, say) and cannot act for it; call "
            "report(), should_save(), get_checkpoint() and the like in the training process"
        )


def _forget_in_child() -> None:
    # The parent's locks may be held, and its stream and temporary folder do not belong to the
    # child.
    global _current, _making
    if _current is not None and _current.connection is not None:
        _current.connection.close()  # our copy of the descriptor; the parent's stream stays open
    _current, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(close)
