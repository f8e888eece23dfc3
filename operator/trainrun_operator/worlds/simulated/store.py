"""An object store in memory that keeps the rules of docs/checkpoints.md.

Layer: worlds. It is also the judge: it remembers what was committed when, so that tests can tell
whether a resume point was the right one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainrun.protocol import CheckpointId, Resolution


@dataclass(slots=True)
class StoredCheckpoint:
    """Parts of one checkpoint."""

    parts: set[int] = field(default_factory=set)
    workers: int = 1
    manifest: bool = False
    damaged: bool = False


@dataclass(slots=True)
class SimStore:
    """Checkpoints, attempt claims and the finished mark of one run."""

    available: bool = True
    checkpoints: dict[CheckpointId, StoredCheckpoint] = field(default_factory=dict)
    claims: dict[int, CheckpointId | None] = field(default_factory=dict)
    finished: bool = False
    bad: set[CheckpointId] = field(default_factory=set)

    def put_part(self, checkpoint: CheckpointId, *, slot: int, workers: int) -> None:
        """A worker's files and its done marker."""
        entry = self.checkpoints.setdefault(checkpoint, StoredCheckpoint(workers=workers))
        entry.parts.add(slot)

    def commit(self, checkpoint: CheckpointId) -> bool:
        """Write the manifest if every part is there."""
        entry = self.checkpoints.get(checkpoint)
        if entry is None or len(entry.parts) < entry.workers:
            return False
        entry.manifest = True
        return True

    def fenced(self, checkpoint: CheckpointId) -> bool:
        """A later attempt started from something older."""
        return any(
            attempt > checkpoint.attempt and (resume is None or resume < checkpoint)
            for attempt, resume in self.claims.items()
        )

    def newest(self) -> CheckpointId | None:
        """The greatest complete one that is neither fenced nor set aside."""
        return max(
            (c for c, e in self.checkpoints.items() if self._usable(c, e)),
            default=None,
        )

    def _usable(self, checkpoint: CheckpointId, entry: StoredCheckpoint) -> bool:
        complete = entry.manifest or len(entry.parts) == entry.workers
        return complete and checkpoint not in self.bad and not self.fenced(checkpoint)

    def _has_committed(self) -> bool:
        """Something was committed that no later attempt has left behind."""
        return any(e.manifest and not self.fenced(c) for c, e in self.checkpoints.items())

    def resolve(self, attempt: int) -> Resolution:
        """Claim the resume point of an attempt; the same answer when asked again."""
        highest = max(self.claims, default=0)
        if not self.available:
            return Resolution(attempt=attempt, outcome="Unavailable", message="the store is away")
        if self.finished:
            return Resolution(attempt=attempt, outcome="Finished")
        if attempt in self.claims:
            resume = self.claims[attempt]
        elif attempt <= highest:
            return Resolution(attempt=attempt, outcome="Behind", highest_attempt=highest)
        else:
            resume = self.newest()
            if resume is None and self._has_committed():
                return Resolution(attempt=attempt, outcome="NoGoodCheckpoint", message="none left")
            if resume is not None:
                self.checkpoints[resume].manifest = True
            self.claims[attempt] = resume
        return Resolution(
            attempt=attempt, outcome="Resolved", resume=resume, highest_attempt=max(self.claims)
        )
