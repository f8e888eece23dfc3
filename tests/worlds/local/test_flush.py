"""A process dies right after every rank has reported: that step is resumed, from a slow store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.flush import kill_and_look
from tests.support.s3_server import xattr_directory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.case(
    "storage", "A process dies right after every rank reported a checkpoint", counted="its cause"
)
@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.whole_runs
def test_a_step_that_all_ranks_had_reported_is_resumed(tmp_path: Path) -> None:
    folder = xattr_directory(tmp_path)
    assert kill_and_look(folder, rounds=2, runs=1, put_seconds=1.0) == [[]]
