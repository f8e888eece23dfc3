"""SIGTERM for the training on order: how it ends then, and what becomes of that."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import alive, start
from tests.support.eventually import eventually
from trainrun.contract.agent_state import ProcessExit
from trainrun.contract.answer import Hold
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

WITH_HANDLER = """
import os, signal, sys, time, trainrun
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
trainrun.report(step=1)
while not told:
    time.sleep(0.01)
open("own-checkpoint", "w").write("mine")
{end}
"""

GRACE = Hold(attempt=2, grace_seconds=60.0, flush_seconds=60.0)


def ended_by_sigterm(operator: OperatorStandIn, workers: Workers, script: str) -> ProcessExit:
    """How the one process of the worker ended, which was up by its first report."""
    workers.start(script)
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    operator.order(GRACE)
    [end] = operator.until(lambda s: s.exits and s.phase == "Idle").exits
    return end


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("sys.exit(143)", 143), ("raise ValueError('cut short')", 1)]
)
def test_a_script_with_a_handler_saves_and_ends_with_any_code(
    operator: OperatorStandIn, workers: Workers, end: str, code: int
) -> None:
    found = ended_by_sigterm(operator, workers, WITH_HANDLER.format(end=end))
    assert (workers.folder / "own-checkpoint").read_text() == "mine"
    assert (found.code, found.signal, found.ordered, found.exception) == (code, None, True, "")


def test_a_script_without_a_handler_ends_at_once(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = "import time, trainrun\ntrainrun.report(step=1)\ntime.sleep(600)"
    found = ended_by_sigterm(operator, workers, script)
    assert (found.code, found.signal, found.ordered) == (None, 15, True)


def test_a_script_that_ignores_the_signal_is_killed_when_its_time_is_over(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = (
        "import signal, time, trainrun\nsignal.signal(15, lambda *_: print('got it', flush=True))\n"
        "trainrun.report(step=1)\nwhile True: time.sleep(1)"
    )
    worker = workers.start(script)
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    operator.order(Hold(attempt=2, grace_seconds=1.5, flush_seconds=60.0))
    worker.shows("got it")
    [end] = operator.until(lambda s: s.exits).exits
    assert (end.signal, end.ordered) == (9, True)
    assert worker.output.count("got it") == 1


def test_what_is_reported_while_it_ends_is_stored(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.storage.mkdir()
    end = (
        "folder = trainrun.staging_directory()\n(folder / 'model.bin').write_bytes(b'abc')\n"
        "trainrun.report(step=2, checkpoint=folder)"
    )
    workers.start(WITH_HANDLER.format(end=end))
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    operator.order(GRACE)
    operator.until(lambda s: s.steps == (2,))  # perhaps it is committed by then
    operator.order(Hold(attempt=2, grace_seconds=60.0, flush=(2,), flush_seconds=60.0))
    state = operator.until(lambda s: s.phase == "Idle" and s.committed)
    assert state.committed is not None
    assert state.committed.id == CheckpointId(attempt=1, step=2)


def test_a_rank_that_ends_with_0_after_the_signal_has_not_passed_what_others_report(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """Rank 0 brings files for step 2; rank 1 was told to end before it came there."""
    script = (
        WITH_HANDLER.format(end="if os.environ['RANK'] == '1': sys.exit(0)")
        + "folder = trainrun.staging_directory()\n(folder / 'part').write_bytes(b'abc')\n"
        + "trainrun.report(step=2, checkpoint=folder)"
    )
    workers.start(script, processes_per_worker=2)
    operator.order(start(per_worker=2))
    operator.until(lambda s: s.steps == (1, 1))
    operator.order(GRACE)
    state = operator.until(lambda s: len(s.exits) == 2)
    assert [(entry.step, entry.complete) for entry in state.staged] == [(2, False)]


def test_a_process_that_had_ended_before_the_signal_keeps_its_own_end(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = (
        "import os, time, trainrun\ntrainrun.report(step=1)\n"
        "if os.environ['RANK'] == '1': time.sleep(600)"
    )
    workers.start(script, processes_per_worker=2)
    operator.order(start(per_worker=2))
    operator.until(lambda s: s.exits and s.steps == (1, 1))
    operator.order(GRACE)
    first, second = operator.until(lambda s: len(s.exits) == 2).exits
    assert (first.code, first.ordered) == (0, False)
    assert (second.signal, second.ordered) == (15, True)


@pytest.mark.parametrize("pipe", ["", "| cat"])
def test_a_shell_is_passed_over_and_the_helpers_of_a_training_are_left_alone(
    operator: OperatorStandIn, workers: Workers, pipe: str
) -> None:
    """The shell would die of it and hand nothing on; a loader's helper, and who reads what the
    training prints, would take it along."""
    train = (
        "import os, signal, subprocess, sys, time\n"
        "sleeps = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "helper = subprocess.Popen(sleeps, stdout=subprocess.DEVNULL)\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.append(1))\n"
        "open('up', 'w').write(str(helper.pid))\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(0.3); print('saving', flush=True)\n"
        "open('helper-is', 'w').write(str(helper.poll()))\n"
    )
    (workers.folder / "train.py").write_text(train)
    python = workers.config("").command[0]
    worker = workers.start("", command=("/bin/sh", "-c", f"{python} train.py {pipe}; exit 7"))
    operator.order(start())
    eventually(lambda: (workers.folder / "up").exists() and (workers.folder / "up").read_text())
    operator.order(GRACE)
    [end] = operator.until(lambda s: s.exits and s.phase == "Idle").exits
    assert (workers.folder / "helper-is").read_text() == "None"
    assert (end.code, end.ordered) == (7, True)
    helper = int((workers.folder / "up").read_text())
    eventually(lambda: not alive(helper), what="its helper is gone as well")
    assert "rank 0 exited with code 7 on SIGTERM" in worker.output


@pytest.mark.case(
    "nodes",
    "A worker gets a notice, and the script never asks should_save()",
    counted="maxPreemptions",
)
@pytest.mark.case(
    "nodes", "A worker gets a notice, and its agent reaches no operator", counted="maxPreemptions"
)
def test_a_worker_whose_notice_reaches_no_operator_sends_sigterm_by_itself(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """It was killed at the end of the grace, its handler never called."""
    worker = workers.start(WITH_HANDLER.format(end=""), processes_per_worker=2, grace_seconds=20)
    operator.order(start(per_worker=2))
    operator.until(lambda s: s.steps == (1, 1))
    operator.status = 503
    worker.terminate()
    assert worker.code(timeout=60) == 143
    assert (workers.folder / "own-checkpoint").read_text() == "mine"
    worker.shows("no operator answers: SIGTERM to the training")
    for rank in (0, 1):
        worker.shows(f"rank {rank}: SIGTERM")
        worker.shows(f"rank {rank} exited with code 0 on SIGTERM")


def test_a_script_that_asks_gets_no_signal_where_no_operator_is_reached(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = WITH_HANDLER.replace(
        "while not told:", "while not told and not trainrun.should_save():"
    )
    worker = workers.start(script.format(end=""), grace_seconds=9)
    operator.order(start())
    operator.until(lambda s: s.save.calls > 0)
    operator.status = 503
    worker.terminate()
    assert worker.code(timeout=60) == 143
    assert not (workers.folder / "own-checkpoint").exists()


def test_an_operator_that_answers_decides_itself(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(WITH_HANDLER.format(end=""), grace_seconds=60)
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    worker.terminate()
    operator.until(lambda s: s.notice and s.notice.age > 8)
    assert not (workers.folder / "own-checkpoint").exists()


def test_a_shell_with_a_trap_gets_the_signal_itself(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = "trap 'echo trapped; exit 5' TERM; echo up; while true; do sleep 0.1; done"
    worker = workers.start("", command=("/bin/bash", "-c", script))
    operator.order(start())
    worker.shows("up")
    operator.order(GRACE)
    [end] = operator.until(lambda s: s.exits).exits
    worker.shows("trapped")
    assert end.code == 5


def test_a_hold_without_time_kills_as_ever(operator: OperatorStandIn, workers: Workers) -> None:
    workers.start(WITH_HANDLER.format(end=""))
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    operator.order(Hold(attempt=2, flush_seconds=60.0))
    [end] = operator.until(lambda s: s.exits).exits
    assert (end.signal, end.ordered) == (9, True)
    assert not os.path.exists(workers.folder / "own-checkpoint")
