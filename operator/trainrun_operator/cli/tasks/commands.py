"""`trainrun tasks` and its verbs: show a program of tasks and its objects, and act on them.

Layer: cli. The clock is read here. A record in the log is all that is said to a driver: one that
runs takes it with the next batch that it writes, the others when they start.
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
from trainrun_operator.cli.report.output import tell
from trainrun_operator.cli.report.terminal import wrapped
from trainrun_operator.cli.tasks import views
from trainrun_operator.cli.tasks.program import (
    OpenedProgram,
    UnknownTasks,
    find_program,
    find_task,
    objects,
    shown,
    stale_tasks,
)
from trainrun_operator.cli.tasks.views import SHORT, row

WHY = "asked for by `trainrun tasks rebuild`"


def show(where: str | None, *, as_json: bool, **place: str | None) -> None:
    """Print how the program fares. Raises as `find_program`, as all of these do."""
    program = find_program(where, **place)
    uri, history = program.uri, program.history
    with contextlib.suppress(TrainRunError):
        if program.source is not None:
            metrics = program.source.state().status.progress.metrics
            history.total = int(metrics.get("tasks_total", 0))
    stale = stale_tasks(history, program.file)
    lines = views.program_lines(uri, history, stale, now=time.time())
    tell(lines, views.program_object(uri, history, stale), as_json=as_json)


def explain(where: str | None, *, key: str, as_json: bool, **place: str | None) -> None:
    """Print the life of one task."""
    program = find_program(where, **place)
    task = find_task(program.history, key)
    data = views.life_object(task, program.history)
    tell(views.life_lines(task, program), data, as_json=as_json)


def rebuild(where: str | None, *, key: str, **place: str | None) -> None:
    """Have a task run again, or with an empty key all that have failed."""
    program = find_program(where, **place)
    chosen = _write(program, key)
    for task in chosen:
        click.echo(row(task, program.history.state(task)))
    text = (
        "They run again when you start the program. One that runs now takes this up with the next "
        "entry in its log."
    )
    for line in wrapped(text if chosen else "No task has failed, so none runs again."):
        click.echo(line)


def _write(program: OpenedProgram, key: str) -> list[Entry]:
    """Append the records behind whatever a driver has written meanwhile."""
    while True:
        history = program.history.read_on(program.keep)
        failed = (task for task in history.calls if task.final)
        chosen = [find_task(history, key)] if key else [*failed]
        if key and (chosen[0].given or not chosen[0].settled):
            why = "no task makes it" if chosen[0].given else f"it is {history.state(chosen[0])}"
            raise UnknownTasks(f"{shown(chosen[0])} ({key}) cannot be made again: {why}")
        again = {task.key for task in chosen}
        for task in history.calls:  # parents are begun before their children
            if task.key not in again and again.intersection(task.parents):
                again.add(task.key)
                chosen += [task] if task.done or task.final else []
        records = tuple(record for task in chosen for record in _records(task))
        batch = Batch(session=BY_HAND, records=records, time=time.time())
        if not records or program.keep.append(history.position + 1, to_bytes(batch)):
            return chosen


def _records(task: Entry) -> tuple[Record, ...]:
    """With fresh budgets; the results of a done task are declared lost."""
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
    click.echo(f"objects read: {len(expected)}, of which are missing or damaged: {len(wrong)}")
    if wrong:
        click.echo("The program makes each again when it needs it, or on `trainrun tasks rebuild`.")
    return FOUND if wrong else SUCCEEDED


def collect(where: str | None, *, dry_run: bool, **place: str | None) -> None:
    """Delete objects that are no task's newest results."""
    program = find_program(where, **place)
    names = program.keep.names()
    history = program.history.read_on(program.keep)  # after the names: each in it is known
    if history.over != "Returned":
        raise UnknownTasks(
            f"{program.uri}: the program has not returned, so it may need every object; "
            "collect after it has"
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
