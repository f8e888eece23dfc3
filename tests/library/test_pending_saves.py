"""Checkpoints that are reported while another library still saves them: `report(after=)`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import trainrun
from tests.library.conftest import Run
from tests.support.agent_stand_in import AgentStandIn, Message
from tests.support.eventually import eventually
from trainrun._process import session

SCRIPTS = Path(__file__).with_name("scripts")


@pytest.fixture
def saving() -> Iterator[Future[None]]:
    """Ends at the latest with the test, which waits for it."""
    future: Future[None] = Future()
    yield future
    if not future.done():
        future.set_result(None)


def directory(name: str = "model.pt") -> Path:
    made = trainrun.staging_directory()
    (made / name).write_text("weights")
    return made


def first(agent: AgentStandIn, kind: str) -> Message:
    eventually(lambda: agent.of_type(kind), what=f"a message {kind!r}")
    return agent.of_type(kind)[0]


def test_the_files_come_when_the_save_has_ended_and_later_steps_before(
    agent: AgentStandIn, saving: Future[None]
) -> None:
    made = directory("model.pt.tmp")
    trainrun.report({"loss": 1.0}, step=3, checkpoint=made, after=saving)
    trainrun.report(step=4)
    eventually(lambda: len(agent.of_type("report")) == 2)
    report, later = agent.of_type("report")
    assert (report["pending"], report["files"], report["metrics"]) == (True, None, {"loss": 1.0})
    assert later["step"] == 4
    assert agent.of_type("saved") == []
    (made / "model.pt.tmp").rename(made / "model.pt")
    saving.set_result(None)
    saved = first(agent, "saved")
    assert (saved["step"], saved["files"]) == (3, "step-000000000003")
    assert (agent.staging / "step-000000000003" / "model.pt").read_text() == "weights"


def test_files_are_staged_in_the_order_of_the_steps_whichever_save_ends_first(
    agent: AgentStandIn, saving: Future[None]
) -> None:
    done: Future[None] = Future()
    done.set_result(None)
    trainrun.report(step=3, checkpoint=directory(), after=saving)
    trainrun.report(step=4, checkpoint=directory(), after=done)
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert agent.of_type("saved") == []
    saving.set_result(None)
    eventually(lambda: [saved["step"] for saved in agent.of_type("saved")] == [3, 4])


@pytest.mark.case("storage", "An asynchronous save fails", counted="never")
def test_a_save_that_fails_is_told_and_does_not_end_the_script(
    agent: AgentStandIn, saving: Future[None], capfd: pytest.CaptureFixture[str]
) -> None:
    trainrun.report(step=3, checkpoint=directory(), after=saving)
    saving.set_exception(OSError(28, "No space left on device"))
    why = "the save of rank 2 failed: OSError: [Errno 28] No space left on device"
    assert first(agent, "save-failed") == {"type": "save-failed", "step": 3, "why": why}
    trainrun.report(step=4, checkpoint=directory())
    assert agent.of_type("saved") == []
    eventually(lambda: agent.of_type("report")[-1]["files"] == "step-000000000004")
    session.current().await_background()
    shown = capfd.readouterr().err
    assert shown.startswith("Traceback (most recent call last):")
    assert f"trainrun: no rank will have a checkpoint of step 3, since {why}\n" in shown


def test_a_future_that_ends_before_the_save_does_not_commit_half_of_it(
    agent: AgentStandIn, saving: Future[None]
) -> None:
    made = directory()
    trainrun.report(step=3, checkpoint=made, after=saving)
    with (made / "model.pt").open("a"):
        saving.set_result(None)
        why = str(first(agent, "save-failed")["why"])
    assert f"{made} is still being written (this process has model.pt open for writing)" in why
    assert "Pass the end of its save as report(..., after=...)" in why


def test_an_empty_directory_is_one_only_when_its_save_has_ended(
    agent: AgentStandIn, saving: Future[None]
) -> None:
    """As of a rank of `dcp.async_save()` whose tensors rank 0 saves."""
    made = trainrun.staging_directory()
    trainrun.report(step=3, checkpoint=made, after=saving)
    saving.set_result(None)
    saved = first(agent, "saved")
    assert saved == {"type": "saved", "step": 3, "left": made.name}


def ends_of_saves(event: threading.Event) -> list[object]:
    """What libraries give to wait for the end of a save."""
    return [
        event.wait,
        SimpleNamespace(wait=event.wait),
        SimpleNamespace(wait_until_finished=event.wait),
        SimpleNamespace(upload_completion=SimpleNamespace(result=event.wait)),
    ]


@pytest.mark.parametrize("kind", range(4), ids=["function", "torch", "orbax", "response"])
def test_whatever_waits_for_the_end_of_a_save_may_be_passed(agent: AgentStandIn, kind: int) -> None:
    ended = threading.Event()
    trainrun.report(step=3, checkpoint=directory(), after=ends_of_saves(ended)[kind])
    trainrun.report(step=4)
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert agent.of_type("saved") == []
    ended.set()
    assert first(agent, "saved")["step"] == 3


def test_what_does_not_tell_whether_a_save_succeeded_is_refused(agent: AgentStandIn) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=print)
    with subprocess.Popen(["true"]) as process:
        for after in (thread, thread.join, process, process.wait, loop.create_future(), 3):
            with pytest.raises(TypeError, match="does not show whether the save succeeded; pass a"):
                trainrun.report(step=3, checkpoint=directory(), after=after)
    loop.close()
    assert agent.of_type("report") == []


def test_errors_of_the_call_are_raised_by_the_call(
    agent: AgentStandIn, saving: Future[None]
) -> None:
    with pytest.raises(ValueError, match=r"report\(step=3, after=...\) requires checkpoint="):
        trainrun.report(step=3, after=saving)
    made = directory()
    trainrun.report(step=3, checkpoint=made)
    with pytest.raises(ValueError, match="was already reported for step 3 and has been moved"):
        trainrun.report(step=4, checkpoint=made, after=saving)
    with pytest.raises(ValueError, match="already reported files for step 3"):
        trainrun.report(step=3, checkpoint=directory(), after=saving)


def test_a_save_that_was_asked_for_is_awaited_by_its_report(agent: AgentStandIn) -> None:
    agent.prepare(1)
    agent.replies["save"] = lambda _: {
        "save": {"reason": "SIGTERM", "writer_rank": 0, "deadline": None}
    }
    assert trainrun.should_save()
    ended = threading.Event()
    with ThreadPoolExecutor() as pool:
        made = directory()
        reporting = pool.submit(trainrun.report, step=3, checkpoint=made, after=ended.wait)
        eventually(lambda: agent.of_type("report"))
        assert not reporting.done()
        ended.set()
        reporting.result()
    assert first(agent, "saved")["step"] == 3


SAVES = """
import time, trainrun
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor()
def save():
    time.sleep(0.2)
    pool.submit((directory / "model.pt").write_text, "weights").result()
directory = trainrun.staging_directory()
trainrun.report(step=3, checkpoint=directory, after=save)
"""


def test_a_script_that_ends_well_waits_for_its_last_save(
    agent: AgentStandIn, run_script: Run
) -> None:
    """A save of orbax failed there, as it needs a thread in the end."""
    ended = run_script(SAVES, **agent.environment())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert first(agent, "saved")["files"] == "step-000000000003"


def test_a_script_that_dies_does_not_wait_for_a_save(agent: AgentStandIn, run_script: Run) -> None:
    source = SAVES.replace("0.2", "1000") + "raise ValueError('diverged')"
    ended = run_script(source, **agent.environment())
    assert ended.returncode == 1
    assert agent.of_type("saved") == agent.of_type("save-failed") == []


def test_without_an_agent_a_save_that_fails_is_shown(run_script: Run) -> None:
    ended = run_script(SAVES.replace("weights", "\\ud800"))
    assert ended.returncode == 0
    assert "no rank will have a checkpoint of step 3, since the save of rank 0" in ended.stderr


def whole(staged: Path) -> bool:
    files = {path.name: path.stat().st_size for path in staged.iterdir()}
    return files == {"model.pt": 4000, "optimizer.pt": 4000}


@pytest.mark.slow
def test_a_process_killed_at_any_moment_has_announced_only_whole_checkpoints(
    agent: AgentStandIn,
) -> None:
    """Twenty processes with a slow writer, which gives its files temporary names."""
    subprocess.run(
        [sys.executable, SCRIPTS / "killed_saves.py", "20"],
        env={**os.environ, **agent.environment()},
        check=True,
        timeout=60,
    )
    eventually(lambda: len(agent.of_type("report")) >= 20)
    announced = [agent.staging / str(saved["files"]) for saved in agent.of_type("saved")]
    assert agent.of_type("save-failed") == []
    assert 0 < len(announced) < len(agent.of_type("report")), "some were killed too early"
    assert all(map(whole, announced))
