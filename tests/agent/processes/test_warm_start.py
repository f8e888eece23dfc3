"""A warm start is a cold start but for the time it takes: every property of one, held against the
other; and what becomes of a standby that cannot be used."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.processes.same_start import differences, differences_of_torch
from tests.agent.workers import AGENT, alive, start
from tests.support.eventually import eventually
from trainrun.contract import variables
from trainrun.contract.answer import Exit, Hold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.agent.workers import Worker, Workers
    from tests.support.operator_stand_in import OperatorStandIn
    from trainrun.contract.agent_state import ProcessExit

SCRIPT = Path(__file__).with_name("properties_of_a_start.py")
OF_TORCH = Path(__file__).with_name("properties_of_torch.py")

LOUD = """
import os, random, sys, warnings
print('from the preload'); print('and its errors', file=sys.stderr)
os.write(1, b'straight to the descriptor')
"""
"""A module that says things while it is imported."""

FORMS: dict[str, tuple[str, ...]] = {
    "script": (sys.executable, "SCRIPT", "--an", "argument"),
    "module": (sys.executable, "-u", "-m", "properties_of_a_start", "--an", "argument"),
    "torchrun": (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "SCRIPT"),
    "options": (sys.executable, "-X", "dev", "-W", "error::FutureWarning", "-O", "SCRIPT"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The second attempt of a worker."""

    found: dict[str, Any]
    end: ProcessExit
    output: str


def with_path(folder: Path) -> str:
    """PYTHONPATH with this folder in front."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))


def second_start(
    operator: OperatorStandIn,
    workers: Workers,
    folder: Path,
    *,
    form: str = "script",
    preload: tuple[str, ...],
    env: dict[str, str] | None = None,
) -> Started:
    """What the script finds in its second attempt, and how it ends."""
    (folder / "loud.py").write_text(LOUD)
    (folder / SCRIPT.name).write_text(SCRIPT.read_text())
    found = folder / "properties.json"
    found.unlink(missing_ok=True)
    script = str(folder / SCRIPT.name)
    command = tuple(script if word == "SCRIPT" else word for word in FORMS[form])
    given = {"PROPERTIES": str(found), "PYTHONPATH": with_path(folder), "PYTHONHASHSEED": "7"}
    worker = workers.start("", command=command, preload=preload, env={**given, **(env or {})})
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    if preload:
        worker.shows("standby ready")
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle" and s.held and s.held.attempt == 2)
    operator.order(start(2))
    [end] = operator.until(lambda s: s.attempt == 2 and s.exits, timeout=90).exits
    worker.shows("at the end" if (env or {}).get("END") != "kill" else "written")
    output = worker.output
    worker.kill()
    assert ("rank 0: warm start" in output) == bool(preload)
    return Started(found=json.loads(found.read_text()), end=end, output=output)


@pytest.mark.parametrize("form", FORMS)
def test_a_script_cannot_tell_a_warm_start_from_a_cold_one(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path, form: str
) -> None:
    cold = second_start(operator, workers, tmp_path, form=form, preload=())
    warm = second_start(operator, workers, tmp_path, form=form, preload=("decimal", "loud"))
    assert differences(cold.found, warm.found) == []
    assert warm.end.code == cold.end.code == 7
    assert warm.end.last_lines == cold.end.last_lines
    for line in ("[rank 0] written", "[rank 0] and to stderr", "[rank 0] at the end"):
        assert line in warm.output
    for said in ("from the preload", "and its errors", "straight to"):
        assert said not in warm.output


def test_an_exception_after_a_warm_start_is_told_as_after_a_cold_one(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    ends = [
        second_start(operator, workers, tmp_path, preload=preload, env={"END": "raise"}).end
        for preload in ((), ("decimal",))
    ]
    assert [end.code for end in ends] == [1, 1]
    assert ends[1].exception == ends[0].exception == "RuntimeError: the end"
    assert ends[1].last_lines == ends[0].last_lines


def test_a_signal_that_ends_a_warm_start_is_told(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    warm = second_start(operator, workers, tmp_path, preload=("decimal",), env={"END": "kill"})
    assert warm.end.signal == signal.SIGSEGV
    assert not warm.end.ordered


# ---------------------------------------------------------------- standbys that are of no use

TRAIN = """
import os, sys, time
import trainrun
trainrun.report(step=int(os.environ['TRAINRUN_ATTEMPT']))
print('trains', flush=True)
time.sleep(600)
"""


def training(
    operator: OperatorStandIn,
    workers: Workers,
    folder: Path,
    *,
    preload: tuple[str, ...],
    options: tuple[str, ...] = (),
    command: tuple[str, ...] = (),
    agent: Sequence[str] = AGENT,
) -> Worker:
    """A worker in its first attempt, after its first step."""
    (folder / "train.py").write_text(TRAIN)
    worker = workers.start(
        "",
        command=command or (sys.executable, *options, str(folder / "train.py")),
        preload=preload,
        env={"PYTHONPATH": with_path(folder)},
        agent=agent,
    )
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    return worker


def again(operator: OperatorStandIn, attempt: int = 2) -> None:
    """The next attempt, up to its first step."""
    operator.order(Hold(attempt=attempt))
    operator.until(lambda s: s.phase == "Idle" and s.held and s.held.attempt == attempt)
    operator.order(start(attempt))
    operator.until(lambda s: s.steps == (attempt,))


def standbys_of(worker: Worker) -> list[int]:
    """Pids of processes that stand by."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            stands_by = (entry / "comm").read_text().strip() == variables.STANDBY_NAME
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        if stands_by and parent == worker.process.pid and stat.rpartition(")")[2].split()[0] != "Z":
            found.append(int(entry.name))
    return found


def test_each_start_uses_a_standby_and_a_new_one_takes_its_place(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = training(operator, workers, tmp_path, preload=("decimal",))
    used = []
    for attempt in (2, 3):
        eventually(lambda n=attempt: worker.output.count("standby ready") == n - 1, what="ready")
        used += standbys_of(worker)
        again(operator, attempt)
        assert worker.output.count("rank 0: warm start") == attempt - 1
        told = operator.until(lambda s: s.warm == 1 and s.imports > 0)
        # What is compiled already takes 4 MB of its own, compiling it a few more.
        assert 2 << 20 < told.standby_bytes < 1 << 30
        assert 2 << 20 < told.import_bytes < 1 << 30
        assert told.imports < (told.spawned or 0.0) + 1.0
        assert Path(f"/proc/{used[-1]}/comm").read_text().strip() != variables.STANDBY_NAME
    assert len(set(used)) == 2


def test_a_standby_that_died_is_a_cold_start_and_no_failure(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = training(operator, workers, tmp_path, preload=("decimal",))
    worker.shows("standby ready")
    [pid] = standbys_of(worker)
    os.kill(pid, signal.SIGKILL)
    worker.shows("rank 0: standby given up: it ended")
    again(operator)
    worker.shows("rank 0: cold start: it has no standby yet")
    told = operator.until(lambda s: s.steps == (2,))
    assert (told.exits, told.cold) == ((), "rank 0: it has no standby yet")


def test_a_standby_that_is_stopped_is_not_waited_for(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = training(operator, workers, tmp_path, preload=("decimal",))
    worker.shows("standby ready")
    [pid] = standbys_of(worker)
    os.kill(pid, signal.SIGSTOP)
    again(operator)
    worker.shows("rank 0: cold start: it did not answer")
    assert standbys_of(worker) == []


def loads_until_told(folder: Path, *, and_then: str = "") -> Path:
    """Write a module `slow`, whose import waits for the file that is returned."""
    go = folder / "go"
    (folder / "slow.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{and_then}"
    )
    return go


def test_a_standby_that_still_loads_at_the_start_goes_on_as_the_rank_after_the_import_under_way(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    """And leaves what comes after that to the script."""
    go = loads_until_told(tmp_path)
    (tmp_path / "later.py").write_text("import time; time.sleep(600)")
    worker = training(operator, workers, tmp_path, preload=("slow", "later"))
    eventually(lambda: len(standbys_of(worker)) == 1, what="a standby that loads")
    [pid] = standbys_of(worker)
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle" and s.held and s.held.attempt == 2)
    operator.order(start(2))
    operator.until(lambda s: s.attempt == 2)
    worker.shows("rank 0: warm start")
    assert standbys_of(worker) == [pid]
    go.touch()
    assert operator.until(lambda s: s.steps == (2,)).warm == 1
    assert alive(pid)
    assert standbys_of(worker) == []


@pytest.mark.case("processes", "A standby interpreter dies, hangs or fails in an import")
def test_a_standby_that_fails_after_the_start_is_a_cold_start_and_no_failure(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    go = loads_until_told(tmp_path, and_then="1 / 0")
    worker = training(operator, workers, tmp_path, preload=("slow",))
    eventually(lambda: len(standbys_of(worker)) == 1, what="a standby that loads")
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle" and s.held and s.held.attempt == 2)
    operator.order(start(2))
    operator.until(lambda s: s.attempt == 2)
    go.touch()
    told = operator.until(lambda s: s.steps == (2,))
    worker.shows("rank 0: cold start: it ended: ZeroDivisionError: division by zero")
    assert (told.exits, told.warm) == ((), 0)


def test_a_rank_waits_for_a_standby_that_still_loads_so_long_and_no_longer(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    impatient = (
        "import sys, trainrun.agent.processes.standbys as standbys\n"
        "from trainrun.agent.main import main\n"
        "standbys.PATIENCE = 1.0\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    agent = (sys.executable, "-c", impatient)
    worker = training(operator, workers, tmp_path, preload=("slow",), agent=agent)
    eventually(lambda: len(standbys_of(worker)) == 1, what="a standby that loads")
    again(operator)
    worker.shows("rank 0: cold start: it was still loading 1 s after the start order")
    assert standbys_of(worker) == []
    assert operator.until(lambda s: s.steps == (2,)).exits == ()


def test_a_rank_that_is_stopped_while_its_standby_loads_was_stopped(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    worker = training(operator, workers, tmp_path, preload=("slow",))
    eventually(lambda: len(standbys_of(worker)) == 1, what="a standby that loads")
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle" and s.held and s.held.attempt == 2)
    operator.order(start(2))
    operator.until(lambda s: s.attempt == 2)
    operator.order(Hold(attempt=3))
    [end] = operator.until(lambda s: s.attempt == 2 and s.exits).exits
    assert end.ordered
    assert "in a row failed" not in worker.output
    operator.until(lambda s: s.phase == "Idle" and s.held and s.held.attempt == 3)


# ---------------------------------------------------------------- before the first attempt

BEFORE = """
import os, sys, time
started = 'decimal' in sys.modules, os.environ['TRAINRUN_RUN_ID'], os.environ['WORLD_SIZE']
import trainrun
trainrun.report(step=int(os.environ['TRAINRUN_ATTEMPT']))
print('it was', *started, flush=True)
time.sleep(600)
"""


def gathering(
    workers: Workers, folder: Path, *, preload: str = "decimal", of: int = 2, **more: Any
) -> Worker:
    """A worker with two ranks, one `of` so many, that has just been created."""
    (folder / "train.py").write_text(BEFORE)
    return workers.start(
        "",
        command=(sys.executable, str(folder / "train.py")),
        preload=(preload,),
        **{"workers": of, "processes_per_worker": 2, "slot": 1, "worker": "run-1-1", **more},
        env={"PYTHONPATH": with_path(folder), "HTTP_PROXY": "http://proxy:3128"},
    )


@pytest.mark.parametrize("slot", [0, 1])
def test_a_new_worker_preloads_for_all_its_ranks_while_the_gang_gathers(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path, slot: int
) -> None:
    name = f"run-{slot}-4"
    worker = gathering(workers, tmp_path, slot=slot, worker=name, created_for=4)
    operator.order(Hold(attempt=4))
    eventually(lambda: worker.output.count("standby ready") == 2, what="two standbys")
    operator.order(replace(start(4, workers=2, per_worker=2), run_id="abc234"))
    told = operator.until(lambda s: s.steps == (4, 4), worker=name)
    assert told.warm == 2
    eventually(lambda: worker.output.count("it was True abc234 4") == 2, what="two warm ranks")
    worker.shows(f"rank {2 * slot}: warm start")
    assert "cold start" not in worker.output


@pytest.mark.parametrize("warm", [False, True])
def test_a_worker_in_the_place_of_a_lost_one_imports_nothing_once_the_gang_has_gathered(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path, *, warm: bool
) -> None:
    """The stage `import` of the recovery is that of the slowest worker."""
    takes = 4.0
    (tmp_path / "heavy.py").write_text(f"import time; time.sleep({takes})")
    script = "import heavy\nimport trainrun\ntrainrun.report(step=4)\nheavy.time.sleep(600)"
    (tmp_path / "train.py").write_text(script)
    worker = workers.start(
        "",
        command=(sys.executable, str(tmp_path / "train.py")),
        preload=("heavy",) if warm else (),
        workers=1,
        created_for=4,
        env={"PYTHONPATH": with_path(tmp_path)},
    )
    operator.order(Hold(attempt=4))
    operator.until(lambda s: s.held and s.held.attempt == 4)
    if warm:
        worker.shows("standby ready")
    operator.order(start(4))
    told = operator.until(lambda s: s.steps == (4,))
    assert (told.imports < takes) == warm


def test_a_worker_preloads_before_it_has_heard_of_its_operator(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    operator.status = 503
    worker = gathering(workers, tmp_path)
    eventually(lambda: worker.output.count("standby ready") == 2, what="two standbys")
    operator.status = 200
    operator.order(start(workers=2, per_worker=2))
    assert operator.until(lambda s: s.steps == (1, 1), worker="run-1-1").warm == 2


def test_a_worker_that_stays_preloads_what_it_lacks_while_the_gang_gathers(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    """Its attempt was too short for standbys."""
    worker = gathering(workers, tmp_path)
    operator.order(start(workers=2, per_worker=2))
    operator.until(lambda s: s.steps == (1, 1), worker="run-1-1")
    before = worker.output.count("standby ready")
    operator.order(Hold(attempt=2))
    eventually(lambda: worker.output.count("standby ready") == before + 2, what="two standbys")
    operator.order(start(2, workers=2, per_worker=2))
    assert operator.until(lambda s: s.steps == (2, 2), worker="run-1-1").warm == 2


def test_a_worker_of_a_run_of_unknown_size_starts_cold(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    """As an operator leaves it that says nothing of it."""
    worker = gathering(workers, tmp_path, of=0)
    operator.order(Hold(attempt=1))
    operator.until(lambda s: s.held and s.held.attempt == 1, worker="run-1-1")
    operator.order(start(workers=2, per_worker=2))
    assert operator.until(lambda s: s.steps == (1, 1), worker="run-1-1").warm == 0
    worker.shows("rank 2: cold start: it has no standby yet")


def test_standbys_end_where_the_run_ends_before_an_attempt(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = gathering(workers, tmp_path)
    eventually(lambda: worker.output.count("standby ready") == 2, what="two standbys")
    pids = standbys_of(worker)
    operator.order(Exit())
    assert worker.code() == 0
    eventually(lambda: not any(map(alive, pids)), what="the standbys' end")


def test_what_cannot_be_imported_does_not_keep_a_first_attempt_from_its_start(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = gathering(workers, tmp_path, preload="no_such_module")
    worker.shows("workers.warmStart has no effect from now on: 3 standbys in a row failed")
    operator.order(start(workers=2, per_worker=2))
    told = operator.until(lambda s: s.steps == (1, 1), worker="run-1-1")
    assert [p.type for p in operator.until(lambda s: s.problems, worker="run-1-1").problems] == [
        "ColdStarts"
    ]
    assert (told.warm, told.exits) == (0, ())


def test_a_module_that_cannot_be_imported_ends_the_attempts_to_keep_standbys(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = training(operator, workers, tmp_path, preload=("no_such_module",))
    worker.shows(
        "workers.warmStart has no effect from now on: 3 standbys in a row failed: it ended: "
        "ModuleNotFoundError: No module named 'no_such_module'"
    )
    again(operator)
    eventually(lambda: worker.output.count("trains") == 2)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ((sys.executable, "-I", "SCRIPT"), "python -I ignores PYTHONPATH"),
        (
            ("bash", "-c", f"exec {sys.executable} SCRIPT"),
            "bash is not a Python interpreter; write the",
        ),
    ],
)
def test_another_command_starts_cold_with_a_line_that_says_why(
    operator: OperatorStandIn,
    workers: Workers,
    tmp_path: Path,
    command: tuple[str, ...],
    why: str,
) -> None:
    words = tuple(word.replace("SCRIPT", str(tmp_path / "train.py")) for word in command)
    worker = training(operator, workers, tmp_path, preload=("decimal",), command=words)
    worker.shows(f"workers.warmStart has no effect: {why}")
    again(operator)
    worker.shows("rank 0: cold start: ")
    assert worker.output.count("WARNING workers.warmStart has no effect") == 1
    assert standbys_of(worker) == []


def test_an_interpreter_that_reads_no_pythonpath_never_runs_the_script_as_a_standby(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    wrapper = tmp_path / "python3"
    wrapper.write_text(
        f'#!/bin/sh\nPYTHONPATH={os.pathsep.join(sys.path)} exec {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    command = (str(wrapper), str(tmp_path / "train.py"))
    worker = training(operator, workers, tmp_path, preload=("decimal",), command=command)
    worker.shows(
        "has no effect from now on: 3 standbys in a row failed: its interpreter does not run"
    )
    assert worker.output.count("trains") == 1


def test_a_sitecustomize_of_the_user_runs_before_the_script_once(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(count)!r}, 'a').write('x')")
    (tmp_path / "check.py").write_text(
        "import os, sys, trainrun\n"
        "assert sys.modules['sitecustomize'].__file__.startswith(os.path.dirname(__file__))\n"
        "exec(open(os.path.join(os.path.dirname(__file__), 'train.py')).read())\n"
    )
    command = (sys.executable, str(tmp_path / "check.py"))
    worker = training(operator, workers, tmp_path, preload=("decimal",), command=command)
    worker.shows("standby ready")
    before = count.read_text()
    again(operator)
    worker.shows("warm start")
    assert count.read_text().startswith(before)
    assert worker.output.count("trains") == 2


def test_a_standby_ends_with_its_agent(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    worker = training(operator, workers, tmp_path, preload=("decimal",))
    worker.shows("standby ready")
    [pid] = standbys_of(worker)
    worker.kill()
    eventually(lambda: not alive(pid), what="the standby's end")


# ---------------------------------------------------------------- torch


@pytest.mark.rare(
    "tests/agent/processes/test_warm_start.py::test_a_script_cannot_tell_a_warm_start_from_a_cold_one"
)
def test_torch_that_was_imported_before_is_as_if_the_script_had_done_it(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    found = tmp_path / "found.json"
    seen = []
    for preload in ((), ("torch",)):
        command = (sys.executable, str(OF_TORCH))
        worker = workers.start("", command=command, preload=preload, env={"FOUND": str(found)})
        operator.order(start())
        operator.until(lambda s: s.steps == (1,))
        if preload:
            worker.shows("standby ready", timeout=200)
        operator.order(Hold(attempt=2))
        operator.until(lambda s: s.phase == "Idle" and s.held and s.held.attempt == 2)
        operator.order(start(2))
        [end] = operator.until(lambda s: s.attempt == 2 and s.exits, timeout=200).exits
        assert end.code == 0, "\n".join(end.last_lines)
        worker.kill()
        assert ("warm start" in worker.output) == bool(preload)
        seen.append(json.loads(found.read_text()))
    cold, warm = seen
    assert warm["modules"] > cold["modules"] + 500
    assert differences_of_torch(cold, warm) == []
    of_both = {name: len(cold["loaders"][name]) for name in ("fork", "spawn")}
    assert of_both == {"fork": 4, "spawn": 4}
    assert cold["loaders"]["a lost one"] == "DataLoader worker "
