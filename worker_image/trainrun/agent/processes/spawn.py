"""Starts a training process in milliseconds, bound to the life of the agent, and ends it.

Layer: agent. Runs only in the main thread: the parent-death signal fires when the *thread* that
forked ends. The process leads its own session and process group, so that it and its helpers can be
killed together and the terminal's signals do not reach it.

When process 1 of a container ends, the kernel kills all others (pid_namespaces(7)), so there no
parent-death signal is needed; and without our code between fork and exec, Python uses vfork and
need not copy our page tables.

If the command begins with torchrun, we start the processes that torchrun would start, with the same
Python: torchrun's own processes would make their own rendezvous, restart on their own and hide the
ranks from us.

As process 1 (or as a subreaper) the agent inherits each orphaned descendant, so "kill every child
until there is none" also reaches grandchildren in their own session: killing their parent makes
them ours.

SIGTERM is sent only to the process, as by a kubelet, not to its group: it would kill the helpers of
a DataLoader, and with them the training. But a shell dies of it at once without forwarding it, so
the command that it waits for gets the signal instead.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainrun._common.kernel import die_with_parent
from trainrun.agent.processes.procfs import children_of, name_of, takes
from trainrun.contract import variables
from trainrun.contract.launcher import TORCHRUN, LauncherRefused, torch_launch


class StartFailed(OSError):
    """The process cannot be started; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A started process."""

    pid: int
    output: int
    """File descriptor of the pipe with its standard output and error."""


def spawn(
    command: Sequence[str],
    working_dir: str,
    environment: Mapping[str, str],
    *,
    keep: Sequence[int] = (),
) -> Spawned:
    """Start `command`, or what a launcher at its beginning would start. Raises StartFailed.

    It inherits the file descriptors of `keep` in addition to its own three.
    """
    try:
        command = instead_of_launcher(command, environment, working_dir)
    except LauncherRefused as refused:  # the operator knows an option that we do not
        raise StartFailed(str(refused)) from refused
    own = os.getpid()
    bound = die_with_parent(own) if own != 1 else None
    reading, writing = os.pipe()
    try:
        with as_started():
            child = subprocess.Popen(
                command,
                cwd=working_dir or None,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
                pass_fds=keep,
                # Safe with threads: it looks nothing up and takes no lock.
                preexec_fn=bound,  # noqa: PLW1509
            )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.close(reading)
        raise StartFailed(_explain(error, command, working_dir)) from error
    finally:
        os.close(writing)
    # `reap` reads its status; keep Popen from waiting for it as well.
    child.returncode = 0
    return Spawned(pid=child.pid, output=reading)


def _explain(error: Exception, command: Sequence[str], working_dir: str) -> str:
    program = command[0] if command else ""
    if not command:
        return "the command is empty; give one in the worker template"
    if working_dir and not Path(working_dir).is_dir():
        return f"the working directory {working_dir} does not exist or is not a directory"
    if isinstance(error, FileNotFoundError):
        if "/" in program and Path(working_dir or ".", program).exists():
            return f"{program}: the interpreter in its first line does not exist"
        where = "" if "/" in program else " on PATH"
        return f"{program}: no such program{where}; check the command of the worker template"
    if isinstance(error, PermissionError):
        return f"{program}: not executable by user {os.getuid()}; chmod +x or name its interpreter"
    if isinstance(error, OSError) and error.strerror:
        return f"{program}: {error.strerror}"
    return f"{program}: {error}"


PYTHON_EXEC = "PYTHON_EXEC"
"""torchrun's variable for the Python that runs scripts."""

LONGEST_LINE = 4096
"""Bytes read of a program's first line."""


def instead_of_launcher(
    command: Sequence[str], environment: Mapping[str, str], working_dir: str
) -> tuple[str, ...]:
    """The command to run with this environment: `command`, or what its launcher would start.

    Raises LauncherRefused.
    """
    launch = torch_launch(command)
    if launch is None:
        return tuple(command)
    words = [launch.script, *launch.arguments]
    if launch.local_rank_argument:
        words.insert(1, f"--local-rank={environment[variables.LOCAL_RANK]}")
    if launch.kind == "program":
        return tuple(words)
    module = ("-m",) if launch.kind == "module" else ()
    return (_python(launch.program, environment, working_dir), "-u", *module, *words)


def _python(program: str, environment: Mapping[str, str], working_dir: str) -> str:
    if environment.get(PYTHON_EXEC):
        return environment[PYTHON_EXEC]
    if Path(program).name == TORCHRUN:
        return _of_torchrun(program, environment, working_dir)
    return program


def _of_torchrun(program: str, environment: Mapping[str, str], working_dir: str) -> str:
    """The Python that runs torchrun itself: named in its first line, or in the same folder."""
    if "/" in program:
        found: str | None = str(Path(working_dir or ".", program))
    else:
        found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        return "python3"
    interpreter = _first_line(Path(found))
    if "python" in Path(interpreter).name and Path(interpreter).exists():
        return interpreter
    sibling = Path(found).with_name("python3")
    return str(sibling) if sibling.exists() else "python3"


def _first_line(program: Path) -> str:
    """The path after `#!`; "": there is none."""
    try:
        with program.open("rb") as file:
            line = file.readline(LONGEST_LINE)
    except OSError:
        return ""
    return os.fsdecode(line[2:]).strip() if line.startswith(b"#!") else ""


_POLICY = os.sched_getscheduler(0)
"""The scheduling policy that the agent was started with, and that processes get."""
_NO_PRIORITY = os.sched_param(0)


def give_way() -> None:
    """Never preempt a training process in the middle of its step.

    Otherwise the kernel often runs the agent at once instead of the process whose report woke it:
    then `report()` costs the training loop the agent's time to read it.
    """
    try:
        if _POLICY == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, _NO_PRIORITY)
    except OSError:
        return  # a sandbox forbids it: reports are slower, nothing else


@contextmanager
def as_started() -> Iterator[None]:
    """Processes started in this context get the scheduling policy that the agent started with."""
    policy = os.sched_getscheduler(0)
    if policy == _POLICY:
        yield
        return
    os.sched_setscheduler(0, _POLICY, _NO_PRIORITY)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, _NO_PRIORITY)


def reap() -> Iterator[tuple[int, int]]:
    """Yield (pid, wait status) of each child that has ended, adopted orphans included.

    Nothing else in the agent may wait for children: their status can be read only once.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def kill_group(pid: int) -> None:
    """Send SIGKILL to a child's whole process group, or only to the child if it shares ours."""
    try:
        group = os.getpgid(pid)
        if group == os.getpgrp():
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended meanwhile, as intended


SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh", "busybox"})


def send_sigterm(pid: int) -> None:
    """Send SIGTERM to a process or the commands behind it; ignores those that have just ended."""
    for receiver in sigterm_receivers(pid):
        try:
            os.kill(receiver, signal.SIGTERM)
        except ProcessLookupError:
            pass


def sigterm_receivers(pid: int) -> list[int]:
    """The process; for a shell without a trap, the commands that it waits for.

    Of several commands, those with a handler: in `python train.py | tee log` the training, which
    could not write its last lines to a dead `tee`.
    """
    hands_nothing_on = name_of(pid) in SHELLS and not takes(pid, signal.SIGTERM)
    commands = children_of(pid) if hands_nothing_on else []
    found = [receiver for command in commands for receiver in sigterm_receivers(command)]
    return [receiver for receiver in found if takes(receiver, signal.SIGTERM)] or found or [pid]
