"""Commands that must succeed, with the words of those that do not."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

from testbed.errors import ClusterBroken
from testbed.places import held_locks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def output(
    *command: str | Path,
    timeout: float = 60.0,
    text: str = "",
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    locks: bool = True,
) -> str:
    """Run a command to its end, `text` being its input; return what it printed to stdout.

    Raises ClusterBroken with the command and the end of its stderr when it fails or takes longer
    than `timeout` seconds. Without `locks` the command holds none of ours beyond our end: whatever
    it starts for good would hold them for good.
    """
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **(environment or {})},
            cwd=directory,
            pass_fds=held_locks() if locks else (),
        )
    except subprocess.TimeoutExpired:
        raise ClusterBroken(f"{_shown(command)} took longer than {timeout:.0f} s") from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise ClusterBroken(f"{_shown(command)} failed with {done.returncode}: {words}")
    return done.stdout


def succeeds(
    *command: str | Path, timeout: float = 60.0, environment: Mapping[str, str] | None = None
) -> bool:
    """Run a command quietly; tell whether it ended with 0."""
    try:
        output(*command, timeout=timeout, environment=environment)
    except (ClusterBroken, FileNotFoundError):
        return False
    return True


def _shown(command: tuple[str | Path, ...]) -> str:
    line = shlex.join(str(word) for word in command)
    return line if len(line) < 300 else line[:297] + "..."
