from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.local_runs import LocalRuns
from trainrun_operator.worlds.local.leftovers import kill_all


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[LocalRuns]:
    """One TrainRun named `tiny` with two workers; whatever is left of it is ended."""
    yield LocalRuns(folder=tmp_path)
    kill_all(tmp_path / "storage" / ".trainrun" / "tiny" / "nodes")
