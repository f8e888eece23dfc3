from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[LocalRuns]:
    """One TrainRun named `tiny` with two workers; whatever is left of it is ended."""
    runs = LocalRuns(folder=tmp_path)
    yield runs
    runs.close()
