"""How often progress is heard and looked at: less often as the fleet grows.

Layer: runtime; pure. Invariants: what agents that train well cost the operator is bounded by how
often they poll, however many there are; a small fleet tells its progress each second. News are none
of this: they are told and looked at at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainrun.contract.ages import changed
from trainrun.contract.answer import Answer
from trainrun_operator.runtime.wakeup import PROGRESS_INTERVAL

FLEET = 200
"""Agents up to which those whose progress is the run's tell it each second. Others are asked so
seldom that all of them together make 20 heartbeats a second, or poll. In gangs of ten that is 20
passes a second, too: with 2,000 agents each run's in ten, and a status in the cluster shows
progress every twenty."""
LONGEST = 10.0
"""Seconds between two looks at the progress of a run, however large the fleet is."""


@dataclass(slots=True, kw_only=True)
class Cadence:
    """Of all runs of an operator."""

    agents: int = 0
    """How many there are."""

    @property
    def interval(self) -> float:
        """Seconds between two passes over a run of which only steps and metrics have changed."""
        return min(max(self.agents / FLEET, PROGRESS_INTERVAL), LONGEST)

    def paced(self, answer: Answer) -> Answer:
        """The answer, asking for progress as often as the fleet allows; at least with each poll."""
        stretched = answer.progress * self.agents / FLEET
        return changed(answer, progress=min(max(stretched, PROGRESS_INTERVAL), answer.poll))
