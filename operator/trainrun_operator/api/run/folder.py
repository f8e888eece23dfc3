"""spec.checkpoint.folder: the folder into which a script saves by itself.

Layer: api.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from trainrun_operator.api.base import Model, Rule, matches
from trainrun_operator.api.duration import Duration, between

Pattern = Annotated[
    str,
    Field(min_length=1, max_length=256),
    matches(
        r"^[^/\n]([^\n]*[^/\n])?$",
        "must be a pattern for paths below the folder, without a slash at its ends",
    ),
]


class FolderSpec(Model):
    """The folder into which a script saves by itself."""

    RULES = (
        Rule(
            cel="!self.path.matches(r'^[.]/?$') || has(self.newest)",
            message="must name the saves where path is the working directory",
            holds=lambda spec: spec.path not in (".", "./") or spec.newest is not None,
            path=("newest",),
        ),
    )

    path: Annotated[
        str,
        Field(min_length=1, max_length=512),
        matches(
            r"^/?[^/~\n][^\n]*$",
            "must be a folder that holds the saves, not / or the home folder",
        ),
        Rule(
            cel="!self.matches(r'(^|/)[.][.](/|$)')",
            message="must be without ..",
            holds=lambda path: ".." not in path.split("/"),
        ),
    ]
    """The folder, absolute or relative to the working directory of the script. `.` only together
    with newest."""
    newest: Pattern | None = None
    """Pattern for the saves in it, such as `checkpoint-*`: files and folders that match, grouped by
    the number in their name, which becomes the step of the checkpoint. `*` does not match a slash.
    Absent: the whole folder is one save that the script overwrites."""
    complete: Annotated[tuple[Pattern, ...], Field(max_length=8, exclude_if=not_)] = ()
    """Patterns for paths below the folder, such as `*/trainer_state.json`. A save without a file
    for each of them is not complete. Name the last file where a save has several. At most 8.
    Default: none."""
    settle: Annotated[Duration, between("1s", "10m")] = Duration("10s")
    """A save is complete when nothing in it has changed for this long and no process has a file of
    it open for writing. Between 1s and 10m, default 10s."""
    resume_args: Annotated[
        tuple[Annotated[str, Field(max_length=512)], ...],
        Field(max_length=16, exclude_if=not_),
    ] = ()
    """Words appended to the command once a save was restored. `{newest}` is its path,
    `{file:model*.pt}` that of a file of it. At most 16. Default: none."""
    resume_args_from: Literal["Restore", "SecondAttempt"] = "Restore"
    """When resumeArgs are appended. Restore: once something was restored. SecondAttempt: from the
    second attempt on, for scripts that refuse a folder that exists; words with `{newest}` still
    wait for a restore. Default Restore."""
    carry: Annotated[bool, Field(exclude_if=bool)] = True
    """Whether its saves are stored and put back. false: the folder is on a volume that all workers
    share, or that stays with the only one; saves are chosen there, and nothing is stored. Default
    true."""
