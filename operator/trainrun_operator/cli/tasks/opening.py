"""From `FILE|FOLDER|URI|NAME` on the command line to the log of a program of tasks.

Layer: cli. A program that was started by itself has its log in a folder beside it, one that is a
run in the run's storage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.errors import TrainRunError
from trainrun.tasks.book import Entry
from trainrun.tasks.keep import FOLDER
from trainrun_operator.cli.finding import find_run
from trainrun_operator.cli.report.output import refused
from trainrun_operator.cli.sources import Source, generation_of
from trainrun_operator.cli.tasks.history import TaskHistory, shown

MOST_NAMED = 5
"""Tasks that an ambiguous key may mean."""


class UnknownTasks(TrainRunError):
    """There is no log of tasks, or no such task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedProgram:
    """A program of tasks of which the log has been read."""

    keep: TaskFolder
    file: Path
    """The word that names it: the program's file, or that of a run, or no file."""
    words: str
    """As it was named on the command line."""
    source: Source | None = None
    """The run that it is; None: it was started by itself."""
    history: TaskHistory = field(default_factory=TaskHistory)

    @property
    def uri(self) -> str:
        """Of its folder."""
        return self.keep.folder.uri


def opened(act: Callable[..., int]) -> Callable[..., int]:
    """`act` on the program that is named; returns its exit code, or that of what it refuses."""

    def command(
        where: str | None, *, storage: str | None, namespace: str | None, **options: Any
    ) -> int:
        try:
            return act(find_program(where, storage=storage, namespace=namespace), **options)
        except TrainRunError as error:
            return refused(error)

    return command


def find_program(where: str | None, *, storage: str | None, namespace: str | None) -> OpenedProgram:
    """The program that is meant; None: the only one that was started in this folder.

    Raises InvalidSpec, UnknownRun, UnknownTasks where there is no log, StoreError, TaskLogDamaged,
    and what a cluster answers."""
    options = (("--storage", storage), ("-n", namespace))
    words = [where or "", *(f"{option} {value}" for option, value in options if value)]
    if where is None:
        begun = sorted(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else []
        if len(begun) != 1:
            raise UnknownTasks(f"programs of tasks that were started here: {begun}; name one")
        where = f"{begun[0]}.py"
    source = None
    if where.endswith(".py"):
        run = RunStore(open_store(FOLDER.resolve().as_uri()), Path(where).stem)
    else:
        source = find_run(where, storage=storage, namespace=namespace)
        run = generation_of(source, None)
    program = OpenedProgram(
        keep=TaskFolder(run), file=Path(where), words=" ".join(filter(None, words)), source=source
    )
    if not program.history.read_on(program.keep).position:
        raise UnknownTasks(
            f"{run.uri}: there is no log of tasks; give <storage URI>/<run name>, the run's "
            "YAML file, the name of a TrainRun, or the program's own file"
        )
    return program


def find_task(history: TaskHistory, key: str) -> Entry:
    """The only one of which the key begins so. Raises UnknownTasks."""
    found = [task for task in history.book.entries.values() if task.key.startswith(key)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnknownTasks(f"no task in the log has a key that begins with {key}")
    named = ", ".join(f"{task.key[: len(key) + 8]} ({shown(task)})" for task in found[:MOST_NAMED])
    raise UnknownTasks(f"{len(found)} tasks have a key that begins with {key}: {named}")
