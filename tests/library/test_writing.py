"""A directory that is still being written when it is reported."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import trainrun
from tests.support.agent_stand_in import AgentStandIn
from tests.support.eventually import eventually
from trainrun._process import staging

OPEN = (
    "import sys, time; file = open(sys.argv[1], sys.argv[2]); print(flush=True); sys.stdin.read()"
)


@contextmanager
def another_process(path: Path, mode: str = "wb", *, session: bool = False) -> Iterator[int]:
    """Have a file open in another process."""
    command = [sys.executable, "-c", OPEN, str(path), mode]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=session
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def made_by(kind: str, tmp_path: Path) -> Path:
    if kind == "staging":
        return trainrun.staging_directory()
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def staged(agent: AgentStandIn, step: int) -> dict[str, str]:
    folder = agent.staging / f"step-{step:012d}"
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def reported(agent: AgentStandIn) -> list[object]:
    return [message["step"] for message in agent.of_type("report")]


@pytest.mark.case(
    "storage", "A script reports a directory that is still being written", counted="maxFailures"
)
@pytest.mark.parametrize("kind", ["staging", "own"])
def test_a_save_of_a_thread_that_is_under_way_is_refused_and_accepted_at_its_end(
    agent: AgentStandIn, tmp_path: Path, kind: str
) -> None:
    """Half a checkpoint was committed without a word, and every restart died of it."""
    directory, half, rest = made_by(kind, tmp_path), threading.Event(), threading.Event()

    def save() -> None:
        with (directory / "model.pt").open("w") as file:
            file.write("half")
            file.flush()
            half.set()
            rest.wait()
            file.write(" and half")

    with ThreadPoolExecutor() as pool:
        saving = pool.submit(save)
        half.wait()
        with pytest.raises(trainrun.CheckpointUnfinished) as refused:
            trainrun.report(step=3, checkpoint=directory)
        assert str(refused.value) == (
            f"report(step=3): {directory} is still being written (this process has model.pt open "
            "for writing), so it is not committed. Pass the end of its save as report(..., "
            "after=...): the future of async_save() or of ThreadPoolExecutor.submit(), or "
            "wait_until_finished of orbax"
        )
        eventually(lambda: agent.of_type("unstaged"))
        rest.set()
        saving.result()
        trainrun.report(step=3, checkpoint=directory)
    assert staged(agent, 3) == {"model.pt": "half and half"}


@pytest.mark.parametrize("kind", ["staging", "own"])
@pytest.mark.parametrize("mode", ["wb", "r+b"])
def test_a_save_of_another_process_that_is_under_way_is_refused_by_its_name(
    agent: AgentStandIn, tmp_path: Path, kind: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    directory = made_by(kind, tmp_path)
    (directory / "model.pt").write_text("half")
    with another_process(directory / "model.pt", mode) as pid:
        named = re.escape(f"(process {pid} (python") + r".* has model\.pt open for writing"
        with pytest.raises(trainrun.CheckpointUnfinished, match=named):
            trainrun.report(step=3, checkpoint=directory)


def _open_and_wait(path: Path, opened: object, go_on: object) -> None:
    with path.open("wb"):
        opened.set()  # type: ignore[attr-defined]
        go_on.wait()  # type: ignore[attr-defined]


def test_a_forked_child_that_saves_is_seen_and_one_that_merely_kept_our_file_open_is_not(
    agent: AgentStandIn,
) -> None:
    """As a worker of a DataLoader does that was started while a thread saved."""
    fork, directory = multiprocessing.get_context("fork"), trainrun.staging_directory()
    opened, go_on = fork.Event(), fork.Event()
    file = (directory / "model.pt").open("w")
    loads = fork.Process(target=go_on.wait)
    loads.start()
    file.write("weights")
    file.close()
    saves = fork.Process(target=_open_and_wait, args=(directory / "more.pt", opened, go_on))
    saves.start()
    opened.wait()
    with pytest.raises(trainrun.CheckpointUnfinished, match=rf"process {saves.pid} .*more\.pt"):
        trainrun.report(step=3, checkpoint=directory)
    (directory / "more.pt").unlink()
    trainrun.report(step=3, checkpoint=directory)
    assert staged(agent, 3) == {"model.pt": "weights"}
    go_on.set()
    for process in (loads, saves):
        process.join()


TEMPORARY = [
    "default.orbax-checkpoint-tmp-17/",
    "state/default.orbax-checkpoint-tmp/array",
    "d/zarr.json.__lock",
    ".metadata.tmp",
    "model.safetensors.incomplete",
    ".tmpGx01aB",
    "tmp-checkpoint-500/model.pt",
]


@pytest.mark.parametrize("kind", ["staging", "own"])
@pytest.mark.parametrize("name", TEMPORARY)
def test_a_name_that_goes_at_the_end_of_a_save_is_refused(
    agent: AgentStandIn, tmp_path: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    directory = made_by(kind, tmp_path)
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if name.endswith("/") else path.write_text("half")
    first = name.partition("/")[0]
    named = re.escape(first) + r".* has a temporary name\)"
    with pytest.raises(trainrun.CheckpointUnfinished, match=named):
        trainrun.report(step=3, checkpoint=directory)
    assert agent.of_type("report") == []


def test_a_temporary_name_that_a_killed_attempt_has_left_is_no_reason_to_refuse(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    directory = made_by("own", tmp_path)
    (directory / "model.pt").write_text("weights")
    (directory / "model.pt.tmp").write_text("half")
    (directory / "__0_0.distcp").write_text("half")
    for name in ("model.pt.tmp", "__0_0.distcp"):
        os.utime(directory / name, (1, time.time() - 86400))
    trainrun.report(step=3, checkpoint=directory)
    assert "model.pt" in staged(agent, 3)


@pytest.mark.parametrize("rank", [0, 1])
def test_data_of_dcp_without_its_metadata_is_refused_on_the_rank_that_writes_it(
    agent: AgentStandIn, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    directory = trainrun.staging_directory()
    (directory / "sharded").mkdir()
    (directory / "sharded" / f"__{rank}_0.distcp").write_text("weights")
    if rank == 0:
        with pytest.raises(trainrun.CheckpointUnfinished, match=r"\.distcp exists, but its \.meta"):
            trainrun.report(step=3, checkpoint=directory)
        (directory / "sharded" / ".metadata").write_text("about")
    trainrun.report(step=3, checkpoint=directory)
    assert (agent.staging / "step-000000000003").exists()


# ------------------------------------------------------------------------------ what comes late


def test_a_file_that_comes_after_the_report_ends_the_script_with_what_to_wait_for(
    agent: AgentStandIn,
) -> None:
    """The writer died of a missing folder, and no message pointed at the cause."""
    directory = trainrun.staging_directory()
    (directory / "__2_0.distcp").write_text("weights")
    trainrun.report(step=3, checkpoint=directory)
    eventually(lambda: agent.of_type("report"))
    assert agent.of_type("report")[0]["left"] == directory.name
    trainrun.report(step=4)
    (directory / "__2_1.distcp").write_text("more weights")
    with pytest.raises(trainrun.CheckpointUnfinished) as refused:
        trainrun.report(step=5)
    assert str(refused.value).startswith(
        "the checkpoint of step 3 was reported before its save had ended, since __2_1.distcp "
        "appeared later, so no run resumes from it. Pass the end of its save as report(..., after="
    )
    trainrun.report(step=5)


@pytest.mark.parametrize("call", ["report", "staging_directory"])
def test_a_save_that_had_not_begun_when_its_directory_was_reported_is_told_of(
    agent: AgentStandIn, call: str
) -> None:
    """So `async_save()` does: its thread writes the first file a moment later."""
    directory = trainrun.staging_directory()
    trainrun.report(step=3, checkpoint=directory)
    eventually(lambda: agent.of_type("report"))
    [told] = agent.of_type("report")
    assert (told["files"], told["left"]) == (None, directory.name)
    (directory / "__2_0.distcp").write_text("weights")
    with pytest.raises(trainrun.CheckpointUnfinished, match="checkpoint of step 3 was reported be"):
        trainrun.report(step=4) if call == "report" else trainrun.staging_directory()


def test_the_directories_of_many_checkpoints_do_not_stay(agent: AgentStandIn) -> None:
    for step in range(5):
        directory = trainrun.staging_directory()
        (directory / "model.pt").write_text("weights")
        trainrun.report(step=step, checkpoint=directory)
    left = [path.name for path in agent.staging.glob("new-*")]
    assert len(left) == staging.LEFT


# --------------------------------------------------------------- a directory of the script's own


def test_a_log_that_is_open_for_appending_in_a_reported_directory_is_copied(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    directory = made_by("own", tmp_path)
    (directory / "model.pt").write_text("weights")
    with (directory / "train.log").open("a") as log:
        print("step 3", file=log, flush=True)
        trainrun.report(step=3, checkpoint=directory)
    assert staged(agent, 3) == {"model.pt": "weights", "train.log": "step 3\n"}


def test_a_file_that_grows_while_it_is_copied_is_copied_once_it_rests(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    directory = made_by("own", tmp_path)

    def save() -> None:
        for _ in range(30):
            with (directory / "model.pt").open("ab") as file:
                file.write(b"x")
            time.sleep(0.01)

    (directory / "model.pt").write_text("")
    with ThreadPoolExecutor() as pool:
        saving = pool.submit(save)
        while not saving.done():
            with suppress(trainrun.CheckpointUnfinished):  # where it is open at that very moment
                trainrun.report(step=3, checkpoint=directory)
                break
    assert staged(agent, 3) == {"model.pt": "x" * 30}


@pytest.mark.case(
    "storage", "A rank reports a folder into which another rank still writes", counted="maxFailures"
)
def test_a_file_that_another_rank_still_writes_is_waited_for(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    directory = made_by("own", tmp_path)
    (directory / "model-0.pt").write_text("weights")
    with ThreadPoolExecutor() as pool:
        with another_process(directory / "model-1.pt", session=True):
            saving = pool.submit(trainrun.report, step=3, checkpoint=directory)
            eventually(lambda: agent.of_type("room"))
            assert agent.of_type("report") == []
        saving.result()
    assert sorted(staged(agent, 3)) == ["model-0.pt", "model-1.pt"]


def test_a_rank_that_writes_for_too_long_is_named_with_what_to_do(
    agent: AgentStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PATIENCE", 0.0)
    directory = made_by("own", tmp_path)
    with another_process(directory / "model-1.pt", session=True) as pid:
        with pytest.raises(trainrun.CheckpointUnfinished) as refused:
            trainrun.report(step=3, checkpoint=directory, whole=True)
    assert f"(process {pid} (python" in str(refused.value)
    assert str(refused.value).endswith(
        "Where ranks save into one folder, let them wait for each other "
        "(torch.distributed.barrier()) before they report it, or let each rank report a directory "
        "of its own files"
    )
