"""A sweep of its own for each test, ended afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.sweeping.local_sweeps import Sweeps


@pytest.fixture
def sweeps(tmp_path: Path) -> Iterator[Sweeps]:
    made = Sweeps(tmp_path)
    yield made
    made.close()
