"""Where the ranks of a gang stood that did not move, as lines: the same for terminal and page.

Layer: cli; pure. The records are what agents have stored (docs/hangs.md); nobody vouches for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainrun_operator.cli.wording import printable

if TYPE_CHECKING:
    from trainrun.checkpoint import HangRecord

Rank = Mapping[str, Any]

MOST_RANKS = 64
"""Ranks whose stacks are shown; a large gang stands in few places."""
MOST_LINES = 60
"""Lines of the stacks of one rank."""


def ranks_of(records: Iterable[HangRecord]) -> tuple[Rank, ...]:
    """All ranks in order, without what only machines read."""
    found = [
        {name: value for name, value in rank.items() if name != "flightRecorder"}
        | {"flightRecorder": _file(rank.get("flightRecorder")), "worker": record.worker}
        for record in records
        for rank in record.ranks
    ]
    return tuple(sorted(found, key=lambda rank: int(rank.get("rank", 0))))


def stack_lines(ranks: Iterable[Rank]) -> Iterator[str]:
    """A line per rank, and its stacks below."""
    shown = tuple(ranks)
    for rank in shown[:MOST_RANKS]:
        yield _head(rank)
        lines = str(rank.get("stacks") or "").splitlines()
        yield from (f"  {printable(line)}" for line in lines[:MOST_LINES])
        if len(lines) > MOST_LINES:
            yield f"  ({len(lines) - MOST_LINES} more lines in the store)"
    if len(shown) > MOST_RANKS:
        yield f"({len(shown) - MOST_RANKS} more ranks in the store)"


def _head(rank: Rank) -> str:
    parts = [f"step {rank['step']}" if rank.get("step") is not None else "no step"]
    parts += [f"state {rank['state']}"] if rank.get("state") else []
    parts += [f"{rank['cpu']} cores"] if rank.get("cpu") is not None else []
    parts += [str(rank["kernel"])] if rank.get("kernel") else []
    parts += [f"by {rank['readBy']}"] if rank.get("readBy") else []
    parts += [str(rank["remark"])] if rank.get("remark") and not rank.get("readBy") else []
    parts += [f"flight recorder: {rank['flightRecorder']}"] if rank.get("flightRecorder") else []
    return printable(f"rank {rank.get('rank')}: {', '.join(parts)}")


def _file(recorder: object) -> str | None:
    return str(recorder.get("file")) if isinstance(recorder, Mapping) else None
