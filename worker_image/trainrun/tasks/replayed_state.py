"""The state of each key, replayed from the records of the log in order.

Layer: tasks, pure. Cheap per record and small per key: a program may have 100,000 keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainrun.tasks.records import (
    Began,
    Cancelled,
    Changed,
    Dispatched,
    Done,
    Failed,
    Given,
    Output,
    Over,
    Rebuild,
    Record,
    Reset,
)


@dataclass(slots=True)
class Entry:
    """One key."""

    key: str
    function: str = ""
    arguments: str = ""
    code: str = ""
    parents: tuple[str, ...] = ()
    generation: int = 1
    number: int = 0
    """Number of its newest try."""
    worker: int = -1
    """Worker of its newest try."""
    open: bool = False
    """The log has no end of that try."""
    spent: int = 0
    """Counted failures in this generation."""
    misread: int = 0
    """Tries of this generation that could not read an input."""
    due: bool = False
    """The next try is a retry."""
    retries: int = 0
    """In all generations."""
    rebuilds: int = 0
    done: bool = False
    """Its current generation is committed."""
    outputs: tuple[Output, ...] = ()
    """Results of its newest committed generation."""
    made: int = 0
    """The try that produced them."""
    seconds: float = 0.0
    """Duration of its newest successful try."""
    final: Failed | None = None
    """Why it failed for good."""
    cancelled: bool = False
    changed: bool = False
    """The rebuild of the current generation gave different content."""
    given: bool = False

    @property
    def settled(self) -> bool:
        """Needs no further try unless a result is lost."""
        return self.done or self.cancelled or self.final is not None


class ReplayedState:
    """Every key of a log."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.entries: dict[str, Entry] = {}
        self.attempt = 0
        """Attempt of the newest driver."""
        self.over = False
        """The newest driver ended by itself."""
        self.done = 0
        """How many tasks were ever committed."""
        self.retried = 0
        self.rebuilt = 0
        self._open: set[str] = set()
        self._texts: dict[str, str] = {}
        for record in records:
            self.fold(record)

    def fold(self, record: Record) -> None:
        """Add the next record of the log."""
        match record:
            case Dispatched():
                self._dispatched(record)
            case Done():
                self._done(record)
            case Failed():
                entry = self._close(record.key)
                entry.spent += record.counted
                entry.misread += record.reason == "InputMissing"
                entry.due = record.counted
                entry.final = record if record.final else None
            case Given():
                entry = self._entry(record.key)
                entry.done, entry.given, entry.outputs = True, True, (record.output,)
            case Rebuild():
                self._rebuild(record)
            case Changed():
                self._entry(record.key).changed = True
            case Cancelled():
                self._close(record.key).cancelled = True
            case Reset():
                entry = self._entry(record.key)
                entry.final = None
                entry.cancelled = entry.changed = entry.due = False
                entry.spent = entry.rebuilds = 0
            case Began():
                self._began(record)
            case Over():
                self.over = True

    def _began(self, record: Began) -> None:
        self.attempt, self.over = record.attempt, False
        for key in tuple(self._open):
            entry = self._close(key)
            if entry.worker in record.lost:
                entry.spent += 1
                entry.due = True

    def _dispatched(self, record: Dispatched) -> None:
        entry = self._entry(record.key)
        entry.number, entry.worker, entry.open = record.number, record.worker, True
        entry.retries += entry.due
        self.retried += entry.due
        entry.due = False
        self._open.add(entry.key)
        if record.number == 1:
            entry.function, entry.code = self._text(record.function), self._text(record.code)
            entry.arguments = record.arguments
            # Store the text of each key once, however many records name it.
            known = self.entries
            entry.parents = tuple(known[p].key if p in known else p for p in record.parents)

    def _done(self, record: Done) -> None:
        entry = self._close(record.key)
        self.done += record.generation == 1
        entry.done, entry.outputs, entry.seconds = True, record.outputs, record.seconds
        entry.made = record.number

    def _rebuild(self, record: Rebuild) -> None:
        entry = self._entry(record.key)
        if record.generation > entry.generation:  # else a user has asked for the same rebuild
            entry.generation = record.generation
            entry.rebuilds += 1
            self.rebuilt += 1
            entry.spent = entry.misread = 0
            entry.done = entry.changed = entry.due = False

    def _entry(self, key: str) -> Entry:
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry(key)
        return entry

    def _close(self, key: str) -> Entry:
        entry = self._entry(key)
        entry.open = False
        self._open.discard(key)
        return entry

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)
