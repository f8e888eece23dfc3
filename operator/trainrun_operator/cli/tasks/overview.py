"""`trainrun tasks`: how a program of tasks fares, as lines and as JSON.

Layer: cli; pure. Colors are left to click, which leaves them out where there is no terminal.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import click

from trainrun.tasks.book import Entry
from trainrun_operator.cli import wording
from trainrun_operator.cli.tasks.history import TaskHistory, shown
from trainrun_operator.cli.wrapping import WIDTH, wrapped

SHORT = 12
"""Characters of a key that are shown."""
MOST_FAILED, MOST_SLOW = 10, 5
"""Tasks that are listed."""


def lines(
    uri: str, history: TaskHistory, stale: Mapping[str, list[str]], *, now: float
) -> Iterator[str]:
    """For a terminal of 80 columns, or a wider one; for `stale` see `stale_tasks`."""
    yield click.style(uri, bold=True)
    yield from wrapped(f"tasks  {_counted(history.counts)}", indent=2, hang=7)
    yield from wrapped(f"log    {_standing(history, now)}", indent=2, hang=7)
    yield from _failed(history)
    slowest = sorted(_timed(history, now), key=lambda timed: -timed[0])[:MOST_SLOW]
    if slowest:
        yield "  slowest"
    for seconds, task in slowest:
        yield row(task, f"{wording.long(seconds)}{', running' * (not task.done)}")
    for function, keys in stale.items():
        made = f"{len(keys)} of {function.rpartition(':')[2]}"
        yield from wrapped(
            f"made by code that has changed: {made}. The results are kept; give the function "
            "another version= to make them anew.",
            indent=2,
            color="yellow",
        )


def _counted(counts: dict[str, int]) -> str:
    """`290 done, 8 running, 2 failed, 5 retries, 1 rebuilt`."""
    words = {**{name: name for name in counts}, "reconstructions": "rebuilt"}
    return ", ".join(f"{n} {words[name]}" for name, n in counts.items() if n) or "none yet"


def _standing(history: TaskHistory, now: float) -> str:
    starts = f"starts: {sum(record.kind == 'Began' for _, record in history.records)}"
    if history.over:
        how = "has returned" if history.over == "Returned" else "ended with an exception"
        return f"{starts}; the program {how}"
    return f"{starts}; last entry {wording.long(max(0.0, now - history.time))} ago"


def _timed(history: TaskHistory, now: float) -> Iterator[tuple[float, Entry]]:
    """With the time that the function took, or has taken so far."""
    began = {it.key: time for time, it in history.records if it.kind == "Dispatched"}
    for task in history.calls:
        if history.state(task) == "running":
            yield max(0.0, now - began[task.key]), task
        elif task.done:
            yield task.seconds, task


def summary_lines(history: TaskHistory) -> Iterator[str]:
    """For the story of a run: counts, what failed, what was rebuilt and why."""
    yield from wrapped(f"Tasks: {_counted(history.counts)}", hang=2)
    yield from _failed(history)
    again = [it for _, it in history.records if it.kind == "Rebuild"]
    if again:
        yield "  made again"
    for rebuild in again[-MOST_FAILED:]:
        name = shown(history.book.entries[rebuild.key])
        yield from wrapped(wording.printable(f"{name}: {rebuild.why}"), indent=4, hang=2)
    if len(again) > MOST_FAILED:
        yield f"    and {len(again) - MOST_FAILED} before these"


def _failed(history: TaskHistory) -> Iterator[str]:
    """What the newest have failed with: the messages name call, key, try and remedy."""
    failed = [task.final for task in reversed(history.calls) if task.final is not None]
    if failed:
        yield "  failed"
    for it in failed[:MOST_FAILED]:
        text = wording.printable(wording.shortened(it.message, 400))
        yield from wrapped(text, indent=4, hang=2, color="red")
    if len(failed) > MOST_FAILED:
        yield f"    and {len(failed) - MOST_FAILED} more: --json lists all"


def row(task: Entry, text: str) -> str:
    """One task with its short key and this text, in one line of the terminal."""
    head = f"    {task.key[:SHORT]:<{SHORT}}  "
    room = max(WIDTH, shutil.get_terminal_size().columns - 1) - len(head) - len(text) - 2
    name = wording.printable(shown(task))
    if len(name) > room:  # what calls differ in mostly stands at their ends
        half = (room - 3) // 2
        name = f"{name[: room - 3 - half]}...{name[-half:]}"
    return f"{head}{name:<{min(room, 40)}}  {text}"


def as_object(uri: str, history: TaskHistory, stale: Mapping[str, list[str]]) -> dict[str, Any]:
    """One object."""
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
    """One task in short."""
    return {
        "key": task.key,
        "function": task.function,
        "call": shown(task),
        "state": history.state(task),
        "tries": task.number,
        "retries": task.retries,
        "reconstructions": task.rebuilds,
        "seconds": task.seconds if task.done else None,
        "reason": task.final.reason if task.final else None,
        "message": task.final.message if task.final else None,
    }
