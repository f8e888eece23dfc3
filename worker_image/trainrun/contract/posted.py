"""How far a training is, as its framework has posted it to the agent without a word of the script.

Layer: contract, leaf. For display alone, and where the script itself reports nothing: a step that
was posted is none that was reported, whatever it says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What was posted in one attempt, up to now."""

    step: int | None = None
    """The step that it is at."""
    total: int | None = None
    """The step at which it ends."""
    percent: int | None = None
    """How much of it is done, 0 to 100."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the newest post, JSON-safe (see `contract.metrics`)."""
    remaining: float | None = None
    """Seconds from the newest post until it ends, if it goes on as in this attempt so far."""
