"""What `trainrun logs` shows: lines, and what is missing of them; which are wanted, how the output
of a worker tells them, and how they look.

Layer: cli. An agent says when it starts an attempt and how each process ended; lines of processes
begin with their rank, so no script can say so in its place. A worker whose output ends without that
was lost, and what it had not sent is missing. What looks like a secret is left out, wherever a line
comes from: what is stored is masked already, and what is pasted should be, too.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from operator import itemgetter

import click

from trainrun.contract.masking import hide_values, masked
from trainrun_operator.cli.formatting import named, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a training process."""

    attempt: int | None
    """None: not known, since the beginning of its worker's output is gone."""
    rank: int
    text: str
    worker: str = ""
    time: datetime | None = None
    """When it came, where that is known."""

    @property
    def moment(self) -> datetime:
        """Its time for comparisons: of one that is not known before all others."""
        return self.time or datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Lines that are not there, and why."""

    attempt: int | None
    text: str
    worker: str = ""


LogItem = Line | Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines."""

    ranks: frozenset[int] = frozenset()
    """Empty: those of all."""
    attempt: int | None = None
    """None: of all attempts."""
    tail: int | None = None
    """At most so many of each rank in each attempt, the last ones; None: all that there are."""

    def has(self, attempt: int | None, ranks: Iterable[int]) -> bool:
        """Whether lines of one of these ranks in this attempt are wanted."""
        if self.attempt is not None and attempt != self.attempt:
            return False
        return not self.ranks or not self.ranks.isdisjoint(ranks)

    def of(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The wanted ones of these."""
        return (line for line in lines if self.has(line.attempt, [line.rank]))

    def last(self, lines: Iterable[Line]) -> list[Line]:
        """The last wanted ones of these, which are in the order in which they came."""
        if self.tail is None:
            return list(self.of(lines))
        # Only what is shown is kept in memory: a rank may have printed gigabytes.
        ends: dict[tuple[int | None, int], deque[tuple[int, Line]]] = {}
        for number, line in enumerate(self.of(lines)):
            end = ends.setdefault((line.attempt, line.rank), deque(maxlen=self.tail))
            end.append((number, line))
        found = sorted(chain.from_iterable(ends.values()), key=itemgetter(0))
        return [line for _, line in found]


_STARTS = re.compile(r"\[agent\] INFO starting attempt (\d{1,9})")
_ENDED = re.compile(r"\[agent\] INFO rank (\d{1,9}) [a-z]")
_OF_RANK = re.compile(r"\[rank (\d{1,9})\] (.*)", re.DOTALL)


@dataclass(slots=True, kw_only=True)
class WorkerOutput:
    """What is known of a worker by the lines so far."""

    worker: str
    attempt: int | None = None
    """That of the newest lines."""
    first: int | None = None
    """The first one whose start was among the lines."""
    open: set[int] = field(default_factory=set)
    """Ranks that have printed in it and whose end was not told."""

    def line(self, text: str, time: datetime | None = None) -> Line | None:
        """Take the next line; None: it is none of a training process."""
        if (of_rank := _OF_RANK.fullmatch(text)) is not None:
            rank = int(of_rank[1])
            self.open.add(rank)
            return Line(
                attempt=self.attempt, rank=rank, text=of_rank[2], worker=self.worker, time=time
            )
        if (starts := _STARTS.fullmatch(text)) is not None:
            self.attempt = int(starts[1])
            self.first = self.attempt if self.first is None else self.first
            self.open = set()
        elif (ended := _ENDED.match(text)) is not None:
            self.open.discard(int(ended[1]))
        return None

    def lost(self, newest: int) -> Iterator[Gap]:
        """What to say when a later attempt than ours runs, or the run is over, and nothing more
        comes from this worker: once."""
        if self.open and (self.attempt or 0) <= newest:
            yield Gap(attempt=self.attempt, worker=self.worker, text=cut_off(self.open))
            self.open = set()


def cut_off(ranks: set[int]) -> str:
    """Said of the output of these ranks."""
    return (
        f"the output of {named(ranks)} ends here: the worker was lost, and what it had not sent "
        "is missing"
    )


COLORS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green")


class Printer:
    """Prints what is shown on stdout, without what our environment keeps secret; with colors on a
    terminal, unless NO_COLOR is set."""

    def __init__(self, *, as_json: bool) -> None:
        hide_values(os.environ)
        self._as_json = as_json
        self._color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def show(self, item: LogItem) -> None:
        """Print it at once."""
        click.echo(self._object(item) if self._as_json else self._text(item))

    def _text(self, item: LogItem) -> str:
        attempt = "?" if item.attempt is None else item.attempt
        if isinstance(item, Line):
            head = f"[attempt {attempt} rank {item.rank}]"
            color = COLORS[item.rank % len(COLORS)]
            text = printable(masked(item.text))
            return f"{click.style(head, fg=color) if self._color else head} {text}"
        worker = f" {item.worker}" if item.worker else ""
        text = f"[attempt {attempt}{worker}] -- {item.text} --"
        return click.style(text, fg="yellow") if self._color else text

    def _object(self, item: LogItem) -> str:
        worker = {"worker": item.worker} if item.worker else {}
        if isinstance(item, Gap):
            return json.dumps({"attempt": item.attempt, **worker, "missing": item.text})
        time = {"time": item.time.isoformat(timespec="milliseconds")} if item.time else {}
        head = {"attempt": item.attempt, "rank": item.rank, **worker, **time}
        return json.dumps({**head, "text": masked(item.text)})
