from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.local.local_runs import Ended, LocalRuns
from trainrun_operator.api.loading import load_trainrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks"


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], Ended]:
    """Run one of the examples, all of which share a folder for data."""

    def runs(name: str) -> Ended:
        path = EXAMPLE / f"{name}.yaml"
        spec = load_trainrun(path.read_text(), source=str(path)).spec
        folder = tmp_path / name
        folder.mkdir()
        made = LocalRuns(
            folder=folder,
            replicas=spec.workers.replicas,
            launcher=spec.workers.template.spec.training.command[:-1],
            script=str(EXAMPLE / spec.workers.template.spec.training.command[-1]),
            env={"DATA": str(tmp_path / "data")},
        )
        try:
            ended = made.run(json_lines=False)
        finally:
            made.close()
        assert ended.code == 0, ended.out[-3000:]
        assert "failures 0/" in ended.out
        return ended

    return runs


def test_what_tasks_prepare_a_run_trains_on_and_evaluates(run: Callable[[str], Ended]) -> None:
    assert "16 shards are in" in run("prepare").out
    found = re.search(r"(\d+) of 450 unseen digits are read right", run("train").out)
    assert found
    assert int(found[1]) > 380


def test_the_run_of_the_first_example_is_one() -> None:
    path = EXAMPLE / "retries.yaml"
    spec = load_trainrun(path.read_text(), source=str(path)).spec
    assert spec.workers.template.spec.training.command == ("python", "retries.py")
