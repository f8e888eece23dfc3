"""A rank that computes longer than its peers, which wait for it in a real all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[LocalRuns]:
    made = LocalRuns(folder=tmp_path, script=str(Path(__file__).parent / "uneven.py"), replicas=3)
    yield made
    made.close()


@pytest.mark.case("processes", "A rank is slower than its peers for some minutes")
@pytest.mark.slow
@pytest.mark.rare("tests/core/run/test_stragglers.py")
def test_the_rank_that_others_wait_for_is_named_and_nothing_is_ended(runs: LocalRuns) -> None:
    run = runs.start()
    told = run.wait_for_event("Straggler")
    (runs.journal / "go").touch()
    ended = run.end()
    assert (ended.code, ended.incidents) == (0, [])
    assert told["type"] == "Warning"
    assert told["message"].startswith("rank 1 (worker tiny-1-1 on node ")
    assert "computes, or waits for a CPU, at least " in told["message"]
    assert "times as long in each step as its peers, which seem to wait for it" in told["message"]
    assert [e["reason"] for e in ended.history].count("Straggler") == 1
