"""What an agent tells of the code that its processes run.

Layer: contract, leaf.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """A file that belongs to the code."""

    path: str
    """Absolute, in the container."""
    digest: str
    """Of its content."""
