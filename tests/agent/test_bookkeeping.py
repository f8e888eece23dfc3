"""Staging, waiting, tails, counters and ports: the parts without processes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from trainrun.agent import background, children, port
from trainrun.agent.config import AgentConfig, BadConfig, Fault, StorageConfig
from trainrun.agent.faults import Faults
from trainrun.agent.folders import Folders
from trainrun.agent.messages import MalformedLine, Report, parse
from trainrun.agent.oom import OomCounter, find_counter
from trainrun.agent.rooms import Rooms
from trainrun.agent.staging import Staging
from trainrun.agent.tail import KEPT_LINES, Tail, find_exception
from trainrun.agent.waiting import checkpoint_waiting


def staging(*ranks: int) -> Staging:
    return Staging(ranks or (0, 1))


def bring(steps: Staging, rank: int, step: int, **more: object) -> bool:
    values = {"metrics": {}, "whole": False, "after_save": False, "now": 0.0, **more}
    wanted = steps.bring(rank, step, Path(f"{rank}/{step}"), **values)  # type: ignore[arg-type]
    steps.passes(rank, step)
    return wanted


def test_a_part_is_complete_when_every_rank_has_passed_its_step() -> None:
    steps = staging()
    bring(steps, 0, 5)
    assert not steps.complete(5)
    assert steps.passes(1, 7), "somebody waited for that"
    assert steps.complete(5)
    assert [entry.step for entry in steps.uploadable()] == [5]


def test_a_rank_that_exited_well_passes_every_step() -> None:
    steps = staging()
    bring(steps, 0, 5)
    steps.exited_well(1)
    assert steps.complete(5)


def test_whole_files_wait_for_nobody() -> None:
    steps = staging()
    bring(steps, 0, 5, whole=True)
    assert steps.complete(5)


def test_the_metrics_of_a_step_are_those_of_the_lowest_rank_that_brought_files() -> None:
    steps = staging()
    bring(steps, 1, 5, metrics={"loss": 1})
    bring(steps, 0, 5, metrics={"loss": 0})
    [entry] = steps.uploadable()
    assert (entry.step, entry.metrics) == (5, {"loss": 0})


def test_a_commit_forgets_older_steps_but_lists_what_was_asked_for() -> None:
    steps = staging(0)
    bring(steps, 0, 5)
    bring(steps, 0, 6, after_save=True)
    bring(steps, 0, 7)
    assert sorted(map(str, steps.commit(6))) == ["0/5", "0/6"]
    assert [(s.step, s.uploaded) for s in steps.describe(1.0)] == [(6, True), (7, False)]
    assert not bring(steps, 0, 6), "nobody wants it any more"


def test_a_dropped_step_is_told_and_never_comes_back() -> None:
    steps = staging(0)
    bring(steps, 0, 5)
    assert steps.drop(5) == [Path("0/5")]
    steps.open([5], 0.0)
    assert not bring(steps, 0, 5)
    assert steps.dropped == (5,)
    assert steps.describe(0.0) == ()


def test_a_step_whose_marker_is_out_is_not_dropped() -> None:
    steps = staging(0)
    bring(steps, 0, 5)
    steps.uploaded(5, [0])
    assert steps.drop(5) == []
    assert steps.dropped == ()


def test_a_silent_rank_is_named_with_step_and_remedy() -> None:
    steps = staging()
    bring(steps, 0, 40)
    assert checkpoint_waiting(steps, (0, 1), 29.0, 30.0) is None
    problem = checkpoint_waiting(steps, (0, 1), 31.0, 30.0)
    assert problem is not None
    assert problem.type == "CheckpointWaiting"
    assert problem.message == (
        "rank 1 has not reported step 40 or a later one, for which rank 0 brought checkpoint files "
        "more than 30 s ago: the checkpoint waits. Call trainrun.report(step=40) on every rank, or "
        "report(..., whole=True) on the rank that saves everything"
    )


def test_ranks_that_wait_for_another_worker_are_named_too() -> None:
    steps = staging(2, 3)
    steps.open([40], 0.0)
    problem = checkpoint_waiting(steps, (2, 3), 31.0, 30.0)
    assert problem is not None
    assert problem.message.startswith("ranks 2, 3 have not reported step 40")
    assert "for which another worker brought" in problem.message


def test_a_rank_that_has_died_is_not_blamed_for_silence() -> None:
    steps = staging()
    bring(steps, 0, 40)
    assert checkpoint_waiting(steps, (0,), 31.0, 30.0) is None


def test_the_last_exception_of_several_tracebacks_is_found() -> None:
    lines = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
    raise my.pkg.Odd("b")
my.pkg.Odd: b
some noise: after it""".splitlines()
    assert find_exception(lines) == "my.pkg.Odd: b"


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/python3: can't open file '/x/train.py': [Errno 2] No such file or directory",
        "/usr/bin/python3.11: No module named train",
        "python: can't find '__main__' module in '/x'",
    ],
)
def test_what_python_says_when_it_has_no_program_is_a_failed_start(line: str) -> None:
    assert find_exception(["noise", line]) == f"StartFailed: {line}"


def test_ordinary_output_tells_of_no_exception() -> None:
    assert find_exception(["epoch 1: loss 0.3", "ValueError: only printed"]) == ""


def test_the_tail_is_bounded_in_lines_and_width() -> None:
    tail = Tail()
    for number in range(KEPT_LINES + 5):
        tail.add(f"{number} " + "x" * 1000)
    assert len(tail.last_lines) == 20
    assert tail.last_lines[-1].startswith(f"{KEPT_LINES + 4} ")
    assert {len(line) for line in tail.last_lines} == {400}


def test_both_versions_of_the_memory_cgroup_are_found(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    one = tmp_path / "one"
    (one / "memory/pod").mkdir(parents=True)
    (one / "memory/pod/memory.oom_control").write_text("under_oom 0\noom_kill 3\n")
    own.write_text("4:cpu:/\n3:memory:/pod\n")
    assert find_counter(one, own) == one / "memory/pod/memory.oom_control"
    two = tmp_path / "two"
    two.mkdir()
    (two / "memory.events").write_text("oom 1\noom_kill 1\n")
    own.write_text("0::/kubepods/pod-1\n")
    assert find_counter(two, own) == two / "memory.events", "a container sees its group as root"
    assert find_counter(tmp_path / "none", own) is None


def test_a_rise_of_the_oom_counter_explains_one_death(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom_kill 1\n")
    counter = OomCounter(file)
    assert not counter.rose()
    file.write_text("oom_kill 2\n")
    assert counter.rose()
    assert not counter.rose()
    file.unlink()
    assert not counter.rose()


def test_the_offered_port_lies_outside_the_ephemeral_range() -> None:
    low, high = port.ephemeral_range()
    found = port.pick_port()
    assert not low <= found <= high


def test_a_port_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not port.can_bind(server.getsockname()[1])


def test_no_free_port_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "can_bind", lambda _: False)
    with pytest.raises(port.NoFreePort, match=r"outside the ephemeral range .*ip_local_port_range"):
        port.pick_port()


def test_the_configuration_survives_its_json() -> None:
    config = AgentConfig(
        run="r",
        run_uid="u",
        slot=3,
        worker="r-3-1",
        operator_url="http://x",
        directory="/d",
        cache="/c",
        storage=StorageConfig(uri="file:///s", run_name="r", region="eu"),
        processes_per_worker=2,
        command=("python", "t.py"),
        env={"A": "1"},
        parent_pid=7,
        gpus=(1, 2),
        faults=(Fault(rank=1, step=2),),
    )
    assert AgentConfig.from_json(config.to_json()) == config
    assert config.first_rank == 6


def test_a_bad_configuration_names_the_field() -> None:
    with pytest.raises(BadConfig, match="field run is missing"):
        AgentConfig.from_json("{}")


def test_messages_of_unknown_type_are_ignored_and_broken_ones_named() -> None:
    assert parse(b'{"type":"telepathy"}') is None
    assert parse(b'{"type":"report","step":3,"metrics":{"a":1},"new":1}') == Report(
        step=3, metrics={"a": 1}, files=None, whole=False
    )
    for line in (b"x", b"[]", b'{"type":"report"}', b'{"type":"report","step":"3"}'):
        with pytest.raises(MalformedLine, match="not a message of the library"):
            parse(line)


def test_files_outside_the_staging_folder_are_not_taken() -> None:
    with pytest.raises(MalformedLine, match="no directory name"):
        parse(b'{"type":"report","step":3,"files":"../../etc"}')


def test_a_deep_folder_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    folders = Folders(str(deep))
    folders.prepare()
    assert len(str(folders.socket(1))) < 100
    folders.close()


def test_files_of_lower_attempts_are_forgotten(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path))
    for attempt in (1, 2, 10):
        folders.of_rank(attempt, 0)
    folders.forget_below(10)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["attempt-10"]


def test_a_fault_strikes_once_at_its_step_or_the_first_after_it() -> None:
    faults = Faults([Fault(rank=1, step=10)])
    assert not faults.strikes(1, 9)
    assert not faults.strikes(0, 10)
    assert faults.strikes(1, 12)
    assert not faults.strikes(1, 12)


async def test_a_bug_in_the_background_is_told_and_ends_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> None:
        raise KeyError("surprise")

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    background.crash_on_errors(loop, ended.set_result)
    background.run(broken())
    assert await ended == background.CRASHED
    assert "an error that it cannot handle ends the agent" in caplog.text
    assert "surprise" in caplog.text


async def test_room_is_given_to_the_other_ranks_of_a_step_that_has_it() -> None:
    steps = staging(0, 1)
    rooms = Rooms(staging=steps, max_pending=1)
    await rooms.wait(0, 5)
    await rooms.wait(1, 5)
    bring(steps, 0, 5)
    rooms.staged(0)
    next_step = asyncio.create_task(rooms.wait(0, 6))
    await asyncio.sleep(0)
    assert not next_step.done(), "step 5 fills the backlog"
    assert rooms.stall(time.monotonic() + 9.0) > 8.0
    bring(steps, 1, 5)
    rooms.staged(1)
    steps.uploaded(5, [0, 1])
    rooms.wake()
    await next_step


async def test_ranks_that_wait_for_room_together_stall_the_training_once() -> None:
    steps = staging(0, 1)
    rooms = Rooms(staging=steps, max_pending=1)
    bring(steps, 0, 5)
    bring(steps, 1, 5)
    waiting = [asyncio.create_task(rooms.wait(rank, 6)) for rank in (0, 1)]
    await asyncio.sleep(0)
    assert 8.0 < rooms.stall(time.monotonic() + 9.0) < 10.0
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert rooms.stall(time.monotonic() + 9.0) < 1.0, "nobody waits any more"


async def test_a_step_that_nobody_wants_any_more_needs_no_room() -> None:
    steps = staging(0)
    rooms = Rooms(staging=steps, max_pending=1)
    bring(steps, 0, 5)
    steps.drop(7)
    steps.commit(3)
    await rooms.wait(0, 7)
    await rooms.wait(0, 2)


def test_children_are_found_on_kernels_that_do_not_list_them() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert child.pid in children._children_by_scan(os.getpid())
            assert child.pid in children.children()
        finally:
            child.kill()
