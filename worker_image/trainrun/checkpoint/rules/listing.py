"""What a listing of a store says of an object: all that the rules go by.

Layer: checkpoint/rules, leaf.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One row of a listing."""

    key: str
    """Relative to the store's URI."""
    size: int
    """Bytes."""
    modified: float = 0.0
    """Seconds since the epoch by the store's clock: shown to people, never decided upon."""
    tag: str = ""
    """Changes when the content does (S3: ETag); tells a cached copy of a foreign file as old."""
