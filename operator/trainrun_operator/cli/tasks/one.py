"""`trainrun tasks explain`: the life of one task, as lines and as JSON.

Layer: cli. Colors are left to click, which leaves them out where there is no terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from trainrun.contract import wire
from trainrun.tasks import records as log
from trainrun.tasks.book import Entry
from trainrun_operator.cli import wording
from trainrun_operator.cli.report.terminal import wrapped
from trainrun_operator.cli.tasks.history import TaskHistory, objects, shown
from trainrun_operator.cli.tasks.opening import OpenedProgram
from trainrun_operator.cli.tasks.overview import SHORT, row, task_object

MOST_PARENTS = 10
"""That are listed."""
SENTENCES = {
    "Dispatched": "try {0.number} on worker {0.worker}",
    "Failed": "{0.reason}: {0.message}",
    "Done": "done in {0.seconds:.3g} s",
    "Given": "given by put()",
    "Rebuild": "made again as generation {0.generation}: {0.why}",
    "Changed": "result {0.index} has another content than before",
    "Cancelled": "cancelled",
    "Reset": "budgets set back",
    "Began": "its try ended with the driver",
    "Over": "its try ended with the program",
}
"""By the kind of a record."""
LARGE = ("key", "outputs", "output", "error")
"""Fields of records that are not shown as they are."""


def lines(task: Entry, program: OpenedProgram) -> Iterator[str]:
    """For a terminal of 80 columns."""
    history = program.history
    yield click.style(wording.printable(shown(task)), bold=True)
    yield f"  key    {task.key}"
    yield f"  state  {history.state(task)}"
    parents = [history.book.entries.get(key, Entry(key)) for key in task.parents]
    if parents:
        yield "  takes"
    yield from (row(it, history.state(it)) for it in parents[:MOST_PARENTS])
    if len(parents) > MOST_PARENTS:
        yield f"    and {len(parents) - MOST_PARENTS} more"
    yield "  life"
    for time, record in records_of(task, history):
        when = datetime.fromtimestamp(time, UTC)
        text = wording.printable(
            f"{when:%Y-%m-%d %H:%M:%S}  {SENTENCES[record.kind].format(record)}"
        )
        yield from wrapped(text, indent=4, hang=21)
    for name, output in objects(task).items():
        kind = "result (a folder)" if output.kind == "Folder" else "result"
        yield f"  {kind}, {wording.size(output.size)}, sha256 {output.digest[:SHORT]}"
        in_store = (
            f"{program.keep.uri}/objects/{name}"
            if output.kept == "Store"
            else "on the node that made it"
        )
        yield f"    {'in the log' if output.inline else in_store}"
    if task.final is not None:
        yield from (f"  | {wording.printable(it)}" for it in task.final.traceback.splitlines())
    if history.state(task) in ("failed", "cancelled"):
        again = " ".join(filter(None, (program.words, task.key[:SHORT])))
        yield f"To run it again with fresh retries: trainrun tasks rebuild {again}"


def records_of(task: Entry, history: TaskHistory) -> Iterator[tuple[float, log.Record]]:
    """Those of the task, and the ends of drivers that have ended one of its tries."""
    runs = False
    for time, record in history.records:
        if runs if isinstance(record, log.Began | log.Over) else record.key == task.key:
            runs = record.kind == "Dispatched"
            yield time, record


def as_object(task: Entry, history: TaskHistory) -> dict[str, Any]:
    """One object."""
    told = [{"time": time, **wire.encode(record)} for time, record in records_of(task, history)]
    return {
        "version": 1,
        **task_object(task, history),
        "parents": task.parents,
        "history": [{k: v for k, v in it.items() if k not in LARGE} for it in told],
        "outputs": {
            name: {"kind": it.kind, "size": it.size, "sha256": it.digest, "inLog": bool(it.inline)}
            for name, it in objects(task).items()
        },
    }
