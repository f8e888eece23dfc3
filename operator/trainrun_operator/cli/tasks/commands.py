"""`trainrun tasks` and its verbs: show a program of tasks and its objects, and act on them.

Layer: cli. The clock is read here. Commands reach a driver only through records in the log: a
running driver reads them with the next batch that it writes, others when they start.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from trainrun.checkpoint.run_store import READERS
from trainrun.errors import TrainRunError
from trainrun.tasks.records import Batch, Rebuild, Record, Reset
from trainrun.tasks.replayed_state import Entry
from trainrun.tasks.task_storage import BY_HAND, digest_in, to_bytes
from trainrun_operator.cli import formatting
from trainrun_operator.cli.exit_codes import FOUND, SUCCEEDED
from trainrun_operator.cli.report.output import show_lines
from trainrun_operator.cli.report.terminal import wrapped
from trainrun_operator.cli.tasks import views
from trainrun_operator.cli.tasks.program import (
    OpenedProgram,
    UnknownTasks,
    call_text,
    find_program,
    find_task,
    objects,
    stale_tasks,
)
from trainrun_operator.cli.tasks.views import SHORT, row

WHY = "requested by `trainrun tasks rebuild`"


def show(where: str | None, *, as_json: bool, **place: str | None) -> None:
    """Print the program's status. Raises as `find_program`, as all functions here do."""
    program = find_program(where, **place)
    uri, history = program.uri, program.history
    with contextlib.suppress(TrainRunError):
        if program.source is not None:
            metrics = program.source.state().status.progress.metrics
            history.total = int(metrics.get("tasks_total", 0))
    stale = stale_tasks(history, program.file)
    lines = views.program_lines(uri, history, stale, now=time.time())
    show_lines(lines, views.program_object(uri, history, stale), as_json=as_json)


def explain(where: str | None, *, key: str, as_json: bool, **place: str | None) -> None:
    """Print what happened to one task."""
    program = find_program(where, **place)
    task = find_task(program.history, key)
    data = views.life_object(task, program.history)
    show_lines(views.life_lines(task, program), data, as_json=as_json)


def rebuild(where: str | None, *, key: str, **place: str | None) -> None:
    """Order a task to run again; with an empty key, all failed ones."""
    program = find_program(where, **place)
    chosen = _write(program, key)
    for task in chosen:
        click.echo(row(task, program.history.state(task)))
    text = (
        "They run again when you start the program. A running program starts them again with the "
        "next entry in its log."
    )
    for line in wrapped(text if chosen else "No task has failed, so there is nothing to run."):
        click.echo(line)


def _write(program: OpenedProgram, key: str) -> list[Entry]:
    """Append the records after those that a driver may have written meanwhile; returns the tasks to
    run again."""
    while True:
        history = program.history.read_on(program.keep)
        failed = (task for task in history.calls if task.final)
        chosen = [find_task(history, key)] if key else [*failed]
        if key and (chosen[0].given or not chosen[0].settled):
            given = "it is a value of put(), not a task"
            why = given if chosen[0].given else f"it is {history.state(chosen[0])}"
            raise UnknownTasks(f"{call_text(chosen[0])} ({key}) cannot run again: {why}")
        again = {task.key for task in chosen}
        for task in history.calls:  # parents come before their children
            if task.key not in again and again.intersection(task.parents):
                again.add(task.key)
                chosen += [task] if task.done or task.final else []
        records = tuple(record for task in chosen for record in _records(task))
        batch = Batch(session=BY_HAND, records=records, time=time.time())
        if not records or program.keep.append(history.position + 1, to_bytes(batch)):
            return chosen


def _records(task: Entry) -> tuple[Record, ...]:
    """Records that give the task fresh budgets, and declare the results of a done task lost."""
    again = Rebuild(key=task.key, generation=task.generation + 1, why=WHY)
    return (Reset(key=task.key), *([again] if task.done else []))


def verify(where: str | None, **place: str | None) -> int:
    """Read every object and compare its digest; returns 4 where one is missing or damaged."""
    program = find_program(where, **place)
    expected = {
        name: (task, output.digest)
        for task in program.history.replayed.entries.values()
        for name, output in objects(task).items()
        if not output.inline and output.kept == "Store"
    }
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(READERS) as pool:
        files = (Path(folder, name.replace("/", "-")) for name in expected)
        digests = pool.map(partial(digest_in, program.keep), expected, files)
        found = zip(expected, digests, strict=True)
        wrong = [(name, digest) for name, digest in found if digest != expected[name][1]]
    for name, digest in wrong:
        task, wanted = expected[name]
        why = f"has sha256 {digest[:SHORT]} instead of {wanted[:SHORT]}" if digest else "is missing"
        click.echo(f"{row(task, program.history.state(task))}\n      {name}\n      {why}")
    click.echo(f"objects read: {len(expected)}, missing or damaged: {len(wrong)}")
    if wrong:
        click.echo("The program rebuilds each when it needs it, or on `trainrun tasks rebuild`.")
    return FOUND if wrong else SUCCEEDED


def collect(where: str | None, *, dry_run: bool, **place: str | None) -> None:
    """Delete objects that are not a task's newest result."""
    program = find_program(where, **place)
    names = program.keep.names()
    history = program.history.read_on(program.keep)  # read after listing: it covers every name
    if history.over != "Returned":
        raise UnknownTasks(
            f"{program.uri}: the program has not returned, so it may need every object; "
            "run gc after it has returned"
        )
    needed = {name for task in history.replayed.entries.values() for name in objects(task)}
    dead = sorted(set(names) - needed)
    freed = formatting.size(sum(size or 0 for size in program.keep.sizes(dead)))
    for name in dead if dry_run else ():
        click.echo(name)
    if not dry_run:
        program.keep.delete(dead)
    done = "would be deleted" if dry_run else "deleted"
    click.echo(f"{len(dead)} of {len(names)} objects {done} ({freed})")
