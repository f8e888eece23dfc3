"""Faults on demand, for demonstrations and tests: a rank that dies at a step.

Layer: agent, pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainrun.agent.config import Fault


class Faults:
    """Each fault strikes once in the life of the agent, however often its step comes again."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._left = list(faults)

    def strikes(self, rank: int, step: int) -> bool:
        """Say whether the process of `rank`, which reports `step`, is to be killed now."""
        for fault in self._left:
            if fault.rank == rank and step >= fault.step:
                self._left.remove(fault)
                return True
        return False
