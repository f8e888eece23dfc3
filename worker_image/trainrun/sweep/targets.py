"""What the operator asks of the clerk: targets, never steps, so any of them may be lost or doubled.

Layer: pure; a message, like those of `trainrun.contract`.
"""

from __future__ import annotations

from dataclasses import dataclass

# Not for type checkers alone: they are read from messages by these types.
from trainrun.sweep.records import End, SweepSession


@dataclass(frozen=True)
class EndedRun:
    """The run of one opening of a trial has ended."""

    trial: int
    opening: int
    succeeded: bool
    reason: str = ""
    """Why it failed: the reason of its verdict."""
    message: str = ""
    restarts: int = 0
    attempt: int = 0
    """Its last one."""
    resumed: int = 0
    """The step that this one went on from."""
    seq: int = 0
    """The last report of that attempt; it is told once the log has it."""
    metrics: tuple[str, ...] = ()
    """Names of some metrics that it has reported: the objective may have another one there."""


@dataclass(frozen=True)
class Targets:
    """Everything that the log is to hold, as far as it does not yet."""

    session: SweepSession
    after: int = 0
    """Sessions that were known when this one was ordered: it is recorded only as the next one. An
    order that comes late must not end a session that is newer."""
    asked: int = 0
    """Trials that are to have parameters."""
    ended: tuple[EndedRun, ...] = ()
    stopped: tuple[int, ...] = ()
    """Trials that the user wants to end."""
    end: End | None = None
    cleared: tuple[int, ...] = ()
    """Trials whose checkpoints are not needed any more, and whose runs are gone."""
    amend: int = 0
    """Position of the End to take back; 0: none."""
