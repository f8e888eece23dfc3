"""The rank's side of its launcher: start it, send it tries, receive their ends.

Layer: tasks, asyncio. The launcher is started by exec, since this process may have threads. If a
launcher dies, its tasks die with it; the next try starts another launcher.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from trainrun.contract import variables
from trainrun.contract.environment import ProcessPlace
from trainrun.errors import TrainRunError
from trainrun.tasks import main_module, running
from trainrun.tasks.messages import Imported, ReadyTry, StartTry, StopTask, TryEnded, TryStarted
from trainrun.tasks.records import Crashed, End, TaskRun

LIBRARY = Path(__file__).parents[2]
PROGRAM = "import sys; sys.path[:0] = sys.argv[1:2]; from trainrun.tasks import launcher; {call}"
"""Not `-m`, which would put the working folder before the standard library."""
CLOSING = 5.0
"""Seconds for a launcher to exit by itself, or to kill a try."""
WITHHELD = {
    *(variables.SOCKET, variables.STAGING, variables.CONTROL, variables.STACKS, variables.PROCESS),
    *(variables.CHECKPOINT, variables.PLACE, variables.POSTS_URL, variables.POSTS_TOKEN),
    *ProcessPlace.read({}).write(),
} - {variables.RUN, variables.RUN_ID, variables.ATTEMPT}
"""Variables with which a task could act as its rank or join the ranks' process group."""
QUIET = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Defaults. Importing pyarrow would otherwise start a thread that cleans up memory."""


class LauncherFailed(TrainRunError):
    """The program cannot be imported by the process that starts its tasks."""


def command(call: str, *arguments: str) -> list[str]:
    """Return the command that runs this call in a new interpreter with the same options."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    return [sys.executable, *flags, "-c", PROGRAM.format(call=call), str(LIBRARY), *arguments]


def kill_group(pid: int) -> None:
    """Kill the process group that this process leads, if any is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class Launcher:
    """Runs tries in processes of their own. Belongs to one event loop."""

    def __init__(self, devices: tuple[str, ...] = ()) -> None:
        """`devices`: GPUs for tasks, as CUDA_VISIBLE_DEVICES names them."""
        self._free = list(devices)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection
        self._imported: asyncio.Future[None]
        self._ended: dict[TaskRun, asyncio.Future[Crashed | None]] = {}
        """Tries sent to the launcher."""
        self._pids: dict[TaskRun, int] = {}
        """Tries that it has started."""

    async def start(self) -> None:
        """Start it and wait until it has imported the program. Raises LauncherFailed."""
        if running.role() != "program":
            raise LauncherFailed(
                "the program starts tasks while it is imported. Put tasks.run(main) below "
                '`if __name__ == "__main__":`'
            )
        if self._process is None:
            self._start()
        await asyncio.shield(self._imported)

    async def run(self, ready: ReadyTry) -> End:
        """Run a try and return how it has ended: results are in `ready.folder`, or inline.

        Cancelling this kills the try. Raises LauncherFailed if a new launcher is needed and cannot
        start."""
        run, options = ready.order.run, ready.order.options
        devices = tuple(self._free.pop(0) for _ in range(options.gpus))
        try:
            await self.start()
            while self._process is None:  # it died meanwhile
                await self.start()
            (ready.folder / running.CALL).write_bytes(pickle.dumps(ready, protocol=5))
            ended = self._ended[run] = asyncio.get_running_loop().create_future()
            self._send(StartTry(run, ready.folder, options, devices))
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError:
                self._send(StopTask(run=run))
                await asyncio.wait([ended], timeout=CLOSING)  # it holds the GPUs until then
                raise
            end: End = ended.result() or pickle.loads((ready.folder / running.END).read_bytes())
            return end
        finally:
            self._ended.pop(run, None)
            self._free += devices

    async def close(self) -> None:
        """Kill the running tries and stop the launcher."""
        if self._process is not None:
            self._send(
                None
            )  # closing the stream may go unnoticed, since our children hold it as well
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, CLOSING)
            self._over()

    def _start(self) -> None:
        ours, theirs = Pipe()
        with theirs:
            # In this thread, which outlives the launcher: the launcher dies with the thread that
            # started it.
            self._process = subprocess.Popen(
                command("launcher.main()", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=QUIET | {k: v for k, v in os.environ.items() if k not in WITHHELD},
                start_new_session=True,
            )
        self._connection = ours
        self._send(main_module.describe())
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._receive)
        self._imported = loop.create_future()

    def _send(self, message: object) -> None:
        if self._process is not None:
            with suppress(OSError):  # it is gone, which `_receive` also notices
                self._connection.send(message)

    def _receive(self) -> None:
        try:
            message: Imported | TryStarted | TryEnded = self._connection.recv()
        except (EOFError, OSError):
            self._over()
            return
        match message:
            case Imported(failed=failed):
                self._is_imported(failed)
            case TryStarted(run=run, pid=pid):
                self._pids[run] = pid
            case TryEnded(run=run, crash=crash):
                self._pids.pop(run, None)
                if ended := self._ended.pop(run, None):
                    ended.set_result(crash)

    def _is_imported(self, failed: str) -> None:
        if self._imported.done():
            return
        if failed:
            why = f"the process that starts tasks cannot import the program: {failed}"
            self._imported.set_exception(LauncherFailed(why))
        else:
            self._imported.set_result(None)

    def _over(self) -> None:
        """End the launcher, if it is not gone yet, and all its tasks."""
        process, self._process = self._process, None
        if process is None:
            return
        asyncio.get_running_loop().remove_reader(self._connection.fileno())
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.kill()
        how = f"the process that starts tasks exited with code {process.wait()}"
        self._is_imported(how)
        for (
            pid
        ) in self._pids.values():  # processes that tasks started; the tasks died with the launcher
            kill_group(pid)
        self._pids.clear()
        for ended in self._ended.values():
            ended.set_result(Crashed(reason="Signalled", message=how))
        self._ended.clear()
