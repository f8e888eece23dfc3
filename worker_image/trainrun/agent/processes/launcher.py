"""In a launcher's place: what each process runs where the command begins with torchrun.

Layer: agent. torchrun's own processes would make a rendezvous of their own, restart on their own
and hide the ranks from us. What they would start is started here instead, by the same Python.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.contract import variables
from trainrun.contract.launcher import TORCHRUN, torch_launch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PYTHON_EXEC = "PYTHON_EXEC"
"""torchrun's variable for the Python that scripts run in."""

LONGEST_LINE = 4096
"""Bytes of a program that are read for its first line."""


def instead_of_launcher(
    command: Sequence[str], environment: Mapping[str, str], working_dir: str
) -> tuple[str, ...]:
    """What the process with this environment runs: `command`, or what its launcher would start.

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
    """The Python that torchrun itself runs in: in its first line, or beside it."""
    if "/" in program:
        found: str | None = str(Path(working_dir or ".", program))
    else:
        found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        return "python3"
    interpreter = _first_line(Path(found))
    if "python" in Path(interpreter).name and Path(interpreter).exists():
        return interpreter
    beside = Path(found).with_name("python3")
    return str(beside) if beside.exists() else "python3"


def _first_line(program: Path) -> str:
    """The path behind `#!`, "" where there is none."""
    try:
        with program.open("rb") as file:
            line = file.readline(LONGEST_LINE)
    except OSError:
        return ""
    return os.fsdecode(line[2:]).strip() if line.startswith(b"#!") else ""
