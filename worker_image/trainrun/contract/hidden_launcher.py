"""Launchers that a command hides: behind a shell, `env`, `uv run` and the like.

Layer: contract, pure. Where several processes run the command, each of them starts the launcher,
which makes a group of its own: several trainings instead of one. Only what is certain is said here;
where a shell decides, agents see what comes of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from trainrun.contract.launcher import of_one_machine

SHELL = re.compile(r"(ba|da|z|k|a)?sh")
WRAPPERS = frozenset(
    ("env", "nohup", "time", "exec", "command", "nice", "ionice", "stdbuf", "taskset", "numactl",
     "timeout", "tini", "dumb-init", "sudo", "gosu", "uv", "poetry", "conda", "mamba", "micromamba",
     "pipenv", "pdm", "hatch", "pixi", "nsys")
)  # fmt: skip
"""Programs that start the one which is named after their own options."""

_UNCERTAIN = re.compile(
    r"RANK|PET_|<<|\$\(|`|\|\||[\[(]|(?<!\$)\{|\b(if|for|while|until|case|select|test)\b"
)
"""In a script: it looks where it is, or goes by what only a shell can tell."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_BETWEEN = frozenset((";", "&", "&&", "|", "|&"))


def hidden_launcher(command: Sequence[str]) -> str:
    """The launcher that makes a group of its own wherever this command runs; "" where there is
    none, or nobody can tell."""
    return next(filter(None, map(of_one_machine, _programs(list(command)))), "")


def _programs(words: list[str]) -> Iterator[list[str]]:
    """The commands that a command line comes to, each without what stands around it."""
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    name = PurePosixPath(words[0]).name if words else ""
    if SHELL.fullmatch(name):
        for inner in _commands(_script(words[1:])):
            yield from _programs(inner)
    elif name in WRAPPERS:
        yield from _programs(_wrapped(words[1:]))
    else:
        yield words


def _wrapped(words: list[str]) -> list[str]:
    """What a wrapper starts, where it is a launcher or a shell; its own options come before."""
    for at, word in enumerate(words):
        name = PurePosixPath(word).name
        if of_one_machine(words[at:]) or SHELL.fullmatch(name):
            return words[at:]
        if name.startswith("python") or name.endswith((".py", ".sh")):
            break
    return []


def _script(words: list[str]) -> str:
    """What follows `-c`, as in `bash -euo pipefail -lc "..."`; "" where a file is run."""
    given = False
    while words and words[0][:1] in ("-", "+"):
        option, *words = words
        given = given or ("c" in option and not option.startswith("--"))
        words = words[option[-1] in "oO" :]
    return words[0] if given and words else ""


def _commands(script: str) -> Iterator[list[str]]:
    """The commands of a script, one after the other; none where it is more than a list."""
    lines = script.replace("\\\n", " ").splitlines()
    text = "\n;\n".join(line for line in lines if not line.lstrip().startswith("#"))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = [] if _UNCERTAIN.search(text) else list(lexer)
    except ValueError:  # a quote is not closed
        return
    found: list[str] = []
    for token in (*tokens, ";"):
        if token not in _BETWEEN:
            found.append(token)
        elif found:
            yield found
            found = []
