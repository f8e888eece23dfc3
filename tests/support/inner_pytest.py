"""A pytest that a test starts."""

from __future__ import annotations

import os

from tests.support.first_life import VARIABLE as FIRST_LIFE


def its_environment() -> dict[str, str]:
    """Ours, without what would make it take itself for a part of the run outside."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k != FIRST_LIFE}
