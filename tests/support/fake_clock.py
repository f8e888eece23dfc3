"""Time that passes when the test says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FakeClock:
    """A monotonic clock that only a test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
