"""Starting one training process, in milliseconds, bound to the life of the agent.

Layer: agent. Runs in the main thread only: the parent-death signal fires when the *thread* that
forked ends. The process leads a session and a process group of its own, so that it and its helpers
can be killed together and the terminal's signals do not reach it.

With process 1 of a container the kernel kills all others (pid_namespaces(7)), so there is nothing
to be asked for; and without code of ours between fork and exec Python need not copy our page tables
(it uses vfork).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainrun.agent.processes import scheduling
from trainrun.agent.processes.launcher import instead_of_launcher
from trainrun.contract.launcher import LauncherRefused
from trainrun.prctl import die_with_parent


class StartFailed(OSError):
    """The process could not be started; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that runs."""

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

    It gets the file descriptors of `keep` beside its own three.
    """
    try:
        command = instead_of_launcher(command, environment, working_dir)
    except LauncherRefused as refused:  # the operator knows an option that we do not
        raise StartFailed(str(refused)) from refused
    reading, writing = os.pipe()
    try:
        with scheduling.as_started():
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
                preexec_fn=_bound_to(os.getpid()),  # noqa: PLW1509
            )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.close(reading)
        raise StartFailed(_explain(error, command, working_dir)) from error
    finally:
        os.close(writing)
    # Its status is read by `children.reap`; tell Popen not to look for it as well.
    child.returncode = 0
    return Spawned(pid=child.pid, output=reading)


def _bound_to(parent: int) -> Callable[[], None] | None:
    return die_with_parent(parent) if parent != 1 else None


def _explain(error: Exception, command: Sequence[str], working_dir: str) -> str:
    program = command[0] if command else ""
    if not command:
        return "the command is empty; give one in the worker template"
    if working_dir and not Path(working_dir).is_dir():
        return f"the working directory {working_dir} does not exist or is no directory"
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
