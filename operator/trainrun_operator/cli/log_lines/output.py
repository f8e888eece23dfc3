"""The output of one worker, as its agent prints it: which line is of which attempt and rank?

Layer: cli; pure. An agent says when it starts an attempt and how each process ended; lines of
processes begin with their rank, so no script can say so in its place. A worker whose output ends
without that was lost, and what it had not sent is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from trainrun_operator.cli.log_lines.line import Gap, Line

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


def named(ranks: set[int]) -> str:
    """`rank 3`, `ranks 0, 1, 2 and 5 more`."""
    first = sorted(ranks)[:8]
    more = f" and {len(ranks) - len(first)} more" if len(ranks) > len(first) else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, first))}{more}"
