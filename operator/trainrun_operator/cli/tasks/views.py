"""`trainrun tasks` and `trainrun tasks explain`: a program's status and one task's history, as
lines and as JSON.

Layer: cli. Click removes the colors if the output is not a terminal.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from trainrun.contract import wire
from trainrun.tasks import records as log
from trainrun.tasks.replayed_state import Entry
from trainrun_operator.cli import formatting
from trainrun_operator.cli.report import terminal
from trainrun_operator.cli.report.model import Document, Preformatted, Section, TextLine
from trainrun_operator.cli.report.terminal import WIDTH, wrapped
from trainrun_operator.cli.tasks.program import OpenedProgram, TaskHistory, call_text, objects

SHORT = 12
"""Characters of a key that are shown."""
MOST_FAILED, MOST_SLOW = 10, 5
"""Tasks that the overview lists."""
Stale = Mapping[str, Sequence[str]]
"""See `stale_tasks`."""


def program_lines(uri: str, history: TaskHistory, stale: Stale, *, now: float) -> Iterator[str]:
    """The program's status for a terminal of 80 or more columns."""
    changed = (
        f"made by code that has changed: {len(keys)} of {function.rpartition(':')[2]}. The results "
        "are kept; to make them again, give the function another version=."
        for function, keys in stale.items()
    )
    blocks: dict[str, Sequence[TextLine | Preformatted]] = {
        "Failed": _failed(history),
        "Slowest": _slowest(history, now),
    }
    sections = (Section(title=title, blocks=tuple(b)) for title, b in blocks.items() if b)
    document = Document(
        name=uri,
        headline=f"Tasks: {_counted(history)}",
        facts=(("folder", uri), ("log", _standing(history, now))),
        remarks=tuple(changed),
        sections=tuple(sections),
    )
    yield from terminal.lines(document)


def _slowest(history: TaskHistory, now: float) -> list[Preformatted]:
    slowest = sorted(_timed(history, now), key=lambda timed: -timed[0])[:MOST_SLOW]
    rows = (
        row(task, f"{formatting.long(seconds)}{', running' * (not task.done)}").lstrip()
        for seconds, task in slowest
    )
    return [Preformatted(tuple(rows))] if slowest else []


def _counted(history: TaskHistory) -> str:
    """`290 done, 8 running, 2 failed, 5 retries, 1 rebuilt`."""
    words = {"reconstructions": "rebuilt"}
    counts = history.counts.items()
    return formatting.counts({words.get(state, state): count for state, count in counts})


def _standing(history: TaskHistory, now: float) -> str:
    starts = f"starts: {sum(record.kind == 'Began' for _, record in history.records)}"
    if history.over:
        how = "has returned" if history.over == "Returned" else "ended with an exception"
        return f"{starts}; the program {how}"
    return f"{starts}; last entry {formatting.long(max(0.0, now - history.time))} ago"


def _timed(history: TaskHistory, now: float) -> Iterator[tuple[float, Entry]]:
    """Done and running tasks with their seconds, for running ones so far."""
    records = history.records
    began = {record.key: time for time, record in records if record.kind == "Dispatched"}
    for task in history.calls:
        if history.state(task) == "running":
            yield max(0.0, now - began[task.key]), task
        elif task.done:
            yield task.seconds, task


def in_story(history: TaskHistory) -> Section:
    """A section for `trainrun explain`: counts, failed tasks, rebuilt tasks and why."""
    again = [record for _, record in history.records if record.kind == "Rebuild"]
    entries = history.replayed.entries
    named = ((call_text(entries[record.key]), record.why) for record in again[-MOST_FAILED:])
    rebuilt = [TextLine(f"{name} was rebuilt: {why}", deeper=True) for name, why in named]
    if len(again) > MOST_FAILED:
        earlier = f"and {len(again) - MOST_FAILED} earlier ones"
        rebuilt.append(TextLine(earlier, deeper=True))
    return Section(title=f"Tasks, {_counted(history)}", blocks=(*_failed(history), *rebuilt))


def _failed(history: TaskHistory) -> list[TextLine]:
    """The messages of the newest failed tasks; they name call, key, try and remedy."""
    failed = [task.final for task in reversed(history.calls) if task.final is not None]
    messages = [formatting.shortened(final.message, 400) for final in failed[:MOST_FAILED]]
    lines = [TextLine(text, "bad", deeper=True) for text in messages]
    if more := len(failed) - len(messages):
        lines.append(TextLine(f"and {more} more: --json lists all", deeper=True))
    return lines


def row(task: Entry, text: str) -> str:
    """One line of the terminal: the task's short key, its call, and `text`."""
    head = f"    {task.key[:SHORT]:<{SHORT}}  "
    room = max(WIDTH, shutil.get_terminal_size().columns - 1) - len(head) - len(text) - 2
    name = formatting.printable(call_text(task))
    if len(name) > room:  # calls mostly differ at their ends
        half = (room - 3) // 2
        name = f"{name[: room - 3 - half]}...{name[-half:]}"
    return f"{head}{name:<{min(room, 40)}}  {text}"


def program_object(uri: str, history: TaskHistory, stale: Stale) -> dict[str, Any]:
    """The program's status as one JSON object."""
    return {
        "version": 1,
        "uri": uri,
        "counts": history.counts,
        "over": history.over or None,
        "time": history.time,
        "tasks": [task_object(task, history) for task in history.calls],
        "stale": stale,
    }


def task_object(task: Entry, history: TaskHistory) -> dict[str, Any]:
    """One task as a short JSON object."""
    return {
        "key": task.key,
        "function": task.function,
        "call": call_text(task),
        "state": history.state(task),
        "tries": task.number,
        "retries": task.retries,
        "reconstructions": task.rebuilds,
        "seconds": task.seconds if task.done else None,
        "reason": task.final.reason if task.final else None,
        "message": task.final.message if task.final else None,
    }


MOST_PARENTS = 10
"""Parents that the history of a task lists."""
SENTENCES = {
    "Dispatched": "try {0.number} on worker {0.worker}",
    "Failed": "{0.reason}: {0.message}",
    "Done": "done in {0.seconds:.3g} s",
    "Given": "given by put()",
    "Rebuild": "rebuilt as generation {0.generation}: {0.why}",
    "Changed": "the content of result {0.index} has changed",
    "Cancelled": "cancelled",
    "Reset": "budgets reset",
    "Began": "its try ended with the driver",
    "Over": "its try ended with the program",
}
"""What a record says, by its kind."""
LARGE = ("key", "outputs", "output", "error")
"""Fields of records that the JSON history leaves out."""


def life_lines(task: Entry, program: OpenedProgram) -> Iterator[str]:
    """One task's history for a terminal of 80 columns."""
    history = program.history
    yield click.style(formatting.printable(call_text(task)), bold=True)
    yield f"  key    {task.key}"
    yield f"  state  {history.state(task)}"
    parents = [history.replayed.entries.get(key, Entry(key)) for key in task.parents]
    if parents:
        yield "  takes"
    yield from (row(parent, history.state(parent)) for parent in parents[:MOST_PARENTS])
    if len(parents) > MOST_PARENTS:
        yield f"    and {len(parents) - MOST_PARENTS} more"
    yield "  life"
    for time, record in records_of(task, history):
        when = datetime.fromtimestamp(time, UTC)
        text = formatting.printable(
            f"{when:%Y-%m-%d %H:%M:%S}  {SENTENCES[record.kind].format(record)}"
        )
        yield from wrapped(text, indent=4, hang=21)
    for name, output in objects(task).items():
        kind = "result (a folder)" if output.kind == "Folder" else "result"
        yield f"  {kind}, {formatting.size(output.size)}, sha256 {output.digest[:SHORT]}"
        in_store = (
            f"{program.keep.uri}/objects/{name}"
            if output.kept == "Store"
            else "on the node that made it"
        )
        yield f"    {'in the log' if output.inline else in_store}"
    if task.final is not None:
        lines = task.final.traceback.splitlines()
        yield from (f"  | {formatting.printable(line)}" for line in lines)
    if history.state(task) in ("failed", "cancelled"):
        again = " ".join(filter(None, (program.words, task.key[:SHORT])))
        yield f"To run it again with fresh retries: trainrun tasks rebuild {again}"


def records_of(task: Entry, history: TaskHistory) -> Iterator[tuple[float, log.Record]]:
    """The task's records, and the driver's starts and ends that ended one of its tries."""
    runs = False
    for time, record in history.records:
        if runs if isinstance(record, log.Began | log.Over) else record.key == task.key:
            runs = record.kind == "Dispatched"
            yield time, record


def life_object(task: Entry, history: TaskHistory) -> dict[str, Any]:
    """One task with its history as one JSON object."""
    records = records_of(task, history)
    encoded = [{"time": time, **wire.encode(record)} for time, record in records]
    return {
        "version": 1,
        **task_object(task, history),
        "parents": task.parents,
        "history": [{k: v for k, v in fields.items() if k not in LARGE} for fields in encoded],
        "outputs": {
            name: {
                "kind": output.kind,
                "size": output.size,
                "sha256": output.digest,
                "inLog": bool(output.inline),
            }
            for name, output in objects(task).items()
        },
    }
