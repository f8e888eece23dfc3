"""What needs a process of its own: how it ends, what it forks, what it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.packaging.test_imports import PUBLIC
from tests.support.eventually import eventually
from tests.support.mounts import mounted
from trainrun.contract import variables

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agent_stand_in import AgentStandIn

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def env(agent: AgentStandIn) -> dict[str, str]:
    return agent.environment()


def test_an_uncaught_exception_is_told_and_printed(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    ended = run_script("import trainrun\ndef f():\n    raise ValueError('bad batch 7')\nf()", **env)
    assert ended.returncode == 1
    assert "ValueError: bad batch 7" in ended.stderr
    eventually(lambda: agent.of_type("exception"))
    told = agent.of_type("exception")[0]
    assert told["error"] == "ValueError: bad batch 7"
    assert "in f\n" in str(told["traceback"])
    assert agent.messages[0]["type"] == "hello"


def test_an_exception_of_a_library_is_told_with_its_module(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    run_script("import trainrun, json\njson.loads('{')", **env)
    eventually(lambda: agent.of_type("exception"))
    assert str(agent.of_type("exception")[0]["error"]).startswith(
        "json.decoder.JSONDecodeError: Expecting property name"
    )


REMEDY = (
    "for maxPending + 1 checkpoints (+ 4 with uploadEvery), plus two cached checkpoints and "
    "everything else: make room, lower checkpoint.maxPending or raise the worker's ephemeral "
    "storage"
)


@pytest.mark.case("storage", "The worker's disk is full", counted="maxFailures")
@pytest.mark.parametrize(
    "failure",
    [
        "(d / 'model').write_bytes(b'x' * 200_000)",
        # As PyTorch says it, which has filled the disk and names no reason.
        "open(d / 'model', 'wb').write(b'x' * 60_000)\n"
        "raise RuntimeError('PytorchStreamWriter failed writing file data/0')",
    ],
    ids=["python", "torch"],
)
def test_a_disk_that_is_full_while_the_script_writes_is_told_with_the_remedy(
    agent: AgentStandIn, env: dict[str, str], run_script: Run, tmp_path: Path, failure: str
) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        env["TRAINRUN_STAGING"] = str(disk)
        run_script(f"import trainrun\nd = trainrun.staging_directory()\n{failure}", **env)
        eventually(lambda: agent.of_type("exception"))
    assert str(agent.of_type("exception")[0]["error"]).endswith(REMEDY)


@pytest.mark.parametrize(
    "failure",
    ["trainrun.report(step=1, checkpoint='nowhere')", "layers.forward()"],
    ids=["by this library", "by one that lies in a folder of its own"],
)
def test_an_error_of_the_scripts_folder_was_told_with_a_line_of_a_library(
    agent: AgentStandIn, env: dict[str, str], run_script: Run, tmp_path: Path, failure: str
) -> None:
    libraries = tmp_path.with_name(f"{tmp_path.name}-libraries")
    libraries.mkdir()
    (libraries / "layers.py").write_text("def forward(): 1/0")
    source = f"import layers, trainrun\ndef train():\n    {failure}"
    (tmp_path / "model.py").write_text(source)
    script = f"import sys; sys.path.append({str(libraries)!r}); import model\nmodel.train()"
    run_script(script, **env)
    eventually(lambda: agent.of_type("exception"))
    assert agent.of_type("exception")[0]["at"] == "model.py:3"


def test_a_huge_exception_is_cut(agent: AgentStandIn, env: dict[str, str], run_script: Run) -> None:
    run_script("import trainrun\nraise ValueError('x' * 100_000)", **env)
    eventually(lambda: agent.of_type("exception"))
    told = agent.of_type("exception")[0]
    assert len(str(told["error"])) == 1000
    assert len(str(told["traceback"])) == 4096


def test_an_exception_that_cannot_be_printed_is_told(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    source = "import trainrun\nclass E(Exception):\n    def __str__(self): 1/0\nraise E"
    run_script(source, **env)
    eventually(lambda: agent.of_type("exception"))
    assert agent.of_type("exception")[0]["error"] == "E: <unprintable text>"


def test_an_excepthook_that_was_there_before_still_runs(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    source = "import sys\nsys.excepthook = lambda *a: print('mine', a[1])\nimport trainrun\n1/0"
    assert "mine division by zero" in run_script(source, **env).stdout
    eventually(lambda: agent.of_type("exception"))


def test_the_last_reports_of_a_process_arrive(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    source = "import trainrun\nfor i in range(3000): trainrun.report({'t': 'x' * 300}, step=i)"
    assert run_script(source, **env).returncode == 0
    eventually(lambda: agent.messages and agent.messages[-1].get("step") == 2999)


def test_a_forked_child_cannot_speak_for_its_rank(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    source = """
import os, trainrun
trainrun.report(step=1)
if os.fork() == 0:
    assert trainrun.get_context().rank == 2
    try:
        trainrun.report(step=2)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
trainrun.report(step=3)
"""
    ended = run_script(source, **env)
    assert "is a child of the training process" in ended.stdout, ended.stderr
    assert "of rank 2 (a DataLoader worker, say) and cannot act for it" in ended.stdout
    eventually(lambda: len(agent.of_type("report")) == 2)
    assert [message["step"] for message in agent.of_type("report")] == [1, 3]
    assert len(agent.of_type("hello")) == 1


def test_a_child_that_is_forked_while_a_thread_waits_for_room_does_not_hang(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    source = """
import os, threading, trainrun
d = trainrun.staging_directory()
(d / "x").write_text("y")
saver = threading.Thread(target=trainrun.report, kwargs={"step": 1, "checkpoint": d})
saver.start()
if os.fork() == 0:
    try:
        trainrun.report(step=2)
    except RuntimeError:
        os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert run_script(source, **env).stdout == "7\n"


def test_a_started_child_cannot_speak_for_its_rank(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    source = """
import subprocess, sys, trainrun
trainrun.report(step=1)
child = "import trainrun; trainrun.report(step=2)"
print(subprocess.run([sys.executable, "-c", child], stderr=subprocess.PIPE, text=True).stderr)
"""
    assert "NotTheTrainingProcess" in run_script(source, **env).stdout
    eventually(lambda: agent.of_type("report"))
    assert [message["step"] for message in agent.of_type("report")] == [1]
    assert agent.of_type("exception") == []


def test_a_rank_that_another_launcher_has_made_is_told_so(
    agent: AgentStandIn, env: dict[str, str], run_script: Run
) -> None:
    """torchrun in a shell script: the agent was said to have gone, while it lived."""
    ours = {**env, variables.PLACE: "0/4"}
    ended = run_script(
        "import trainrun; trainrun.report(step=1)", **{**ours, "RANK": "1", "WORLD_SIZE": "2"}
    )
    assert ended.returncode == 1
    assert (
        "ForeignLauncher: this process has rank 1 of 2, but TrainRun started rank 0 of 4 here: a "
        "launcher in between"
    ) in ended.stderr
    assert agent.of_type("report") == []
    # The agent hears of it as the end of the process that it has started: no restart helps.
    eventually(lambda: agent.of_type("exception"))
    (told,) = agent.of_type("exception")
    assert told["kinds"][:2] == ["trainrun.errors.ForeignLauncher", "trainrun.FatalError"]
    assert [message["rank"] for message in agent.of_type("hello")] == [0]
    same = run_script(
        "import trainrun; trainrun.report(step=1)", **{**ours, "RANK": "0", "WORLD_SIZE": "4"}
    )
    assert same.returncode == 0, same.stderr


def test_without_an_agent_the_same_script_runs_and_leaves_nothing_behind(run_script: Run) -> None:
    source = """
import json, os, tempfile, trainrun
d = trainrun.staging_directory()
(d / "model").write_text("x")
trainrun.report({"loss": 1.0}, step=1, checkpoint=d)
trainrun.staging_directory()
trainrun.finish()
print(json.dumps([bool(trainrun.should_save()), trainrun.get_checkpoint(), str(d.parent)]))
"""
    ended = run_script(source)
    assert ended.stderr == ""
    answer, checkpoint, folder = json.loads(ended.stdout)
    assert (answer, checkpoint) == (False, None)
    assert not subprocess.run(["ls", folder], capture_output=True, text=True).stdout


def test_importing_loads_nothing_heavy() -> None:
    source = "import sys, trainrun; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True).stdout
    heavy = {"torch", "numpy", "boto3", "botocore", "pydantic", "asyncio", "ssl", "yaml", "http"}
    assert heavy.isdisjoint(loaded.split())


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    import trainrun

    with pytest.raises(AttributeError, match="module 'trainrun' has no attribute 'reprot'"):
        trainrun.reprot  # type: ignore[attr-defined]  # noqa: B018


def test_all_public_names_are_listed() -> None:
    import trainrun

    assert set(trainrun.__all__) <= set(dir(trainrun))


def test_public_names_are_these() -> None:
    import trainrun

    assert trainrun.__all__ == PUBLIC
    assert all(hasattr(trainrun, name) for name in trainrun.__all__)
