"""Lines and gaps that `trainrun logs` shows: selecting, parsing from a worker's output, printing.

Layer: cli. An agent prints when it starts an attempt and how each process ended. Lines of processes
begin with their rank, so a script cannot imitate these. A worker whose output ends without them was
lost, and lines that it had not sent are missing. What looks like a secret is masked in all lines,
since users paste them; stored lines are masked already.
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
    """None: not known, since the beginning of its worker's output is missing."""
    rank: int
    text: str
    worker: str = ""
    time: datetime | None = None
    """When it was printed; None: not known."""

    @property
    def moment(self) -> datetime:
        """Its time for sorting; an unknown time sorts first."""
        return self.time or datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Missing lines: `text` says which and why."""

    attempt: int | None
    text: str
    worker: str = ""


LogItem = Line | Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines to show."""

    ranks: frozenset[int] = frozenset()
    """Empty: all ranks."""
    attempt: int | None = None
    """None: all attempts."""
    tail: int | None = None
    """The number of last lines of each rank in each attempt; None: all lines."""

    def has(self, attempt: int | None, ranks: Iterable[int]) -> bool:
        """Whether lines of any of these ranks in this attempt are wanted."""
        if self.attempt is not None and attempt != self.attempt:
            return False
        return not self.ranks or not self.ranks.isdisjoint(ranks)

    def of(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The wanted lines among these, without regard to `tail`."""
        return (line for line in lines if self.has(line.attempt, [line.rank]))

    def last(self, lines: Iterable[Line]) -> list[Line]:
        """The last `tail` wanted lines of each rank in each attempt, in their order."""
        if self.tail is None:
            return list(self.of(lines))
        # Only these are kept in memory: a rank may have printed gigabytes.
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
    """State parsed from a worker's lines so far."""

    worker: str
    attempt: int | None = None
    """The attempt of the newest lines."""
    first: int | None = None
    """The first attempt whose start was among the lines."""
    open: set[int] = field(default_factory=set)
    """Ranks that printed in `attempt` and whose end was not printed."""

    def line(self, text: str, time: datetime | None = None) -> Line | None:
        """Parse the next line; None: it is not of a training process."""
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
        """A gap if ranks have not ended by attempt `newest`, once. Call it when no more lines can
        come: a later attempt runs, or the run is over."""
        if self.open and (self.attempt or 0) <= newest:
            yield Gap(attempt=self.attempt, worker=self.worker, text=cut_off(self.open))
            self.open = set()


def cut_off(ranks: set[int]) -> str:
    """The text of the gap after these ranks' output."""
    return (
        f"the output of {named(ranks)} ends here: the worker was lost, and lines that it had not "
        "sent are missing"
    )


COLORS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green")


class Printer:
    """Prints lines and gaps to stdout, and masks secrets of our environment; with colors on a
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
