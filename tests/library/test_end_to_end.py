"""Scripts under the real agent, led by `trainrun run`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.local.local_runs import Ended, LocalRuns

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[LocalRuns]:
    storage = tmp_path / "storage"
    runs = LocalRuns(
        folder=tmp_path,
        spec={"failurePolicy": {"maxFailures": 1}},
        env={"OUT": str(tmp_path), "STORAGE": str(storage)},
    )
    yield runs
    runs.close()


def run(runs: LocalRuns, script: str, *options: str) -> Ended:
    runs.script = str(SCRIPTS / script)
    return runs.run(*options)


def committed_steps(runs: LocalRuns) -> list[int]:
    manifests = (runs.storage / "tiny" / "checkpoints").glob("*/manifest.json")
    return sorted(int(path.parent.name.split("-")[1]) for path in manifests)


def test_the_loop_of_rays_guide_trains_to_its_end(runs: LocalRuns) -> None:
    ended = run(runs, "ray_loop.py")
    assert ended.code == 0, ended.out
    assert ended.status["checkpoint"]["step"] == 7
    assert committed_steps(runs)[-1] == 7


def test_the_loop_of_rays_guide_resumes_after_a_kill(runs: LocalRuns) -> None:
    ended = run(runs, "ray_loop.py", "--fault", "kill rank=1 step=6")
    assert ended.code == 0, ended.out
    assert [incident["cause"] for incident in ended.incidents] == ["AppError"]
    resumed = ended.incidents[0]["resumedFrom"]["step"]
    assert f"resumed at {resumed + 1}, loss was {1 / (resumed + 1)}" in ended.out
    assert committed_steps(runs)[-1] == 7


def test_ranks_read_everybodys_files_or_their_own(runs: LocalRuns) -> None:
    ended = run(runs, "own_files.py")
    assert ended.code == 0, ended.out
    for rank in range(2):
        assert (runs.folder / f"seen-{rank}").read_text() == (
            f"[['shard-0', 'shard-1'], ['shard-{rank}']] weights of {rank}"
        )
    assert "ValueError: a crash after the commit" in ended.incidents[0]["message"]


def test_a_script_whose_rank_0_saves_everything_needs_no_other_rank(runs: LocalRuns) -> None:
    ended = run(runs, "rank_0_saves.py")
    assert ended.code == 0, ended.out
    assert committed_steps(runs) == [1, 2, 3]


def test_a_run_may_begin_from_pretrained_weights(runs: LocalRuns) -> None:
    pretrained = runs.folder / "pretrained"
    pretrained.mkdir()
    (pretrained / "model").write_text("pretrained weights")
    runs.spec["checkpoint"] = {"initialFrom": pretrained.as_uri()}
    ended = run(runs, "from_initial.py")
    assert ended.code == 0, ended.out
    assert (runs.folder / "seen").read_text() == "pretrained weights"


def test_no_checkpoint_lacks_files_that_follow_the_report_of_their_step(runs: LocalRuns) -> None:
    ended = run(runs, "hooks.py", "--fault", "kill rank=1 step=5")
    assert ended.code == 0, ended.out
    assert [incident["cause"] for incident in ended.incidents] == ["AppError"]
    assert re.findall(r"with (\[.*\])", ended.out) == ["['rank-0', 'rank-1']"] * 2
    assert committed_steps(runs)[-1] == 8
    for manifest in runs.storage.glob("**/manifest.json"):
        files = json.loads(manifest.read_text())["files"]
        assert [file["name"] for file in files] == ["rank-0", "rank-1"]
