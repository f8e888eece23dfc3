"""Whether the processes of a worker train together, as its agent sees it.

Layer: contract; a part of its state.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Whether the processes of a worker meet those of others, as far as its agent has seen."""

    known: bool = False
    """Some process has opened the master port, or has spoken to its agent: it knows its rank."""
    elsewhere: bool = False
    """A rank is connected to others by a port of its own."""
    placed: bool = False
    """A rank has asked the library for its place."""
    leaders: tuple[int, ...] = ()
    """Ranks whose process has started a rank 0 of another group, as a launcher does."""
    launcher: str = ""
    """The program that did."""
    mpi: bool = False
    """Each rank has loaded MPI, without a launcher of MPI: it is rank 0 of 1."""
