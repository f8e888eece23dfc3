"""Waiting for what may never come back: a file of a file system that does not answer.

Layer: agent, leaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T | None:
    """What `work` returns; None where it takes longer. Its thread is left to itself then."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()), name="bounded", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None
