"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def eventually(condition: Callable[[], object], *, timeout: float = 60.0, what: str = "") -> None:
    """Return once the condition is true; fail with `what` after `timeout` seconds, which are many
    where the product promises none: other tests share the machine."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or condition}"
        time.sleep(0.005)
