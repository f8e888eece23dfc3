"""Long sections of a script, in which no step ends."""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun._process import session
from trainrun.contract import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count(1)
"""Numbers of long sections."""


@contextmanager
def long_section(name: str, *, timeout: float | timedelta) -> Iterator[None]:
    """Declare a long section of the script in which no step ends.

        with trainrun.long_section("evaluate", timeout=1800):
            evaluate(model)

    While any rank is in one, `health.progressTimeout` and `health.firstStepTimeout` do not apply to
    the run; they restart when it ends. If one of them is set, a rank that is still in the section
    after `timeout` counts as hung. Sections may be nested. Without an agent it has no effect.

    Args:
        name: Its name in messages, at most 100 characters.
        timeout: Maximum duration, in seconds or as a timedelta.

    Raises:
        TypeError: The name is not a string, or the timeout is not a number.
        ValueError: The name is empty or too long, or the timeout is not above 0 or not finite.
    """
    begun = messages.SectionBegun(
        number=next(_numbers), name=_checked_name(name), seconds=_checked_seconds(timeout)
    )
    connection = session.current().connection
    if connection is not None:
        connection.send_surely(messages.line_of(begun))
    try:
        yield
    finally:
        if connection is not None:
            connection.send_surely(messages.line_of(messages.SectionEnded(number=begun.number)))


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"long_section(): name must be a string, got {type(name).__name__}")
    if not 0 < len(name) <= messages.SECTION_WIDTH:
        raise ValueError(
            f"long_section(): name must have 1 to {messages.SECTION_WIDTH} characters, "
            f"got {len(name)}"
        )
    return name


def _checked_seconds(timeout: object) -> float:
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(
            f"long_section(): timeout must be a number of seconds or a timedelta, got "
            f"{timeout!r:.80}"
        )
    if not (math.isfinite(timeout) and 0 < timeout <= messages.LONGEST_SECTION):
        raise ValueError(f"long_section(): timeout must be above 0 and finite, got {timeout!r:.80}")
    return float(timeout)
