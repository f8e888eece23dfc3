"""Which commands a standby interpreter can stand in for: those that are a Python and a script.

Layer: agent, pure. The standby is started with the very command, so only what must be known before
is read from it: that a Python runs it, and that this Python reads PYTHONPATH and sitecustomize.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_WITH_VALUE = "XW"
"""Options whose value may be the next word."""
_PLAIN = frozenset("bBdOPquvx")
"""Options that change nothing of what matters here."""
_NO_SITE = {"E": "ignores PYTHONPATH", "I": "ignores PYTHONPATH", "S": "loads no site"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCommand:
    """`python [options] script.py ...` or `python [options] -m module ...`."""

    interpreter: str
    options: tuple[str, ...]
    """Before the script or -m."""


def python_command(command: Sequence[str]) -> PythonCommand | str:
    """Read a command without launcher; a text: why no interpreter can stand by for it."""
    if not command or not _PYTHON.fullmatch(PurePosixPath(command[0]).name):
        program = command[0] if command else "the empty command"
        return f"{program} is no Python; write the command as python script.py or python -m module"
    words = list(command[1:])
    options: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--help" or word.startswith("--"):
            return f"python {word} runs no script"
        if word == "-" or not word.startswith("-"):
            return _script(command[0], options) if word != "-" else "its script is read from stdin"
        found = _option(word, bool(words))
        if isinstance(found, str):
            return found
        if found == _MODULE:
            return _script(command[0], options)
        options += [word, *(words.pop(0) for _ in range(found))]
    return "it names no script"


_MODULE = -1


def _option(word: str, more: bool) -> int | str:
    """How many of the words behind it belong to it; _MODULE: a module follows; a text: why not."""
    for place, letter in enumerate(word[1:], start=1):
        last = place == len(word) - 1
        if letter in _NO_SITE:
            return f"python -{letter} {_NO_SITE[letter]}"
        if letter == "m":
            return _MODULE if more or not last else "it names no module"
        if letter in _WITH_VALUE:
            return 1 if last else 0
        if letter not in _PLAIN:
            return f"python -{letter} runs no script"
    return 0


def _script(interpreter: str, options: Sequence[str]) -> PythonCommand:
    return PythonCommand(interpreter=interpreter, options=tuple(options))
