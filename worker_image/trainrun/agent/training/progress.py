"""What the ranks of an attempt have reported: steps, metrics, and signs of a common mistake.

Layer: agent, pure bookkeeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainrun.contract.agent_state import Problem
from trainrun.contract.checkpoint_id import CheckpointId


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """Of one attempt."""

    ranks: tuple[int, ...]
    resume: CheckpointId | None
    metrics: Mapping[str, object] = field(default_factory=dict)
    """Last metrics of the lowest rank that reports any."""
    first_report: float | None = None
    """When the first report came."""
    last_report: float | None = None
    """When the newest report came."""
    finished: set[int] = field(default_factory=set)
    """Ranks that called `trainrun.finish()`."""
    asked_for_checkpoint: bool = False
    """A rank called `trainrun.get_checkpoint()`."""
    ignored: Problem | None = None
    """A rank began below the step that it was handed."""
    _metrics_rank: int | None = None
    _heard: set[int] = field(default_factory=set)

    def report(self, rank: int, step: int, metrics: Mapping[str, object], now: float) -> None:
        """Take a report into account."""
        if self.first_report is None:
            self.first_report = now
        self.last_report = now
        if rank not in self._heard:
            self._heard.add(rank)
            self._look_for_ignored_resume(rank, step)
        if metrics and (self._metrics_rank is None or rank <= self._metrics_rank):
            self.metrics, self._metrics_rank = metrics, rank

    @property
    def all_finished(self) -> bool:
        """Every rank said that the training is complete."""
        return self.finished.issuperset(self.ranks)

    def _look_for_ignored_resume(self, rank: int, step: int) -> None:
        if self.resume is None or step >= self.resume.step or self.ignored is not None:
            return
        self.ignored = Problem(
            type="ResumeIgnored",
            reason="StartedBelowResumeStep",
            message=f"the first report of rank {rank} is step {step}, but it was handed the "
            f"checkpoint of step {self.resume.step}: the script starts over. Load the checkpoint "
            "with trainrun.get_checkpoint() and go on from its step + 1",
        )
