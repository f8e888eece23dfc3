"""The identity of a checkpoint: a pair of attempt and step, and its name.

Layer: contract, leaf.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"step-(\d{9,})-attempt-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CheckpointId:
    """Identifies a checkpoint of a run; the order by (attempt, step) also means "newer than"."""

    attempt: int
    step: int

    @property
    def name(self) -> str:
        """The checkpoint's folder, `step-000001200-attempt-3`."""
        return f"step-{self.step:09d}-attempt-{self.attempt}"

    @staticmethod
    def named(name: str) -> CheckpointId | None:
        """The checkpoint with this name; None for any other text."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        checkpoint = CheckpointId(attempt=int(match[2]), step=int(match[1]))
        return checkpoint if checkpoint.name == name else None
