from __future__ import annotations

import math
import os
import threading
from pathlib import Path

import numpy
import pytest

import trainrun
from tests.support.agent_stand_in import AgentStandIn, Message
from tests.support.eventually import eventually
from tests.support.mounts import mounted
from trainrun._common.tree import TreeEntry
from trainrun._process import session, staging


def directory_with(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_text(content)
    return path


def staged(agent: AgentStandIn, step: int) -> dict[str, str]:
    folder = agent.staging / f"step-{step:012d}"
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_first_message_is_hello_with_rank_and_pid(agent: AgentStandIn) -> None:
    trainrun.report(step=0)
    eventually(lambda: len(agent.messages) == 2)
    hello = dict(agent.messages[0])
    assert hello.pop("imported") >= 0.0
    assert hello.pop("memory") > 1 << 20
    assert hello == {"type": "hello", "rank": 2, "pid": os.getpid()}


def test_a_report_carries_step_and_metrics(agent: AgentStandIn) -> None:
    trainrun.report({"loss": 0.5, "bad": math.nan, "phase": "a"}, step=7)
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report") == [
        {
            "type": "report",
            "step": 7,
            "metrics": {"loss": 0.5, "bad": {"float": "NaN"}, "phase": "a"},
            "files": None,
            "whole": False,
        }
    ]


@pytest.mark.case("script", "A metric is larger than 4 KiB")
def test_a_metric_of_5_mb_is_left_out_by_name_and_its_checkpoint_is_taken(
    agent: AgentStandIn,
) -> None:
    directory = trainrun.staging_directory()
    (directory / "model.pt").write_text("weights")
    with pytest.warns(UserWarning, match=r"left out: samples\. A metric may take 4096 bytes"):
        trainrun.report({"loss": 1.0, "samples": "x" * 5_000_000}, step=3, checkpoint=directory)
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report")[0]["metrics"] == {"loss": 1.0}
    assert staged(agent, 3) == {"model.pt": "weights"}


def test_metrics_beyond_the_room_of_a_report_are_left_out_by_name(agent: AgentStandIn) -> None:
    many = {f"layer-{number:04d}/norm": "x" * 100 for number in range(1000)}
    with pytest.warns(UserWarning, match=r"left out: layer-0541/norm, .* and 454 more\. .* 65536"):
        trainrun.report(many, step=3)
    eventually(lambda: agent.of_type("report"))
    assert list(agent.of_type("report")[0]["metrics"]) == list(many)[:541]


def test_a_text_that_is_no_utf_8_is_reported_all_the_same(agent: AgentStandIn) -> None:
    trainrun.report({"name\udc80": "half \ud800"}, step=1)
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report")[0]["metrics"] == {"name\udc80": "half \ud800"}


def test_metadata_goes_with_the_files_of_a_checkpoint(agent: AgentStandIn, tmp_path: Path) -> None:
    directory = directory_with(tmp_path / "saved", model="weights")
    trainrun.report(step=3, checkpoint=directory, metadata={"epoch": 2, "data": {"shard": [1]}})
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report")[0]["metadata"] == {"epoch": 2, "data": {"shard": [1]}}


def test_metadata_beyond_64_kib_is_left_out_and_its_checkpoint_is_taken(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    directory = directory_with(tmp_path / "saved", model="weights")
    with pytest.warns(UserWarning, match="metadata left out: it takes 70008 bytes as JSON"):
        trainrun.report(step=3, checkpoint=directory, metadata={"a": "x" * 70_000})
    eventually(lambda: agent.of_type("report"))
    assert "metadata" not in agent.of_type("report")[0]
    assert staged(agent, 3) == {"model": "weights"}


def test_metadata_without_a_checkpoint_and_what_is_no_json_are_refused(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"report\(step=3, metadata=\.\.\.\) requires checkpoint="):
        trainrun.report(step=3, metadata={"epoch": 2})
    directory = directory_with(tmp_path / "saved", model="weights")
    with pytest.raises(TypeError, match="metadata is not JSON"):
        trainrun.report(step=3, checkpoint=directory, metadata={"model": object()})
    assert agent.of_type("report") == []


def test_a_staging_directory_is_renamed_not_copied(agent: AgentStandIn) -> None:
    directory = trainrun.staging_directory()
    (directory / "model.pt").write_text("weights")
    inode = (directory / "model.pt").stat().st_ino
    trainrun.report({"loss": 1.0}, step=3, checkpoint=directory)
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report")[0]["files"] == "step-000000000003"
    assert staged(agent, 3) == {"model.pt": "weights"}
    assert (agent.staging / "step-000000000003" / "model.pt").stat().st_ino == inode
    assert list(directory.iterdir()) == []


def test_any_other_directory_is_copied_and_stays_the_callers(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    directory_with(mine / "shards", a="1")
    trainrun.report(step=3, checkpoint=trainrun.Checkpoint.from_directory(mine))
    (mine / "model").write_text("changed afterwards")
    assert staged(agent, 3) == {"model": "weights", "shards/a": "1"}
    assert (agent.staging / "step-000000000003" / "model").stat().st_nlink == 1


@pytest.mark.parametrize("form", [str, Path, trainrun.Checkpoint])
def test_a_checkpoint_may_be_a_path_too(agent: AgentStandIn, tmp_path: Path, form: type) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    trainrun.report(step=3, checkpoint=form(mine))
    assert staged(agent, 3) == {"model": "weights"}


def test_whole_travels(agent: AgentStandIn, tmp_path: Path) -> None:
    trainrun.report(step=3, checkpoint=directory_with(tmp_path / "m", a="1"), whole=True)
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report")[0]["whole"] is True


def test_whole_without_a_checkpoint_is_refused(agent: AgentStandIn) -> None:
    with pytest.raises(ValueError, match=r"report\(step=3, whole=True\) requires checkpoint="):
        trainrun.report(step=3, whole=True)


def test_it_asks_for_room_before_anything_moves(agent: AgentStandIn) -> None:
    directory = trainrun.staging_directory()
    (directory / "model.pt").write_text("weights")
    seen: list[bool] = []

    def room(message: Message) -> Message:
        seen.append(directory.exists())
        return {"ok": True}

    agent.replies["room"] = room
    trainrun.report(step=3, checkpoint=directory)
    assert seen == [True]
    assert [m["type"] for m in agent.messages[:2]] == ["hello", "room"]
    assert agent.messages[1]["step"] == 3


def test_it_waits_for_room_and_other_threads_reports_come_after_the_files(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    free = threading.Event()

    def room(message: Message) -> Message:
        free.wait()
        return {"ok": True}

    agent.replies["room"] = room
    saver = threading.Thread(target=trainrun.report, kwargs={"step": 3, "checkpoint": mine})
    saver.start()
    eventually(lambda: agent.of_type("room"))
    trainrun.report(step=4)  # does not wait
    assert saver.is_alive()
    free.set()
    saver.join()
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert [m["step"] for m in agent.of_type("report")] == [3, 4]


def test_steps_that_wait_behind_a_copy_show_that_the_rank_works(
    agent: AgentStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread copied a large checkpoint, and the training beside it was taken for a hang."""
    mine = directory_with(tmp_path / "mine", model="weights")
    copied, copy = threading.Event(), staging.copy_entries

    def slow(source: Path, target: Path, entries: list[TreeEntry]) -> None:
        copied.wait()
        copy(source, target, entries)

    monkeypatch.setattr(staging, "copy_entries", slow)
    saver = threading.Thread(target=trainrun.report, kwargs={"step": 0, "checkpoint": mine})
    saver.start()
    eventually(lambda: agent.of_type("room"))
    steps = range(1, 101)
    for step in steps:
        trainrun.report(step=step)
    eventually(lambda: len(agent.of_type("working")) == len(steps))
    assert agent.of_type("report") == []
    copied.set()
    saver.join()
    eventually(lambda: len(agent.of_type("report")) == 1 + len(steps))
    assert [m["step"] for m in agent.of_type("report")] == [0, *steps], "none is dropped"


def test_a_refusal_of_room_reaches_the_caller_and_the_step_may_be_tried_again(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    agent.replies["room"] = lambda _: {"error": "staging disk of worker digits-0-1 is full"}
    with pytest.raises(RuntimeError, match="staging disk of worker digits-0-1 is full"):
        trainrun.report(step=3, checkpoint=mine)
    agent.replies["room"] = lambda _: {"ok": True}
    trainrun.report(step=3, checkpoint=mine)
    assert staged(agent, 3) == {"model": "weights"}


# ------------------------------------------------------------------------------- what is refused


def test_a_missing_directory_is_named(agent: AgentStandIn, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"report\(step=3\): .*/gone does not exist; save"):
        trainrun.report(step=3, checkpoint=tmp_path / "gone")


def test_a_file_is_no_checkpoint(agent: AgentStandIn, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("weights")
    with pytest.raises(NotADirectoryError, match=r"model.pt is a file; a checkpoint is a directo"):
        trainrun.report(step=3, checkpoint=tmp_path / "model.pt")


def test_a_link_to_a_file_is_followed(agent: AgentStandIn, tmp_path: Path) -> None:
    (tmp_path / "base.pt").write_text("weights")
    mine = directory_with(tmp_path / "mine")
    (mine / "base.pt").symlink_to(tmp_path / "base.pt")
    trainrun.report(step=3, checkpoint=mine)
    assert staged(agent, 3) == {"base.pt": "weights"}
    assert not (agent.staging / "step-000000000003" / "base.pt").is_symlink()


def test_links_in_a_staging_directory_become_files_of_their_own(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    (tmp_path / "base.pt").write_text("weights")
    directory = trainrun.staging_directory()
    (directory / "soft.pt").symlink_to(tmp_path / "base.pt")
    os.link(tmp_path / "base.pt", directory / "hard.pt")
    trainrun.report(step=3, checkpoint=directory)
    (tmp_path / "base.pt").write_text("changed!")
    assert staged(agent, 3) == {"hard.pt": "weights", "soft.pt": "weights"}


@pytest.mark.parametrize("target", ["../nowhere", "{}/nowhere"])
def test_a_link_that_leads_nowhere_and_out_of_the_checkpoint_is_named(
    agent: AgentStandIn, tmp_path: Path, target: str
) -> None:
    mine = directory_with(tmp_path / "mine")
    (mine / "latest").symlink_to(target.format(tmp_path))
    with pytest.raises(ValueError, match=r"latest links outside of the checkpoint to .*/nowhere"):
        trainrun.report(step=3, checkpoint=mine)


def test_a_link_that_leads_nowhere_in_the_checkpoint_is_reported_with_it(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    """A link to a save that had been deleted failed every report."""
    mine = directory_with(tmp_path / "mine")
    (mine / "best").symlink_to("checkpoint-100")
    trainrun.report(step=3, checkpoint=mine)
    assert os.readlink(agent.staging / "step-000000000003" / "best") == "checkpoint-100"


def test_a_link_to_a_directory_is_named(agent: AgentStandIn, tmp_path: Path) -> None:
    mine = directory_with(tmp_path / "mine")
    (mine / "latest").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"mine/latest is a link to a directory outside of the "):
        trainrun.report(step=3, checkpoint=mine)


def test_a_pipe_is_named(agent: AgentStandIn, tmp_path: Path) -> None:
    mine = directory_with(tmp_path / "mine")
    os.mkfifo(mine / "pipe")
    with pytest.raises(ValueError, match="mine/pipe is not a regular file"):
        trainrun.report(step=3, checkpoint=mine)


def test_a_name_that_object_storage_cannot_hold_is_named(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    mine = directory_with(tmp_path / "mine")
    with open(os.fsencode(mine) + b"/\xff.pt", "wb"):
        pass
    with pytest.raises(ValueError, match="is not UTF-8, which object storage requires"):
        trainrun.report(step=3, checkpoint=mine)


def test_a_staging_directory_is_reported_once(agent: AgentStandIn) -> None:
    directory = trainrun.staging_directory()
    (directory / "model.pt").write_text("weights")
    trainrun.report(step=3, checkpoint=directory)
    with pytest.raises(ValueError, match=r"was already reported for step 3 and has been moved"):
        trainrun.report(step=4, checkpoint=directory)


def test_two_staging_directories_are_two(agent: AgentStandIn) -> None:
    assert trainrun.staging_directory() != trainrun.staging_directory()


@pytest.mark.parametrize("step", [True, 1.0, "1", None])
def test_a_step_is_an_integer(agent: AgentStandIn, step: object) -> None:
    with pytest.raises(TypeError, match="step must be an integer, got"):
        trainrun.report(step=step)  # type: ignore[arg-type]


def test_a_numpy_step_is_an_integer(agent: AgentStandIn) -> None:
    trainrun.report(step=numpy.int64(3))  # type: ignore[arg-type]
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report")[0]["step"] == 3


def test_a_step_is_not_negative(agent: AgentStandIn) -> None:
    with pytest.raises(ValueError, match="step must be 0 or more, got -1"):
        trainrun.report(step=-1)


@pytest.mark.case("script", "A report without files goes back to an earlier step")
def test_a_report_without_files_may_go_back(agent: AgentStandIn) -> None:
    trainrun.report({"loss": 1.0}, step=5)
    trainrun.report({"loss": 2.0}, step=4)
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert [report["step"] for report in agent.of_type("report")] == [5, 4]


def test_a_step_fits_into_a_status(agent: AgentStandIn) -> None:
    with pytest.raises(ValueError, match="step must be 9007199254740992 or less, got a number of"):
        trainrun.report(step=2**100)


@pytest.mark.parametrize("step", [2, 3])
def test_steps_with_a_checkpoint_grow_strictly(
    agent: AgentStandIn, tmp_path: Path, step: int
) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    trainrun.report(step=3, checkpoint=mine)
    with pytest.raises(ValueError, match=r"has already reported files for step 3, and steps wi"):
        trainrun.report(step=step, checkpoint=mine)


@pytest.mark.case(
    "script", "A rank reports a checkpoint below its last step", counted="maxFailures"
)
def test_a_checkpoint_below_a_reported_step_is_refused(agent: AgentStandIn, tmp_path: Path) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    trainrun.report(step=5)
    with pytest.raises(ValueError, match=r"has already reported step 5, so its part of step 4 is"):
        trainrun.report(step=4, checkpoint=mine)


def test_files_may_follow_the_metrics_of_their_step(agent: AgentStandIn, tmp_path: Path) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    trainrun.report({"loss": 1.0}, step=5)
    trainrun.report(step=5, checkpoint=mine)
    assert staged(agent, 5) == {"model": "weights"}
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert not any("nothing" in report for report in agent.of_type("report"))


@pytest.mark.parametrize("word", ["None", "an empty directory"])
def test_files_after_a_word_that_there_are_none_are_refused(
    agent: AgentStandIn, tmp_path: Path, word: str
) -> None:
    trainrun.report(step=5, checkpoint=None if word == "None" else trainrun.staging_directory())
    mine = directory_with(tmp_path / "mine", model="weights")
    told = r"None, or an empty directory, for step 5, which means that"
    with pytest.raises(ValueError, match=told):
        trainrun.report(step=5, checkpoint=mine)
    trainrun.report(step=6)
    trainrun.report(step=6, checkpoint=mine)
    assert staged(agent, 6) == {"model": "weights"}


def test_a_whole_checkpoint_may_follow_the_metrics_of_its_step(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    trainrun.report({"loss": 1.0}, step=5)
    trainrun.report(step=5, checkpoint=mine, whole=True)
    assert staged(agent, 5) == {"model": "weights"}


def test_metrics_may_go_back(agent: AgentStandIn) -> None:
    trainrun.report(step=5)
    trainrun.report(step=4)
    eventually(lambda: len(agent.of_type("report")) == 2)


def test_a_refused_report_sends_nothing(agent: AgentStandIn, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'loss'"):
        trainrun.report({"loss": object()}, step=1)
    trainrun.report(step=2)
    eventually(lambda: agent.of_type("report"))
    assert [m["step"] for m in agent.of_type("report")] == [2]


def test_an_empty_directory_brings_no_files(agent: AgentStandIn, tmp_path: Path) -> None:
    trainrun.report(step=3, checkpoint=directory_with(tmp_path / "mine"))
    eventually(lambda: agent.of_type("report"))
    [report] = agent.of_type("report")
    assert (report["files"], report["nothing"]) == (None, True)
    assert agent.of_type("room") == []


def test_a_rank_may_say_as_in_ray_that_it_has_no_checkpoint(agent: AgentStandIn) -> None:
    trainrun.report({"loss": 1.0}, step=3, checkpoint=None)
    eventually(lambda: agent.of_type("report"))
    [report] = agent.of_type("report")
    assert (report["files"], report["nothing"]) == (None, True)


def test_rank_0_is_told_of_an_empty_directory(
    agent: AgentStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    with pytest.warns(UserWarning, match=r"/mine is empty, so rank 0 has no files") as warned:
        trainrun.report(step=3, checkpoint=directory_with(tmp_path / "mine"))
    assert warned[0].filename == __file__


# ------------------------------------------------------------------------------ a disk, an agent


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a\tb.pt", "contains a control character, which object storage cannot list; rename it"),
        (".trainrun-tmp-1/model.pt", "names that start with .trainrun-tmp- are reserved; rename"),
    ],
)
def test_a_name_that_would_be_lost_in_the_store_is_refused(
    agent: AgentStandIn, tmp_path: Path, name: str, reason: str
) -> None:
    mine = directory_with(tmp_path / "mine")
    (mine / name).parent.mkdir(exist_ok=True)
    (mine / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=reason):
        trainrun.report(step=3, checkpoint=mine)


@pytest.mark.case("storage", "The worker's disk is full", counted="maxFailures")
def test_a_full_disk_is_an_error_with_the_remedy_and_leaves_no_part(
    agent: AgentStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = directory_with(tmp_path / "mine", model="x" * 200_000)
    with mounted(tmp_path / "disk", "size=64k") as disk:
        monkeypatch.setenv("TRAINRUN_STAGING", str(disk))
        with pytest.raises(trainrun.StagingFailed) as failed:
            trainrun.report(step=3, checkpoint=mine)
        assert list(disk.iterdir()) == []
    eventually(lambda: agent.of_type("unstaged"))
    assert agent.of_type("unstaged") == [{"type": "unstaged", "step": 3}]
    message = str(failed.value)
    assert message.startswith(f"cannot stage {mine} for step 3: [Errno 28] No space left on device")
    assert "lower checkpoint.maxPending or raise the worker's ephemeral storage" in message


def test_a_staging_folder_that_has_gone_is_named(agent: AgentStandIn) -> None:
    agent.staging.rmdir()
    with pytest.raises(trainrun.StagingFailed, match=r"cannot make the staging directory .*new-"):
        trainrun.staging_directory()


def test_reports_that_the_socket_cannot_take_do_not_wait(agent: AgentStandIn) -> None:
    trainrun.report(step=0)
    eventually(lambda: len(agent.messages) == 2)
    agent.reading.clear()
    for step in range(1, 5001):
        trainrun.report({"text": "x" * 500}, step=step)
    agent.reading.set()
    trainrun.report(step=5001)
    session.close()  # a process that ends gives its last messages a moment
    eventually(lambda: agent.messages[-1].get("step") == 5001)
    steps = [int(str(m["step"])) for m in agent.of_type("report")]
    assert steps == sorted(steps)
    assert len(steps) < 5000  # the oldest were dropped
    assert steps[-60:] == list(range(4942, 5002))


def test_reports_do_not_care_whether_the_agent_is_there(agent: AgentStandIn) -> None:
    trainrun.report(step=0)
    eventually(lambda: len(agent.messages) == 2)
    agent.die()
    for step in range(1, 200):
        trainrun.report(step=step)


def test_a_checkpoint_without_its_agent_is_an_error_that_says_so(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    trainrun.report(step=0)
    eventually(lambda: len(agent.messages) == 2)
    agent.die()
    mine = directory_with(tmp_path / "mine", model="weights")
    with pytest.raises(RuntimeError, match=r"the agent of this worker has exited \(socket .*agent"):
        trainrun.report(step=1, checkpoint=mine)


def test_an_agent_that_has_gone_before_the_first_call_is_not_missed_by_metrics(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    agent.die()
    (agent.folder / "agent.sock").unlink()
    trainrun.report(step=0)
    assert trainrun.should_save() is None
    trainrun.finish()
    with pytest.raises(trainrun.AgentLost, match="No such file"):
        trainrun.report(step=1, checkpoint=directory_with(tmp_path / "mine", a="1"))


def test_a_socket_with_a_long_path_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with AgentStandIn(folder) as agent:
        for name, value in agent.environment(TRAINRUN_PROCESS=str(os.getpid())).items():
            monkeypatch.setenv(name, value)
        trainrun.report(step=1)
        eventually(lambda: agent.of_type("report"))


# --------------------------------------------------------------------------------- without agent


def test_without_an_agent_arguments_are_checked_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'loss'"):
        trainrun.report({"loss": object()}, step=1)
    with pytest.raises(FileNotFoundError, match="gone does not exist"):
        trainrun.report(step=1, checkpoint=tmp_path / "gone")
    trainrun.report(step=5)
    with pytest.raises(ValueError, match="has already reported step 5"):
        trainrun.report(step=4, checkpoint=directory_with(tmp_path / "mine", a="1"))


def test_without_an_agent_a_reported_directory_of_the_callers_stays(tmp_path: Path) -> None:
    mine = directory_with(tmp_path / "mine", model="weights")
    trainrun.report(step=1, checkpoint=mine)
    assert (mine / "model").read_text() == "weights"


def test_without_an_agent_staging_directories_go_with_the_report_and_the_process() -> None:
    reported, kept = trainrun.staging_directory(), trainrun.staging_directory()
    (reported / "model.pt").write_text("weights")
    trainrun.report(step=1, checkpoint=reported)
    assert list(reported.iterdir()) == []
    assert kept.exists()
    session.close()
    assert not kept.parent.exists()
