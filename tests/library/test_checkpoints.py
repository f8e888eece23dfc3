from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trainrun
from tests.support.eventually import eventually
from trainrun._common.tree import walk

if TYPE_CHECKING:
    from tests.support.agent_stand_in import AgentStandIn

URI = "s3://bucket/runs/digits/checkpoints/step-000000120-attempt-1"


@pytest.fixture
def stored(agent: AgentStandIn, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An attempt that resumes; returns the folder that the agent hands out."""
    given = {"attempt": 1, "step": 120, "uri": URI}
    monkeypatch.setenv("TRAINRUN_CHECKPOINT", json.dumps(given))
    folder = agent.folder / "cache"
    (folder / "shards").mkdir(parents=True)
    (folder / "model.pt").write_text("weights")
    (folder / "shards" / "a").write_text("1")
    agent.replies["checkpoint"] = lambda message: {"path": str(folder), "metrics": {}, "step": 120}
    return folder


def resume_point() -> trainrun.Checkpoint:
    checkpoint = trainrun.get_checkpoint()
    assert checkpoint is not None
    return checkpoint


def test_a_run_from_nothing_has_no_checkpoint(agent: AgentStandIn) -> None:
    assert trainrun.get_checkpoint() is None
    assert trainrun.get_initial_checkpoint() is None


def test_without_an_agent_there_is_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINRUN_CHECKPOINT", json.dumps({"attempt": 1, "step": 1, "uri": "x"}))
    assert trainrun.get_checkpoint() is None


def test_the_resume_point_knows_step_and_place_without_asking(
    agent: AgentStandIn, stored: Path
) -> None:
    checkpoint = resume_point()
    assert (checkpoint.step, checkpoint.path) == (120, URI)
    assert repr(checkpoint) == f"StoredCheckpoint({URI!r})"
    assert agent.messages == []


def test_its_metrics_and_metadata_are_read_once_when_asked_for(
    agent: AgentStandIn, stored: Path
) -> None:
    agent.replies["checkpoint-info"] = lambda message: {
        "metrics": {"loss": {"float": "NaN"}, "accuracy": 0.5},
        "metadata": {"shards": [1, 2]},
        "step": 120,
        "attempt": 1,
    }
    checkpoint = resume_point()
    checkpoint.metadata["shards"].append(3)  # the caller's own copy
    assert checkpoint.metadata == {"shards": [1, 2]}
    assert checkpoint.metrics["accuracy"] == 0.5
    assert math.isnan(float(checkpoint.metrics["loss"]))
    assert len(agent.of_type("checkpoint-info")) == 1


def test_as_directory_is_the_shared_download(agent: AgentStandIn, stored: Path) -> None:
    with resume_point().as_directory() as directory:
        assert directory == str(stored)
    assert stored.exists()
    assert agent.of_type("checkpoint") == [{"type": "checkpoint", "rank": None}]


def test_as_directory_can_be_one_ranks_files(agent: AgentStandIn, stored: Path) -> None:
    with resume_point().as_directory(rank=3):
        pass
    assert agent.of_type("checkpoint") == [{"type": "checkpoint", "rank": 3}]


def test_to_directory_is_a_copy_of_ones_own(
    agent: AgentStandIn, stored: Path, tmp_path: Path
) -> None:
    mine = resume_point().to_directory(tmp_path / "a" / "b")
    assert mine == str(tmp_path / "a" / "b")
    (Path(mine) / "model.pt").write_text("changed")
    assert (Path(mine) / "shards" / "a").read_text() == "1"
    assert (stored / "model.pt").read_text() == "weights"


def test_to_directory_moves_aside_what_is_no_part_of_it(
    agent: AgentStandIn, stored: Path, tmp_path: Path
) -> None:
    (tmp_path / "a" / "shards").mkdir(parents=True)
    (tmp_path / "a" / "model.pt").write_text("older")
    (tmp_path / "a" / "other").write_text("mine")
    resume_point().to_directory(tmp_path / "a")
    assert walk(tmp_path / "a") == walk(stored)
    aside = tmp_path / ".a.trainrun" / "before-attempt-1"
    assert (aside / "model.pt").read_text() == "older"
    assert (aside / "other").read_text() == "mine"


def test_to_directory_makes_a_temporary_one(
    agent: AgentStandIn, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = Path(resume_point().to_directory())
    assert mine.parent == tmp_path
    assert (mine / "model.pt").read_text() == "weights"


def test_damage_is_an_error_with_the_agents_reason(agent: AgentStandIn, stored: Path) -> None:
    reason = f"{URI}/worker-00000/model.pt has 5 bytes, its marker says 7"
    agent.replies["checkpoint"] = lambda message: {"error": reason}
    with pytest.raises(RuntimeError, match="has 5 bytes, its marker says 7"):
        with resume_point().as_directory():
            pass


def test_an_agent_that_dies_meanwhile_is_an_error(agent: AgentStandIn, stored: Path) -> None:
    def die(message: object) -> dict[str, object]:
        agent.die()
        return {}

    agent.replies["checkpoint"] = die
    with pytest.raises(trainrun.AgentLost, match="the agent of this worker has exited"):
        with resume_point().as_directory():
            pass


def test_it_stays_the_resume_point_after_newer_reports(
    agent: AgentStandIn, stored: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.pt").write_text("newer")
    trainrun.report(step=121, checkpoint=tmp_path / "mine")
    assert resume_point().step == 120


def test_the_resume_point_cannot_be_reported_again(agent: AgentStandIn, stored: Path) -> None:
    with pytest.raises(ValueError, match=r"already belongs to this run and cannot be reported"):
        trainrun.report(step=121, checkpoint=resume_point())


def test_the_initial_checkpoint_is_asked_for_as_a_whole(
    agent: AgentStandIn, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINRUN_INITIAL", "s3://bucket/pretrained")
    agent.replies["initial"] = lambda message: {"path": str(stored)}
    initial = trainrun.get_initial_checkpoint()
    assert initial is not None
    assert (initial.path, initial.metrics) == ("s3://bucket/pretrained", {})
    assert initial.metadata == {}
    with initial.as_directory() as directory:
        assert (Path(directory) / "model.pt").read_text() == "weights"
    with pytest.raises(ValueError, match="has no ranks; leave out rank="):
        with initial.as_directory(rank=0):
            pass
    with pytest.raises(ValueError, match="has no step"):
        _ = initial.step
    with pytest.raises(ValueError, match="is in object storage: copy it with to_directory"):
        trainrun.report(step=1, checkpoint=initial)


def test_a_local_checkpoint_is_its_directory(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("weights")
    checkpoint = trainrun.Checkpoint.from_directory(tmp_path)
    assert checkpoint.path == str(tmp_path)
    assert checkpoint.metrics == {}
    with checkpoint.as_directory() as directory:
        assert directory == str(tmp_path)
    with pytest.raises(ValueError, match="has no step: it does not come from this run"):
        _ = checkpoint.step
    with pytest.raises(ValueError, match="is a local directory, which has no ranks"):
        with checkpoint.as_directory(rank=1):
            pass


def test_a_local_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone is not a directory on this machine"):
        trainrun.Checkpoint(tmp_path / "gone").to_directory()


# The loop of Ray Train's fault-tolerance guide, in its idiom, with a step.
RAY_LOOP = """
import os, tempfile
import trainrun as ray


def train_fn_per_worker(config):
    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            with open(os.path.join(checkpoint_dir, "model.pt")) as file:
                start = int(file.read()) + 1

    for epoch in range(start, config["num_epochs"]):
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            if config["save"]:
                with open(os.path.join(temp_checkpoint_dir, "model.pt"), "w") as file:
                    file.write(str(epoch))
            ray.train.report(
                {"loss": 0.1},
                step=epoch,
                checkpoint=ray.train.Checkpoint.from_directory(temp_checkpoint_dir),
            )
"""


def test_the_loop_of_rays_guide_runs_with_other_imports_and_a_step(
    agent: AgentStandIn, stored: Path
) -> None:
    (stored / "model.pt").write_text("1")
    loop: dict[str, object] = {}
    exec(RAY_LOOP, loop)
    loop["train_fn_per_worker"]({"num_epochs": 4, "save": True})  # type: ignore[operator]
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert [(m["step"], m["files"]) for m in agent.of_type("report")] == [
        (2, "step-000000000002"),
        (3, "step-000000000003"),
    ]
    assert (agent.staging / "step-000000000003" / "model.pt").read_text() == "3"


def test_ranks_that_report_the_empty_temporary_directory_are_fine(
    agent: AgentStandIn, stored: Path
) -> None:
    (stored / "model.pt").write_text("1")
    loop: dict[str, object] = {}
    exec(RAY_LOOP, loop)
    loop["train_fn_per_worker"]({"num_epochs": 4, "save": False})  # type: ignore[operator]
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert [m["files"] for m in agent.of_type("report")] == [None, None]
