"""A program of tasks as its log tells it: the driver's own fold, and every record with its time.

Layer: cli; pure. The fold forgets what is over; people ask for exactly that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from trainrun.tasks import records as log
from trainrun.tasks.book import Book, Entry
from trainrun.tasks.calls import object_name
from trainrun.tasks.keep import Keep, from_bytes
from trainrun.tasks.records import Output

STATES = ("done", "running", "waiting", "failed", "cancelled")
"""In the order in which they are shown. Waiting: to be run again. A call that no worker has
taken yet is not in the log."""


@dataclass(slots=True)
class TaskHistory:
    """All that a log says."""

    book: Book = field(default_factory=Book)
    records: list[tuple[float, log.Record]] = field(default_factory=list)
    """With their times, in seconds since the epoch."""
    position: int = 0
    """Of the last batch."""
    time: float = 0.0
    """When that was written."""
    total: int = 0
    """Calls that the driver knows, also those that no worker has taken yet; 0: nobody says."""

    def read_on(self, keep: Keep) -> TaskHistory:
        """Take all that stands in the log now. Raises StoreError and TaskLogDamaged."""
        for batch in map(from_bytes, keep.read(self.position)):
            self.position, self.time = self.position + 1, batch.time
            for record in batch.records:
                self.book.fold(record)
                self.records.append((batch.time, record))
        return self

    @property
    def calls(self) -> list[Entry]:
        """The tasks without the values of `put`, in the order in which they were begun."""
        return [task for task in self.book.entries.values() if not task.given]

    @property
    def over(self) -> str:
        """How the newest driver has ended by itself; empty: it runs, or has died."""
        ends = (record.outcome for _, record in reversed(self.records) if record.kind == "Over")
        return next(ends, "") if self.book.over else ""

    @property
    def counts(self) -> dict[str, int]:
        """Tasks by state, `retries` and `reconstructions`."""
        calls = self.calls
        states = Counter(map(self.state, calls))
        states["waiting"] += max(0, self.total - len(calls))
        counts = {state: states[state] for state in STATES}
        return {**counts, "retries": self.book.retried, "reconstructions": self.book.rebuilt}

    def state(self, task: Entry) -> str:
        """One of STATES."""
        if task.open and not self.book.over:
            return "running"
        if task.final is not None:
            return "failed"
        return "cancelled" if task.cancelled else "done" if task.done else "waiting"


def shown(task: Entry) -> str:
    """`tokenize('s3://a/0001')`."""
    return "put()" if task.given else task.arguments or task.function


def objects(task: Entry) -> dict[str, Output]:
    """Its newest results by the names of their objects."""
    return {object_name(task.key, task.made, n): it for n, it in enumerate(task.outputs)}
