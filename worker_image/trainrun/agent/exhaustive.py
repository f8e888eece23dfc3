"""`assert_never` for Python 3.10, whose `typing` has none.

Layer: agent, leaf.
"""

from __future__ import annotations

from typing import NoReturn


def assert_never(value: NoReturn) -> NoReturn:
    """Let the type checker prove a match exhaustive; raises AssertionError if it was not."""
    raise AssertionError(f"unexpected value: {value!r}")
