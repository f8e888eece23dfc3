"""What a simulated worker holds for the store in one attempt: which steps, and how far each is.

Layer: simulation; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.contract.staged_parts import StagedStep

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId

ROOM = 5
"""With uploadEvery: complete steps on a disk that make it full."""


@dataclass(slots=True, kw_only=True)
class SimStaging:
    """Empty when an attempt is started."""

    steps: dict[int, StagedStep] = field(default_factory=dict)
    """Those that it takes part in and that are not committed yet."""
    dropped: set[int] = field(default_factory=set)
    """Those that will never be."""
    committed: CheckpointId | None = None
    """The newest of the attempt."""
    uploads_only: tuple[int, ...] | None = None
    """While an order says so: no other steps are uploaded."""
    keeps: bool = False
    """What is not due stays on its disk (uploadEvery)."""
    commit_at: float = 0.0
    """When it was committed."""
    since: dict[int, float] = field(default_factory=dict)
    """When its steps were complete."""

    def lacks(self, step: int) -> bool:
        """A worker without files is to join this step, for which others brought some."""
        return step not in self.steps and self._wants(step)

    def join(self, step: int) -> None:
        """Without files."""
        self.steps[step] = StagedStep(step=step)

    def bring(self, rank: int, step: int, *, after_save: bool) -> None:
        """A rank has files for a step; `after_save`: it was asked for them."""
        if not self._wants(step):
            return
        entry = self.steps.setdefault(step, StagedStep(step=step))
        ranks = tuple(sorted({*entry.ranks, rank}))
        self.steps[step] = replace(entry, ranks=ranks, after_save=entry.after_save or after_save)

    def completed(self, passed: Callable[[int], bool], now: float) -> list[int]:
        """Steps for which nothing more comes since `passed` says so; each is told once. Of a disk
        that they make full the oldest one, too."""
        found = [step for step, entry in self.steps.items() if not entry.complete and passed(step)]
        for step in found:
            self.steps[step] = replace(self.steps[step], complete=True)
            self.since[step] = now
        oldest = self.overflow if found else None
        return found if oldest is None else [oldest, *found]

    def described(self, now: float) -> tuple[StagedStep, ...]:
        """As a heartbeat carries them."""
        return tuple(
            replace(entry, age=now - self.since.get(step, now))
            for step, entry in sorted(self.steps.items())
        )

    def order(self, steps: Iterable[int]) -> list[int]:
        """These are due; returns those that were not."""
        new = [step for step in steps if step in self.steps and not self.steps[step].due]
        for step in new:
            self.steps[step] = replace(self.steps[step], due=True)
        return new

    @property
    def overflow(self) -> int | None:
        """The oldest step of a disk that is full, since no operator says what is not needed."""
        on_disk = sorted(s for s, e in self.steps.items() if e.complete and not e.uploaded)
        return on_disk[0] if self.keeps and len(on_disk) >= ROOM else None

    def flush(self, steps: tuple[int, ...]) -> list[int]:
        """Upload only these; returns those whose upload has not begun."""
        before, self.uploads_only = self.uploads_only, steps
        if before is None and not self.keeps:
            return []
        return [step for step in steps if step in self.steps and step not in (before or ())]

    def uploads(self, step: int) -> bool:
        """Whether its part of this step is to be uploaded now."""
        if step not in self.steps or self.uploads_only is not None:
            return step in self.steps and step in (self.uploads_only or ())
        return not self.keeps or self.steps[step].due or step == self.overflow

    def uploaded(self, step: int) -> None:
        """Its part is in the store."""
        if step in self.steps:
            self.steps[step] = replace(self.steps[step], uploaded=True)

    def owes(self, steps: Iterable[int]) -> bool:
        """Whether a part of these has still to be uploaded."""
        return any(step in self.steps and not self.steps[step].uploaded for step in steps)

    def drop(self, steps: Iterable[int]) -> None:
        """These will never be committed."""
        for step in steps:
            if self.steps.pop(step, None) is not None:
                self.dropped.add(step)

    def saw_commit(self, checkpoint: CheckpointId, now: float) -> None:
        """A manifest of its attempt is in the store."""
        if self.committed is None or self.committed < checkpoint:
            self.committed, self.commit_at = checkpoint, now
            self.steps = {
                s: e for s, e in self.steps.items() if s > checkpoint.step or e.after_save
            }

    def _wants(self, step: int) -> bool:
        over = self.committed is not None and self.committed.step >= step
        return not over and step not in self.dropped
