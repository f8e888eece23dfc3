"""What an agent finds out about ranks that stand still, with real agents and processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.workers import start
from tests.support.eventually import eventually
from tests.support.stopping import stop
from trainrun.contract.evidence import EvidenceRequest, RankEvidence

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

BEGIN = """
import itertools, os, signal, time, trainrun
def standing():
    {}
trainrun.report({{"loss": 1.0}}, step=7)
print("loading with password=hunter2", os.getpid(), flush=True)
standing()
"""
WITHOUT_PY_SPY = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def find(operator: OperatorStandIn, workers: Workers) -> Callable[..., RankEvidence]:
    """Start a worker whose rank does this, ask where it stands, and return what is told."""

    def ask(
        what: str, *, script: str = BEGIN, stopped: bool = False, env: dict[str, str] | None = None
    ) -> RankEvidence:
        workers.storage.mkdir()
        worker = workers.start(script.format(what), env=env or WITHOUT_PY_SPY)
        operator.order(start())
        worker.shows("hunter2")
        if stopped:
            stop(int(worker.output.partition("hunter2 ")[2].split()[0]))
        operator.also(evidence=EvidenceRequest(attempt=1, number=1))
        state = operator.until(lambda s: s.evidence is not None)
        assert state.evidence is not None
        assert (state.evidence.attempt, state.evidence.number) == (1, 1)
        assert state.phase == "Running", "it has not been harmed"
        (rank,) = state.evidence.ranks
        assert rank.rank == 0
        return rank

    return ask


def stored(workers: Workers, number: int = 1) -> dict[str, Any]:
    """What is in the store of the only rank."""
    file = workers.storage / f"run/hangs/000001-{number}/worker-00000.json"
    eventually(file.exists, timeout=20.0, what=str(file))
    (rank,) = json.loads(file.read_text())["ranks"]
    found: dict[str, Any] = rank
    return found


def test_a_process_that_listens_writes_where_it_stands(
    find: Callable[..., RankEvidence], workers: Workers
) -> None:
    rank = find("time.sleep(600)")
    assert (rank.step, rank.state, rank.read_by) == (7, "S", "faulthandler")
    assert rank.cpu < 0.5
    assert [frame.name for frame in rank.stack] == ["standing", "<module>"]
    assert rank.stack[0].own
    record = stored(workers)
    assert "in standing" in record["stacks"]
    assert record["step"] == 7


def test_one_that_holds_the_gil_for_ever_does_so_too(find: Callable[..., RankEvidence]) -> None:
    rank = find("sum(itertools.repeat(0))")
    assert (rank.state, rank.read_by) == ("R", "faulthandler")
    assert rank.cpu > 0.1
    assert rank.stack[0].name == "standing"


def test_last_lines_are_told_without_secrets(
    find: Callable[..., RankEvidence], workers: Workers
) -> None:
    rank = find("time.sleep(600)")
    assert rank.last_lines[-1].startswith("loading with password=***")
    assert "hunter2" not in json.dumps(stored(workers))


def test_a_stopped_process_is_not_signalled(
    find: Callable[..., RankEvidence], workers: Workers
) -> None:
    rank = find("time.sleep(600)", stopped=True)
    assert (rank.state, rank.stack, rank.read_by) == ("T", (), "")
    assert stored(workers)["remark"].startswith("the process is stopped by a signal")


def test_one_that_has_not_imported_trainrun_is_left_alone(
    find: Callable[..., RankEvidence], workers: Workers
) -> None:
    script = "import time; print('hunter2 ', flush=True); {}"
    rank = find("time.sleep(600)", script=script)
    assert (rank.step, rank.state, rank.read_by) == (None, "S", "")
    assert "has not imported trainrun" in stored(workers)["remark"]


def test_one_that_does_not_listen_any_more_is_not_killed(
    find: Callable[..., RankEvidence], workers: Workers
) -> None:
    deaf = "[signal.signal(n, signal.SIG_DFL) for n in range(50, 65)]; time.sleep(600)"
    rank = find(deaf)
    assert rank.read_by == ""
    assert "no longer handles signal" in stored(workers)["remark"]


def test_a_file_that_blocks_is_named(find: Callable[..., RankEvidence]) -> None:
    rank = find("os.read(os.pipe()[0], 1)")
    assert rank.kernel.startswith("read of pipe:[")


def test_a_script_on_a_file_system_that_does_not_answer_is_told_with_its_stack(
    find: Callable[..., RankEvidence], tmp_path: Path
) -> None:
    """Its source was read for the names of classes, and nothing at all was told of the rank."""
    source = tmp_path / "away.py"
    os.mkfifo(source)  # opening it waits for ever
    text = f"exec(compile('def load(): time.sleep(600)', {str(source)!r}, 'exec'), globals())"
    rank = find(f"{text}; load()")
    assert (rank.state, rank.stack[0].name) == ("S", "load")
    assert rank.stack[0].file.endswith("/away.py")


@pytest.mark.parametrize("threads", [20, 100])
def test_of_very_many_threads_none_is_taken_for_the_main_one(
    find: Callable[..., RankEvidence], threads: int
) -> None:
    """Python writes a hundred, the main one last: an idle thread of a pool was blamed."""
    pool = f"import threading\nfor _ in range({threads}):\n"
    pool += "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    rank = find(
        "time.sleep(600)", script=BEGIN.replace("trainrun.report", f"{pool}trainrun.report")
    )
    names = [frame.name for frame in rank.stack]
    assert names == (["standing", "<module>"] if threads < 100 else [])


def test_helpers_that_have_died_are_counted(find: Callable[..., RankEvidence]) -> None:
    assert find("os.fork() or os._exit(1); time.sleep(600)").helpers_lost == 1


def test_a_program_that_hangs_and_one_that_lies_are_not_believed(
    find: Callable[..., RankEvidence], workers: Workers, tmp_path: Path
) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho nothing: Permission denied >&2\necho '[1]'\n")
    program.chmod(0o755)
    rank = find("time.sleep(600)", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert rank.read_by == "faulthandler"
    assert rank.stack[0].name == "standing"


def test_what_py_spy_reads_is_taken_first(
    find: Callable[..., RankEvidence], tmp_path: Path
) -> None:
    frames = [{"name": "load", "filename": "/app/data.py", "line": 41}]
    threads = json.dumps([{"thread_name": "MainThread", "frames": frames}])
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{threads}\nEND\n")
    program.chmod(0o755)
    rank = find("time.sleep(600)", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (rank.read_by, rank.stack[0].name, rank.stack[0].line) == ("py-spy", "load", 41)


def test_a_request_is_answered_once_and_forgotten_when_nobody_asks(
    find: Callable[..., RankEvidence], operator: OperatorStandIn, workers: Workers
) -> None:
    find("time.sleep(600)")
    stored(workers)
    operator.also(evidence=EvidenceRequest(attempt=1, number=2))
    again = operator.until(lambda s: s.evidence is not None and s.evidence.number == 2)
    assert again.evidence is not None
    assert again.evidence.ranks[0].stack[0].name == "standing"
    stored(workers, number=2)
    operator.also(evidence=None)
    operator.until(lambda s: s.evidence is None)


def test_another_attempt_is_none_of_its_business(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(BEGIN.format("time.sleep(600)"), env=WITHOUT_PY_SPY)
    operator.order(start())
    worker.shows("hunter2")
    operator.also(evidence=EvidenceRequest(attempt=2, number=1))
    before = operator.state()
    assert before is not None
    state = operator.until(lambda s: s.sequence > before.sequence + 1)
    assert state.evidence is None
