"""Done tasks whose module has changed since: their key does not know a helper that they call.

Layer: cli.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from trainrun.errors import InvalidSpec
from trainrun.tasks.keys import code_of_module
from trainrun_operator.cli.preparation import prepare
from trainrun_operator.cli.tasks.history import TaskHistory


def stale_tasks(history: TaskHistory, file: Path) -> dict[str, list[str]]:
    """Their keys by function. `file` is the program, or that of its run; where it does not tell the
    code of a module, the newest task of the function counts."""
    script, folders = _script_of(file)
    now: dict[str, str] = {}
    stale: dict[str, list[str]] = {}
    for task in reversed(history.calls):
        if task.function not in now:
            module = task.function.partition(":")[0]
            path = script if module == "__main__" else module.replace(".", "/")
            now[task.function] = _code_now(module, path, folders) or task.code
        if history.state(task) == "done" and task.code != now[task.function]:
            stale.setdefault(task.function, []).append(task.key)
    return stale


def _script_of(file: Path) -> tuple[str, list[Path]]:
    """The program's file, without its ending, and the folders of its modules."""
    if file.suffix == ".py":
        return file.stem, [file.absolute().parent]
    if file.is_file():
        with suppress(InvalidSpec):
            program = prepare(file, replicas=None, storage=None, faults=()).program
            script = Path(next((word for word in program.command if word.endswith(".py")), ""))
            return script.stem, [program.working_dir / script.parent, program.working_dir]
    return "", []


def _code_now(module: str, path: str, folders: list[Path]) -> str:
    for folder in folders:
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if code := code_of_module(module, (folder / name).absolute()):
                return code
    return ""
