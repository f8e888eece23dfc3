"""Benchmarks run seldom: what they hand to the product is valid all the same."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from benchmarks import goodput, report
from benchmarks.local_job import run_yaml
from benchmarks.on_cluster.buddies import Savers
from benchmarks.on_cluster.trainers import Trainers
from benchmarks.peers.compare import Start
from benchmarks.race.account import account
from tests.e2e.support.bed import Bed
from trainrun_operator.api.loading import load_trainrun

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("failures", [-1, 3])
def test_the_run_that_peers_are_compared_with_is_valid(tmp_path: Path, failures: int) -> None:
    """It ended with KeyError: 'storage' before the first trial."""
    text = run_yaml(tmp_path / "script.py", tmp_path, ranks=2, max_failures=failures)

    spec = load_trainrun(text, source="run.yaml").spec
    assert spec.workers.replicas == 2
    assert spec.failure_policy.max_failures == failures
    assert spec.storage.uri == f"file://{tmp_path}/storage"


def test_the_run_that_starts_warm_is_valid(tmp_path: Path) -> None:
    text = run_yaml(tmp_path / "script.py", tmp_path, ranks=2, warm=True)

    warm = load_trainrun(text, source="run.yaml").spec.workers.warm_start
    assert warm is not None
    assert warm.preload == ("torch",)


def test_the_run_that_report_is_measured_in_is_valid(tmp_path: Path) -> None:
    places = {"python": "python", "script": "script.py", "result": "result.json"}
    text = report.RUN.format(folder=tmp_path, **places)

    assert load_trainrun(text, source="run.yaml").spec.workers.replicas >= 1


def a_bed(folder: Path) -> Any:
    """One that writes what is applied into a file there."""
    bed = cast("Any", Bed.__new__(Bed))
    bed.namespace = bed.bucket = "bench"
    bed.store = SimpleNamespace(endpoint="http://10.0.0.1:7070")
    bed._apply = lambda run: (folder / "run.json").write_text(json.dumps(run))
    return bed


@pytest.mark.parametrize("warm", [True, False])
def test_the_run_that_is_measured_on_a_cluster_with_torch_is_valid(
    tmp_path: Path, *, warm: bool
) -> None:
    trainers = Trainers.start(a_bed(tmp_path), "warm-0", folder=tmp_path / "shared", warm=warm)

    spec = load_trainrun((tmp_path / "run.json").read_text(), source="run.json").spec
    assert (spec.workers.replicas, spec.workers.warm_start is not None) == (3, warm)
    assert (trainers.folder / "ddp_steps.py").exists()
    for rank in range(3):
        for number, stage in enumerate(("line", "import", "group", "step")):
            (trainers.folder / f"{stage}-1-{rank}").write_text(str(10.0 * number + rank))
    assert trainers.stepped(2) == {"line": 2.0, "import": 12.0, "group": 22.0, "step": 32.0}


def test_the_run_whose_nodes_are_lost_is_valid(tmp_path: Path) -> None:
    savers = Savers.start(a_bed(tmp_path), folder=tmp_path / "shared")

    spec = load_trainrun((tmp_path / "run.json").read_text(), source="run.json").spec
    assert spec.checkpoint.buddy
    for name in ("first-3-0", "first-3-1", "first-4-0"):
        (savers.folder / name).write_text("1.5")
    assert (savers.attempt(), savers.marks("first-3")) == (3, [1.5, 1.5])


def a_start(begun: float, resumed: int, *entries: tuple[float, int] | float) -> Start:
    """Of rank 0: when which step ended, and for how many seconds the step before was saved."""
    steps: list[dict[str, float]] = []
    for entry in entries:
        if isinstance(entry, tuple):
            steps.append({"time": entry[0], "step": entry[1]})
        else:
            steps.append({"time": steps[-1]["time"] + entry, "stalled": entry})
    return Start(rank=0, began={"time": begun, "resumed": resumed, "pid": 1}, steps=steps)


FIRST = a_start(98.0, 0, (100.0, 1), (101.0, 2), 3.0, (105.0, 3), (106.0, 4), (107.0, 5))
SECOND = a_start(112.0, 2, (114.0, 3), (115.0, 4), (116.5, 5), (117.5, 6), (121.0, 9))
"""After step 5 it was killed, and went on from step 2."""


def test_the_parts_of_a_race_sum_to_its_time() -> None:
    found = account([FIRST, SECOND], seconds=18.0)
    assert (found.useful, found.again, found.usual) == (5, 3, 1.0)
    assert (found.restart, found.rework, found.stall) == (6.0, 3.0, 3.0)
    assert found.slower == pytest.approx(18.0 - 5.0 - 3.0 - 6.0 - 3.0)
    both = found + found
    assert (both.seconds, both.useful, both.per_minute) == (36.0, 10, found.per_minute)


def test_what_a_race_that_ends_in_a_restart_has_not_saved_is_not_useful() -> None:
    """Its last process has no step yet."""
    found = account([FIRST, SECOND], seconds=13.0)
    assert (found.useful, found.again, found.restart) == (1, 3, 6.0)


def test_a_process_that_was_killed_before_its_first_step_belongs_to_one_restart() -> None:
    found = account([FIRST, a_start(109.0, 2), SECOND], seconds=18.0)
    assert found == account([FIRST, SECOND], seconds=18.0)


def test_both_sides_of_a_race_are_killed_at_the_same_moments_once_a_minute() -> None:
    struck = goodput.kills(2, 5)
    assert struck == goodput.kills(2, 5) != goodput.kills(1, 5)
    assert [int(second // 60) for second, _ in struck] == [0, 1, 2, 3, 4]
    assert {rank for part in range(9) for _, rank in goodput.kills(part, 5)} == {0, 1}
