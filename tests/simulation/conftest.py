"""For tests with very many lives."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def unmeasured() -> Iterator[None]:
    """Measuring coverage would triple the time of so many lives, and tests/core covers the core.

    The mark `no_cover` does nothing in the processes of pytest-xdist (pytest-cov 7.1).
    """
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)
