"""From `FILE|FOLDER|URI|NAME` on the command line to a program of tasks as its log tells it: the
driver's own fold, and every record with its time. The fold forgets what is over; people ask for
exactly that.

Layer: cli. A program that was started by itself has its log in a folder beside it, one that is a
run in the run's storage.
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
"""In the order in which they are shown. Waiting: to be run again. A call that no worker has
taken yet is not in the log."""


@dataclass(slots=True)
class TaskHistory:
    """All that a log says."""

    replayed: ReplayedState = field(default_factory=ReplayedState)
    records: list[tuple[float, log.Record]] = field(default_factory=list)
    """With their times, in seconds since the epoch."""
    position: int = 0
    """Of the last batch."""
    time: float = 0.0
    """When that was written."""
    total: int = 0
    """Calls that the driver knows, also those that no worker has taken yet; 0: nobody says."""

    def read_on(self, keep: TaskStorage) -> TaskHistory:
        """Take all that stands in the log now. Raises StoreError and TaskLogDamaged."""
        for batch in map(from_bytes, keep.read(self.position)):
            self.position, self.time = self.position + 1, batch.time
            for record in batch.records:
                self.replayed.fold(record)
                self.records.append((batch.time, record))
        return self

    @property
    def calls(self) -> list[Entry]:
        """The tasks without the values of `put`, in the order in which they were begun."""
        return [task for task in self.replayed.entries.values() if not task.given]

    @property
    def over(self) -> str:
        """How the newest driver has ended by itself; empty: it runs, or has died."""
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


def shown(task: Entry) -> str:
    """`tokenize('s3://a/0001')`."""
    return "put()" if task.given else task.arguments or task.function


def objects(task: Entry) -> dict[str, Output]:
    """Its newest results by the names of their objects."""
    outputs = enumerate(task.outputs)
    return {object_name(task.key, task.made, n): output for n, output in outputs}


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
    found = [task for task in history.replayed.entries.values() if task.key.startswith(key)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnknownTasks(f"no task in the log has a key that begins with {key}")
    named = ", ".join(f"{task.key[: len(key) + 8]} ({shown(task)})" for task in found[:MOST_NAMED])
    raise UnknownTasks(f"{len(found)} tasks have a key that begins with {key}: {named}")


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
