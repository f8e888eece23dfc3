"""Starting, watching and killing processes."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import alive, start
from tests.support.eventually import eventually
from trainrun.contract.answer import Exit, Hold

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

SLEEP = "import os,time; print('pid', os.getpid(), flush=True); time.sleep(600)"


def pids(folder: Path, count: int = 1) -> list[int]:
    """Pids that processes have written into files named pid-*."""

    def found() -> list[int]:
        texts = [path.read_text() for path in sorted(folder.glob("pid-*"))]
        return [int(text) for text in texts if text]

    eventually(lambda: len(found()) >= count, what=f"{count} pid files")
    return found()


WRITE_PID = "import os,time; open('pid-%s' % os.environ['RANK'],'w').write(str(os.getpid()));"


def test_an_attempt_that_was_started_is_never_started_again_and_lower_ones_are_refused(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("print('hello')")
    operator.order(start(3))
    operator.until(lambda s: s.exits and s.attempt == 3)
    operator.order(start(2))
    operator.order(start(3), drop=(99,))
    operator.order(Hold(attempt=4))
    operator.order(start(3))
    operator.order(Hold(attempt=5, offer=True))
    seen = operator.until(lambda s: s.offer)
    assert seen.attempt == 3
    assert worker.output.count("hello") == 1


@pytest.mark.case(
    "processes", "The command does not exist or cannot be executed", counted="maxStartFailures"
)
def test_a_command_that_does_not_exist_is_an_exit_with_a_clear_message(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("", command=("no-such-trainer", "--fast"))
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert end.code is None
    assert end.signal is None
    assert end.exception == (
        "StartFailed: no-such-trainer: no such program on PATH; "
        "check the command of the worker template"
    )


def test_a_file_that_is_not_executable_is_an_exit_with_a_clear_message(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    workers.start("", command=(str(tmp_path / "train.py"),))
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert end.exception.startswith(f"StartFailed: {tmp_path}/train.py: not executable")


def test_a_missing_working_directory_is_an_exit_with_a_clear_message(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("", working_dir="/no/such/folder")
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert end.exception == (
        "StartFailed: the working directory /no/such/folder does not exist or is not a directory"
    )


def test_a_script_that_does_not_exist_is_told_in_pythons_words(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("", command=(sys.executable, "no_such_script.py"))
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert end.code == 2
    assert end.exception.startswith("StartFailed: ")
    assert "can't open file" in end.exception
    assert "no_such_script.py" in end.exception
    assert "no_such_script.py" in end.last_lines[-1]


@pytest.mark.case(
    "processes", "A process ends with an exception or an exit code", counted="maxFailures"
)
def test_exit_code_exception_and_last_lines_are_told(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("print('before'); raise ValueError('the loss is NaN')")
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert end.code == 1
    assert end.exception == "ValueError: the loss is NaN"
    assert end.last_lines[0] == "before"
    assert end.last_lines[-1] == "ValueError: the loss is NaN"


def test_a_secret_in_colors_is_told_neither_by_the_exception_nor_by_the_last_lines(
    operator: OperatorStandIn, workers: Workers
) -> None:
    colored = r"\x1b[36mtoken\x1b[0m=\x1b[35mhunter2\x1b[0m"
    workers.start(f"print('{colored}'); raise ValueError('{colored}')")
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert end.exception == "ValueError: token=***"
    assert end.last_lines[0] == "token=***"
    assert end.last_lines[-1] == "ValueError: token=***"
    assert "hunter2" not in str(end)


@pytest.mark.case("script", "A script prints a key, a token or a password")
def test_keys_and_the_values_of_secret_variables_are_told_by_nobody(
    operator: OperatorStandIn, workers: Workers
) -> None:
    key, value, own = "0123456789abcdef" * 2 + "01234567", "correct horse", "battery staple"
    workers.start(
        f"print('{key}'); print('key: {key}'); print('password hunter2');"
        f"import trainrun; trainrun.report(step=1, metrics={{'note': '{value}', 'loss': 100000}});"
        f"raise ValueError('{value} {own} {key} hunter 100000')",
        env={"COMET_API_KEY": own, "MY_PASSWORD": value, "STEPS_TOKEN": "100000"},
    )
    operator.order(start())
    state = operator.until(lambda s: s.exits)
    (end,) = state.exits
    assert end.exception == "ValueError: *** *** *** hunter 100000"
    assert end.last_lines[:3] == ("***", "key: ***", "password ***")
    assert state.metrics == {"note": "***", "loss": 100000}
    assert not [secret for secret in (key, value, own, "hunter2") if secret in str(state)]


def test_the_exception_that_the_library_saw_is_told_although_the_output_hides_it(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(
        "import trainrun,sys; trainrun.report(step=1); sys.stderr=open('/dev/null','w')\n"
        "class Odd(RuntimeError): pass\n"
        "raise Odd('lost')"
    )
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert end.exception == "Odd: lost"


def test_a_signal_is_told_by_its_number_and_is_not_an_ordered_end(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("import os; os.kill(os.getpid(), 11)")
    operator.order(start())
    [end] = operator.until(lambda s: s.exits).exits
    assert (end.code, end.signal, end.ordered, end.oom) == (None, 11, False, False)


def test_only_processes_that_lived_when_the_order_came_ended_on_order(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(
        "import os,time\nif os.environ['RANK']=='1': raise SystemExit(7)\ntime.sleep(600)",
        processes_per_worker=3,
    )
    operator.order(start(per_worker=3))
    one = operator.until(lambda s: s.exits)
    assert [(end.rank, end.code) for end in one.exits] == [(1, 7)]
    assert one.phase == "Running", "its siblings live on"
    operator.order(Hold(attempt=2))
    held = operator.until(lambda s: s.phase == "Idle" and s.attempt)
    assert [(end.rank, end.ordered) for end in held.exits] == [(0, True), (1, False), (2, True)]


def test_grandchildren_that_made_their_own_session_are_killed_too(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    workers.start(
        "import os,time\n"
        "for name in ('a','b'):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            open('pid-'+name,'w').write(str(os.getpid())); time.sleep(600)\n"
        "        os._exit(0)\n"
        "time.sleep(600)"
    )
    operator.order(start())
    helpers = pids(tmp_path, 2)
    assert all(alive(pid) for pid in helpers)
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle" and s.attempt)
    assert not any(alive(pid) for pid in helpers)


@pytest.mark.case("processes", "Processes leave helper processes behind in sessions of their own")
def test_helpers_that_outlive_their_process_are_killed_before_the_worker_is_idle(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    workers.start(
        "import os,time\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); open('pid-a','w').write(str(os.getpid())); time.sleep(600)\n"
        "while not os.path.exists('pid-a') or not open('pid-a').read(): time.sleep(0.01)\n"
        "os._exit(3)"
    )
    operator.order(start())
    ended = operator.until(lambda s: s.exits)
    [helper] = pids(tmp_path)
    assert ended.phase == "Idle"
    assert alive(helper), "nobody ordered its end yet"
    operator.order(Hold(attempt=2, offer=True))
    operator.until(lambda s: s.offer)
    assert not alive(helper)


def test_orphans_are_reaped(operator: OperatorStandIn, workers: Workers, tmp_path: Path) -> None:
    worker = workers.start(
        "import os,time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0: os._exit(0)\n"
        "        os._exit(0)\n"
        "    os.wait()\n" + WRITE_PID + "time.sleep(600)"
    )
    operator.order(start())
    [pid] = pids(tmp_path)

    def children() -> list[str]:
        path = f"/proc/{worker.process.pid}/task/{worker.process.pid}/children"
        with open(path) as file:
            return file.read().split()

    eventually(lambda: children() == [str(pid)], what="no child but the process itself")


@pytest.mark.case("nodes", "The agent is killed", counted="maxFailures")
def test_a_killed_agent_takes_its_processes_with_it(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start(WRITE_PID + "time.sleep(600)", processes_per_worker=2)
    operator.order(start(per_worker=2))
    started = pids(tmp_path, 2)
    worker.kill()
    eventually(lambda: not any(alive(pid) for pid in started), what="processes gone")


def test_an_agent_whose_parent_died_kills_its_processes_and_leaves(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    config = workers.config(WRITE_PID + "time.sleep(600)")
    code = (
        "import dataclasses,os,subprocess,sys,time\n"
        "from trainrun.contract.agent_config import AgentConfig\n"
        "from trainrun.contract.variables import AGENT_CONFIG as V\n"
        "config = AgentConfig.from_json(os.environ[V])\n"
        "config = dataclasses.replace(config, parent_pid=os.getpid())\n"
        "child = subprocess.Popen([sys.executable,'-m','trainrun.agent'],"
        " env={**os.environ, V: config.to_json()})\n"
        "open('pid-agent','w').write(str(child.pid)); time.sleep(600)"
    )
    import subprocess

    from trainrun.contract.variables import AGENT_CONFIG

    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, AGENT_CONFIG: config.to_json()},
    )
    operator.order(start())
    started = pids(tmp_path, 2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    eventually(lambda: not any(alive(pid) for pid in started), what="agent and process gone")


def test_the_agent_gives_way_to_its_processes_which_run_as_usual(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        "import os\nfor p in os.getppid(), 0: print('policy', os.sched_getscheduler(p), flush=True)"
    )
    operator.order(start(1))
    operator.until(lambda s: len(s.exits) == 1)
    worker.shows(f"policy {os.SCHED_BATCH}\n[rank 0] policy {os.sched_getscheduler(0)}\n")


def test_output_has_rank_prefixes(operator: OperatorStandIn, workers: Workers) -> None:
    worker = workers.start(
        "import os,sys; print('out', os.environ['RANK']); print('no end', end='', file=sys.stderr)",
        processes_per_worker=2,
    )
    operator.order(start(per_worker=2))
    operator.until(lambda s: len(s.exits) == 2)
    for rank in (0, 1):
        worker.shows(f"[rank {rank}] out {rank}\n")
        worker.shows(f"[rank {rank}] no end\n")


@pytest.mark.slow
def test_a_reader_that_does_not_read_stops_the_output_and_not_the_agent(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        "import trainrun\n"
        "for step in range(100000): print('x' * 10000); trainrun.report(step=step)",
        read=False,
    )
    operator.order(start())
    seen: list[int | None] = []

    def stands_still() -> bool:
        state = operator.state()
        seen.append(state.steps[0] if state is not None and state.steps else None)
        return len(seen) > 300 and seen[-1] is not None and seen[-1] == seen[-300]

    eventually(stands_still, what="the training waits for its output")
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle" and s.exits)
    operator.order(Exit(code=3))
    assert worker.code() == 3


def test_a_fault_on_demand_kills_its_rank_once(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    from trainrun.contract.agent_config import KillFault

    workers.start(
        "import trainrun,time\nfor step in range(1,9): trainrun.report(step=step); time.sleep(.01)",
        processes_per_worker=2,
        faults=(KillFault(rank=1, step=3, mark=str(tmp_path / "0")),),
    )
    operator.order(start(per_worker=2))
    ended = operator.until(lambda s: len(s.exits) == 2)
    assert [(end.signal, end.ordered) for end in ended.exits] == [(None, False), (9, False)]
    operator.order(start(2, per_worker=2))
    again = operator.until(lambda s: s.attempt == 2 and len(s.exits) == 2)
    assert [end.code for end in again.exits] == [0, 0]


def test_the_environment_of_a_process_is_that_of_torchrun_and_ours(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        "import os\nfor k in sorted(os.environ): print(k + '=' + os.environ[k])",
        slot=1,
        processes_per_worker=2,
        gpus=(4, 5),
        env={"MINE": "1", "OMP_NUM_THREADS": "3"},
    )
    operator.order(start(7, workers=2, per_worker=2))
    operator.until(lambda s: len(s.exits) == 2, worker="run-1-1")
    for line in (
        "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=29999",
        "RANK=3",
        "LOCAL_RANK=1",
        "WORLD_SIZE=4",
        "LOCAL_WORLD_SIZE=2",
        "NODE_RANK=1",
        "GROUP_RANK=1",
        "TORCHELASTIC_RUN_ID=run",
        "TORCHELASTIC_RESTART_COUNT=6",
        "OMP_NUM_THREADS=3",
        "MINE=1",
        "TRAINRUN_ATTEMPT=7",
        "JAX_COORDINATOR_ADDRESS=127.0.0.1:30000",
        "JAX_NUM_PROCESSES=4",
        "JAX_PROCESS_ID=3",
        "JAX_LOCAL_DEVICE_IDS=1",
        "TRAINRUN_RUN=run",
        "GLOO_SOCKET_IFNAME=lo",
        "CUDA_VISIBLE_DEVICES=4,5",
    ):
        worker.shows(f"[rank 3] {line}\n")
    assert "TRAINRUN_AGENT_CONFIG" not in worker.output
    assert "TORCHELASTIC_USE_AGENT_STORE" not in worker.output
