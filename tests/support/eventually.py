"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHARE = 9
"""A check pauses so many times as long as it took: what asks a server or starts a program takes a
tenth of a core. Such a pause is 5 ms to half a second."""


def eventually(condition: Callable[[], object], *, timeout: float = 60.0, what: str = "") -> None:
    """Return once the condition is true; fail with `what` after `timeout` seconds, which are many
    where the product promises none: other tests share the machine."""
    deadline = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"not within {timeout} s: {what or condition}"
        time.sleep(min(max(0.005, SHARE * (now - asked)), 0.5))
