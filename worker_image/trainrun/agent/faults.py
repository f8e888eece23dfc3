"""Faults on demand, for rehearsals, demonstrations and tests: kill a rank at a step.

Layer: agent. A fault has struck once it has killed its rank; if the process ended by itself first,
the fault remains for the next attempt.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainrun.contract import local_files
from trainrun.contract.agent_config import KillFault, KillMoment


class Faults:
    """Each fault strikes once in the life of the run, however often its step is repeated."""

    def __init__(self, faults: Iterable[KillFault]) -> None:
        self._left = list(faults)
        self._struck: dict[int, KillFault] = {}
        """By the rank whose end is awaited."""

    def strikes(self, rank: int, step: int, at: KillMoment = "report") -> bool:
        """Whether to kill the process of `rank`, which has reached this moment of `step`, now."""
        if rank in self._struck:
            return False  # a message that it sent before it died
        due = (f for f in self._left if (f.rank, f.at) == (rank, at) and step >= f.step)
        fault = next((fault for fault in due if local_files.make_mark(fault.mark)), None)
        if fault is None:
            return False
        self._struck[rank] = fault
        return True

    def ended(self, rank: int, signal: int | None) -> None:
        """Record the end of a process."""
        fault = self._struck.pop(rank, None)
        if fault is not None and signal != 9:
            local_files.take_back_mark(fault.mark)
