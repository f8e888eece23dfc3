"""The words and variables by which a script learns from which of its own saves it resumes.

Layer: agent, pure.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace

from trainrun.agent.folder.entries import FolderEntry, expression
from trainrun.agent.processes.group import Launch
from trainrun.contract import variables
from trainrun.contract.answer import FolderRule

PLACE = re.compile(r"\{newest\}|\{file:([^{}]*)\}")
EXPANDED = re.compile(
    rf"\$\(({variables.RUN_ID}|{variables.RESUME_PATH}|{variables.RESUME_ARGS})\)"
)
"""Variables that change with attempts, or that no pod template knows."""


class NoSuchFile(ValueError):
    """A `{file:...}` of `resumeArgs` matches nothing in the restored save."""


def newest_path(rule: FolderRule, names: tuple[str, ...]) -> str:
    """The restored save, which has these names, as the script may open it."""
    return os.path.normpath(os.path.join(rule.path, *names[:1]))  # noqa: PTH118 - stays relative


def resume_args(rule: FolderRule, restored: FolderEntry | None, *, attempt: int) -> tuple[str, ...]:
    """The words to append to the command. Raises NoSuchFile."""
    if restored is None:
        late = rule.from_second_attempt and attempt > 1
        return rule.resume_args if late and not any(map(PLACE.search, rule.resume_args)) else ()

    def file(pattern: str) -> str:
        wanted = expression(pattern)
        for name in sorted(restored.files):
            if wanted.fullmatch(name) or wanted.fullmatch(name.rpartition("/")[2]):
                return os.path.normpath(os.path.join(rule.path, name))  # noqa: PTH118
        raise NoSuchFile(f"no file of the restored save matches {{file:{pattern}}}")

    def value(match: re.Match[str]) -> str:
        return newest_path(rule, restored.names) if match[1] is None else file(match[1])

    return tuple(PLACE.sub(value, word) for word in rule.resume_args)


def resumed(launch: Launch, path: str, words: tuple[str, ...]) -> Launch:
    """The launch with the words, and with variables for what cannot take them."""
    added = {variables.RESUME_PATH: path} if path else {}
    if words:
        added[variables.RESUME_ARGS] = shlex.join(words)
    environment = {**launch.environment, **added}

    def value(match: re.Match[str]) -> str:
        return environment.get(match[1], "")

    command = tuple(EXPANDED.sub(value, word) for word in launch.command)
    given = any(f"$({variables.RESUME_ARGS})" in word for word in launch.command)
    return replace(launch, command=(*command, *(() if given else words)), environment=environment)
