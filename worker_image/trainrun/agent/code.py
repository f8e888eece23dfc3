"""Digests of the code that the processes will run, which the operator compares across the gang.

Layer: agent. Covers the scripts that the command names and what is mounted from the same ConfigMap.
Each node updates a changed ConfigMap in its own time; files mounted by subPath never change in a
running pod. Nothing else that the scripts import is checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainrun.agent import background
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.evidence import CodeFile

SUFFIXES = (".py", ".sh", ".bash")
"""Suffixes of script names in the command; other scripts are recognized by their first line."""
MOST_FILES = 32
LARGEST = 1024 * 1024
"""Bytes of a file that are hashed: the size limit of a ConfigMap."""
DIGITS = 12
_SHELL = re.compile(r"[\s;&|()<>'\"`]+")
"""Separators of words in a shell command."""
DATA = "..data"
"""The kubelet's link to the current files of a volume, next to the links to each of them."""


@dataclass(slots=True, kw_only=True)
class Code:
    """Reads the files in a thread, since their disk may hang."""

    config: AgentConfig
    news: Callable[[], None]
    files: tuple[CodeFile, ...] | None = None
    """The last result; None: none yet."""
    started: bool = False
    """The processes were started with these files."""
    _looking: asyncio.Task[None] | None = None

    def look(self, *, started: bool = False) -> None:
        """Read what processes would run, or what they run if they were `started` just now."""
        if self.started and not started:
            self.files = None  # it may have changed since
        self.started = started
        if self._looking is None or self._looking.done():
            self._looking = background.run(self._look())

    async def _look(self) -> None:
        folder = Path(self.config.working_dir or ".")
        try:
            found = await asyncio.to_thread(code_files, self.config.command, folder)
        except OSError:
            return  # the volume is changing: the next call reads it again
        if found != self.files:
            self.files = found
            self.news()


def code_files(command: Sequence[str], folder: Path) -> tuple[CodeFile, ...]:
    """The files with their digests, starting with those in the command. Raises OSError."""
    scripts = list(_scripts(command, Path.cwd() / folder))
    mounted = (path for script in scripts for path in _mounted_with(script))
    files = dict.fromkeys(itertools.chain(scripts, mounted))
    return tuple(
        CodeFile(path=str(path), digest=_digest(path))
        for path in itertools.islice(files, MOST_FILES)
    )


def _scripts(command: Sequence[str], folder: Path) -> Iterator[Path]:
    """Includes scripts in a shell command: `bash -c "cd /src && python train.py"`."""
    before = ""
    for word in itertools.chain.from_iterable(map(_words, command)):
        if before == "cd":
            folder = folder / word
        elif before in ("-m", "--module"):
            yield from itertools.islice(filter(os.path.isfile, _modules(folder, word)), 1)
        else:
            path = Path(os.path.normpath(folder / word))
            named = word.endswith(SUFFIXES) or "/" in word
            # Path.is_file raises for words that are too long for a name.
            if named and os.path.isfile(path) and _is_script(path):  # noqa: PTH113
                yield path
        before = word


def _words(word: str) -> Iterator[str]:
    return map(os.path.expandvars, filter(None, _SHELL.split(word)))


def _modules(folder: Path, name: str) -> Iterator[Path]:
    inside = name.replace(".", "/")
    for root in (folder, *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(":")))):
        yield from (root / f"{inside}.py", root / inside / "__main__.py")


def _is_script(path: Path) -> bool:
    if path.name.endswith(SUFFIXES):
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _mounted_with(script: Path) -> Iterator[Path]:
    """Files mounted from the same ConfigMap as the script; none if the script is not mounted.
    Skips names without a suffix, such as tokens: they may differ between pods."""
    volume = next((path for path in script.parents if (path / DATA).is_symlink()), None)
    if volume is not None:
        data = (volume / DATA).resolve()
        found = [volume / path.relative_to(data) for path in data.rglob("*.*") if path.is_file()]
    elif os.path.ismount(script):  # by subPath, each file on its own
        found = [
            path for path in script.parent.glob("*.*") if path.is_file() and os.path.ismount(path)
        ]
    else:
        found = []
    yield from sorted(found)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(LARGEST)).hexdigest()[:DIGITS]
