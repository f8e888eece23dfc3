"""Launchers that a command hides: behind a shell, `env`, `uv run` and the like.

Layer: contract, pure. Where several processes run the command, each of them starts the launcher,
which makes a group of its own: several trainings instead of one. Only what is certain is said here:
conditions, loops, and options that may join the groups leave it to what agents see.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from trainrun.contract.launcher import TORCH_MODULES, TORCHRUN, launcher_of, of_one_machine

SHELL = re.compile(r"(.*/)?(ba|da|z|k|a)?sh")
WRAPPERS = frozenset(
    ("env", "nohup", "time", "exec", "command", "nice", "ionice", "stdbuf", "taskset", "numactl",
     "timeout", "tini", "dumb-init", "sudo", "gosu", "uv", "poetry", "conda", "mamba", "micromamba",
     "pipenv", "pdm", "hatch", "pixi", "nsys")
)  # fmt: skip
"""Programs that start the one which is named after their own options."""

UNLESS = {
    "accelerate launch": ("--num_machines", "--num-machines", "--config_file", "--config-file"),
    "deepspeed": ("--no_ssh", "--node_rank", "--no-ssh", "--node-rank"),
    "fabric run": ("--num-nodes", "--num_nodes", "--node-rank", "--node_rank"),
}
"""Options with which a group may span several machines."""
NEEDS = {
    "accelerate launch": re.compile(r"--multi[-_]gpu\b"),
    "mpirun": re.compile(r"(^| )(-n|-np|--np|-c)[ =]*(?!1\b)[0-9]"),
    "srun": re.compile(r"(^| )(-n|--ntasks)[ =]*(?!1\b)[0-9]"),
}
"""What must be there, or the launcher may start its program with the variables that it got."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_TORN = re.compile(r"\b\w*RANK\b|\bPET_|<<|\$\(|`")
"""In a script: it looks where it is, or does what only a shell can tell."""
_COMPOUND = frozenset(("if", "for", "while", "until", "case", "select", "function", "{", "("))
_TESTS = frozenset(("test", "[", "[[", "grep", "which"))
_LISTS, _PIPES = frozenset((";", "&", ";;")), frozenset(("&&", "|", "|&"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """A launcher that each process of the run would start for itself."""

    launcher: str
    behind: str
    """The word that the command begins with; "" where that is the launcher's."""


def hidden_launcher(command: Sequence[str], variables: Collection[str]) -> Hidden | None:
    """The launcher that makes a group of its own wherever this command runs; None: there is none,
    or nobody can tell. `variables` are the names of those that its container sets."""
    if not command or any(name.startswith("PET_") for name in variables):
        return None  # torchrun reads its options from such variables
    for words in _programs(list(command)):
        launcher = launcher_of(words)
        if launcher and _is_alone(launcher, words):
            behind = "" if words == list(command) else PurePosixPath(command[0]).name
            return Hidden(launcher=launcher, behind=behind)
    return None


def _programs(words: list[str]) -> Iterator[list[str]]:
    """The commands that a command line comes to, each without what stands around it."""
    name = PurePosixPath(words[0]).name if words else ""
    if SHELL.fullmatch(name):
        for inner in _commands(_script(words[1:])):
            yield from _programs(inner)
    elif name in WRAPPERS:
        yield from _wrapped(words[1:])
    elif words:
        yield words


def _wrapped(words: list[str]) -> Iterator[list[str]]:
    """What a wrapper starts, where it is a launcher or a shell; its own options come before."""
    for at, word in enumerate(words):
        name = PurePosixPath(word).name
        if launcher_of(words[at:]) or SHELL.fullmatch(name):
            yield from _programs(words[at:])
            return
        if name.startswith("python") or name.endswith((".py", ".sh")):
            return


def _script(words: Sequence[str]) -> str:
    """What follows `-c`, as in `bash -euo pipefail -lc "..."`; "" where a file is run."""
    given, rest = False, list(words)
    while rest and rest[0][:1] in ("-", "+"):
        option = rest.pop(0)
        if not option.startswith("--"):
            given = given or "c" in option
            del rest[: option[-1] in "oO"]
    return rest[0] if given and rest else ""


def _commands(script: str) -> Iterator[list[str]]:
    """The commands of a script that run whatever happens; none where it is more than a list."""
    if _TORN.search(script):
        return
    lines = script.replace("\\\n", " ").splitlines()
    text = "\n;\n".join(line for line in lines if not line.lstrip().startswith("#"))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:  # a quote is not closed
        return
    found = [list(_split(part, _PIPES)) for part in _split(tokens, _LISTS)]
    if any(words[:1] and words[0] in _COMPOUND for part in found for words in part):
        return
    for part in found:
        first = part[0][:1]
        if not any("||" in words for words in part) and not _TESTS.intersection(first):
            yield from (plain for words in part if (plain := _without_variables(words)))


def _split(tokens: Sequence[str], at: frozenset[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for token in tokens:
        if token in at:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _without_variables(words: list[str]) -> list[str]:
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return words


def _is_alone(launcher: str, words: Sequence[str]) -> bool:
    """Its group cannot reach beyond the worker."""
    if launcher in (TORCHRUN, *TORCH_MODULES):
        return of_one_machine(words)
    needed = NEEDS.get(launcher)
    if needed is not None and not needed.search(" ".join(words)):
        return False
    return not any(word.startswith(UNLESS.get(launcher, ())) for word in words)
