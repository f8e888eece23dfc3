"""What a killed `up` of kind has begun goes on without it; before anything is removed it ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ClusterBroken
from testbed.processes import kill_and_wait

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc")
_SECONDS = 60


def end_what_was_begun(state: Path, cluster: str, program: str) -> None:
    """End every `kind` that names the state folder, and wait for its last command of `program`.

    A container of `cluster` that is made just now could not be removed. What only runs inside of a
    container ends with it. Where there is no /proc, nothing is found.
    """
    for pid, words in _commands():
        if Path(words[0]).name == "kind" and any(str(state) in word for word in words):
            kill_and_wait(pid)
    deadline = time.monotonic() + _SECONDS
    while makes := [words for _, words in _commands() if _makes(words, cluster, program)]:
        if time.monotonic() > deadline:
            raise ClusterBroken(f"`{' '.join(makes[0])[:300]}` does not end; end it by hand")
        time.sleep(0.1)


def _makes(words: list[str], cluster: str, program: str) -> bool:
    """Whether a command makes something of the cluster."""
    mine = any(word == cluster or word.startswith(f"{cluster}-") for word in words)
    return Path(words[0]).name == program and mine and "exec" not in words[:2]


def _commands() -> Iterator[tuple[int, list[str]]]:
    for entry in _PROC.glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        yield int(entry.name), words
