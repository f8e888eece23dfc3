"""What `trainrun doctor` finds: one line for each thing that it looks at.

Layer: cli.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Level = Literal["OK", "WARN", "FAIL", "SKIP"]
"""SKIP: it could not be looked at."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    level: Level
    message: str
    """What was found; an error's message may end with its remedy."""
    remedy: str = ""
    """What to do; empty: nothing, or the message says it."""

    def lines(self) -> Iterator[str]:
        """As people read it."""
        yield f"{self.level:4}  {self.name:10}  {self.message}"
        if self.remedy:
            yield f"{'':18}{self.remedy}"
