"""How large what two sides exchange may be, and which scalars are taken from the other one.

Layer: contract, leaf.
"""

from __future__ import annotations

import math
from typing import Any

from trainrun.text import cleaned

LARGEST_HEARTBEAT = 256 * 1024
"""Bytes of an `AgentState` as JSON: an agent sends no more, an operator takes no more."""
LARGEST_STORY_ENTRY = 16 * 1024
"""Bytes of what an agent stores of the run's story at once."""
LARGEST_INTEGER = 2**53
"""Of which every reader of JSON can tell the next one."""
LARGEST_NUMBER = 1e10
"""Of seconds: 300 years."""


def checked(value: Any) -> Any:
    """A scalar that somebody sent: a text cleaned, a number as it is. Raises ValueError, saying
    what was expected, for a number that nobody can calculate with."""
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= LARGEST_NUMBER):
        raise ValueError(f"a finite number of seconds up to {LARGEST_NUMBER:.0e}")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError(f"an integer up to {LARGEST_INTEGER}")
    return value
