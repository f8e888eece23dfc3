"""Finds a program of tasks by `FILE|FOLDER|URI|NAME`, and reads its log: the driver's replayed
state, and every record with its time, since the replayed state drops what is over.

Layer: cli. The log of a program started on its own is in a folder next to it, the log of one that
is a run in the run's storage.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun.tasks import records as log
from trainrun.tasks.calls import object_name
from trainrun.tasks.keys import code_of_module
from trainrun.tasks.records import Output
from trainrun.tasks.replayed_state import Entry, ReplayedState
from trainrun.tasks.task_storage import FOLDER, TaskStorage, from_bytes
from trainrun_operator.cli.finding import find_run
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.preparation import prepare
from trainrun_operator.cli.sources import Source, generation_of

STATES = ("done", "running", "waiting", "failed", "cancelled")
"""In display order. `waiting` is a task that will run again; calls that no worker has taken yet are
not in the log."""


@dataclass(slots=True)
class TaskHistory:
    """The content of a log."""

    replayed: ReplayedState = field(default_factory=ReplayedState)
    records: list[tuple[float, log.Record]] = field(default_factory=list)
    """With their times, in seconds since the epoch."""
    position: int = 0
    """The number of the last batch."""
    time: float = 0.0
    """When the last batch was written, in seconds since the epoch."""
    total: int = 0
    """All calls of the driver, also those that no worker has taken yet; 0: not known."""

    def read_on(self, keep: TaskStorage) -> TaskHistory:
        """Read the log's new batches. Raises StoreError and TaskLogDamaged."""
        for batch in map(from_bytes, keep.read(self.position)):
            self.position, self.time = self.position + 1, batch.time
            for record in batch.records:
                self.replayed.fold(record)
                self.records.append((batch.time, record))
        return self

    @property
    def calls(self) -> list[Entry]:
        """The tasks without the values of `put`, in the order in which they started."""
        return [task for task in self.replayed.entries.values() if not task.given]

    @property
    def over(self) -> str:
        """How the newest driver ended on its own; empty: it runs, or was killed."""
        ends = (record.outcome for _, record in reversed(self.records) if record.kind == "Over")
        return next(ends, "") if self.replayed.over else ""

    @property
    def counts(self) -> dict[str, int]:
        """Tasks by state, `retries` and `reconstructions`."""
        calls = self.calls
        states = Counter(map(self.state, calls))
        states["waiting"] += max(0, self.total - len(calls))
        counts = {state: states[state] for state in STATES}
        return {
            **counts,
            "retries": self.replayed.retried,
            "reconstructions": self.replayed.rebuilt,
        }

    def state(self, task: Entry) -> str:
        """One of STATES."""
        if task.open and not self.replayed.over:
            return "running"
        if task.final is not None:
            return "failed"
        return "cancelled" if task.cancelled else "done" if task.done else "waiting"


def call_text(task: Entry) -> str:
    """`tokenize('s3://a/0001')`."""
    return "put()" if task.given else task.arguments or task.function


def objects(task: Entry) -> dict[str, Output]:
    """The task's newest results by object name."""
    outputs = enumerate(task.outputs)
    return {object_name(task.key, task.made, n): output for n, output in outputs}


MOST_NAMED = 5
"""Tasks that the error for an ambiguous key lists."""


class UnknownTasks(TrainRunError):
    """There is no log of tasks, or no task with the key, or the command cannot act on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedProgram:
    """A program of tasks whose log has been read."""

    keep: TaskFolder
    file: Path
    """The argument that names it, as a path: the program's file, or a run's, or no file at all."""
    words: str
    """How the command line named it."""
    source: Source | None = None
    """The run that it belongs to; None: it was started on its own."""
    history: TaskHistory = field(default_factory=TaskHistory)

    @property
    def uri(self) -> str:
        """The URI of its folder."""
        return self.keep.folder.uri


def find_program(where: str | None, *, storage: str | None, namespace: str | None) -> OpenedProgram:
    """The program that `where` names; None: the only one that was started in this folder.

    Raises InvalidSpec, UnknownRun, UnknownTasks if there is no log, StoreError, TaskLogDamaged, and
    errors of the cluster.
    """
    options = (("--storage", storage), ("-n", namespace))
    words = [where or "", *(f"{option} {value}" for option, value in options if value)]
    if where is None:
        begun = sorted(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else []
        if len(begun) != 1:
            raise UnknownTasks(f"programs of tasks started in this folder: {begun}; name one")
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
    """The only task whose key begins with `key`. Raises UnknownTasks."""
    found = [task for task in history.replayed.entries.values() if task.key.startswith(key)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnknownTasks(f"no task in the log has a key that begins with {key}")
    named = ", ".join(
        f"{task.key[: len(key) + 8]} ({call_text(task)})" for task in found[:MOST_NAMED]
    )
    raise UnknownTasks(f"{len(found)} tasks have a key that begins with {key}: {named}")


def stale_tasks(history: TaskHistory, file: Path) -> dict[str, list[str]]:
    """Keys of done tasks whose code has changed, by function. `file` is the program's or its run's
    file; if a module's code cannot be found from it, the newest task's code counts as current."""
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
    """The name of the program's file without its suffix, and the folders of its modules."""
    if file.suffix == ".py":
        return file.stem, [file.absolute().parent]
    if file.is_file():
        with suppress(InvalidSpec):
            program = prepare(RunOptions(file=file)).program
            script = Path(next((word for word in program.command if word.endswith(".py")), ""))
            return script.stem, [program.working_dir / script.parent, program.working_dir]
    return "", []


def _code_now(module: str, path: str, folders: list[Path]) -> str:
    for folder in folders:
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if code := code_of_module(module, (folder / name).absolute()):
                return code
    return ""
