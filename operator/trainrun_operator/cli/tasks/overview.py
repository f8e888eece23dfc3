"""`trainrun tasks`: how a program of tasks fares, as lines and as JSON.

Layer: cli; pure. Colors are left to click, which leaves them out where there is no terminal.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from trainrun.tasks.book import Entry
from trainrun_operator.cli import wording
from trainrun_operator.cli.report import terminal
from trainrun_operator.cli.report.model import Document, Section, TextLine, Verbatim
from trainrun_operator.cli.report.terminal import WIDTH
from trainrun_operator.cli.tasks.history import TaskHistory, shown

SHORT = 12
"""Characters of a key that are shown."""
MOST_FAILED, MOST_SLOW = 10, 5
"""Tasks that are listed."""


def lines(
    uri: str, history: TaskHistory, stale: Mapping[str, list[str]], *, now: float
) -> Iterator[str]:
    """For a terminal of 80 columns, or a wider one; for `stale` see `stale_tasks`."""
    changed = (
        f"made by code that has changed: {len(keys)} of {function.rpartition(':')[2]}. The results "
        "are kept; give the function another version= to make them anew."
        for function, keys in stale.items()
    )
    yield from terminal.lines(
        Document(
            name=uri,
            headline=f"Tasks: {_counted(history)}",
            facts=(("folder", uri), ("log", _standing(history, now))),
            remarks=tuple(changed),
            sections=(*_failed(history), *_slowest(history, now)),
        )
    )


def _slowest(history: TaskHistory, now: float) -> Iterator[Section]:
    slowest = sorted(_timed(history, now), key=lambda timed: -timed[0])[:MOST_SLOW]
    told = [
        row(task, f"{wording.long(seconds)}{', running' * (not task.done)}").lstrip()
        for seconds, task in slowest
    ]
    if told:
        yield Section(title="Slowest", blocks=(Verbatim(tuple(told)),))


def _counted(history: TaskHistory) -> str:
    """`290 done, 8 running, 2 failed, 5 retries, 1 rebuilt`."""
    words = {"reconstructions": "rebuilt"}
    return wording.counts({words.get(it, it): count for it, count in history.counts.items()})


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


def in_story(history: TaskHistory) -> Section:
    """For the story of a run: counts, what failed, what was rebuilt and why."""
    failed = [block for section in _failed(history) for block in section.blocks]
    again = [it for _, it in history.records if it.kind == "Rebuild"]
    named = ((shown(history.book.entries[it.key]), it.why) for it in again[-MOST_FAILED:])
    rebuilt = [TextLine(f"{name} was made again: {why}", deeper=True) for name, why in named]
    if len(again) > MOST_FAILED:
        rebuilt.append(TextLine(f"and {len(again) - MOST_FAILED} before these", deeper=True))
    return Section(title=f"Tasks, {_counted(history)}", blocks=(*failed, *rebuilt))


def _failed(history: TaskHistory) -> Iterator[Section]:
    """What the newest have failed with: the messages name call, key, try and remedy."""
    failed = [task.final for task in reversed(history.calls) if task.final is not None]
    told = [
        TextLine(wording.shortened(it.message, 400), "bad", deeper=True)
        for it in failed[:MOST_FAILED]
    ]
    if len(failed) > MOST_FAILED:
        told.append(
            TextLine(f"and {len(failed) - MOST_FAILED} more: --json lists all", deeper=True)
        )
    if told:
        yield Section(title="Failed", blocks=tuple(told))


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
