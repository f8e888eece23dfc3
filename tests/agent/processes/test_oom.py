"""Out of memory, told from the counters of a memory cgroup, made up or real."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import AGENT, Worker, Workers, start
from tests.support.memory_cgroup import MemoryCgroup, memory_cgroup
from trainrun._common.kernel import OomCounter, find_counter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.operator_stand_in import OperatorStandIn

LIMIT = 256 << 20

JOIN = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
"""Enter the group, then start the agent."""

SHOW = """
set -e
echo $$ > "$0/cgroup.procs"
group="$0" place="$1"
shift
exec unshare --mount $NEW_CGROUP sh -c '
    mount --make-rprivate /
    mount --bind "$0" "$1"
    shift
    exec "$@"
' "$group" "$place" "$@"
"""
"""The same, and see nothing but the group where cgroups are mounted, as a container does."""

TWO_RANKS = """
import os, signal, time
if os.environ["LOCAL_RANK"] == "0":
    print("allocating", flush=True)
    data = bytearray(os.urandom(1)) * (512 << 20)
else:
    while not os.path.exists("die"): time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def group() -> Iterator[MemoryCgroup]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may make cgroups and namespaces")
    with memory_cgroup(LIMIT) as made:
        yield made


def check(operator: OperatorStandIn, workers: Workers, worker: Worker) -> None:
    operator.order(start(per_worker=2))
    state = operator.until(lambda s: s.exits, timeout=60)
    assert (state.exits[0].rank, state.exits[0].signal, state.exits[0].oom) == (0, 9, True)
    (workers.folder / "die").touch()
    state = operator.until(lambda s: len(s.exits) == 2)
    assert (state.exits[1].signal, state.exits[1].oom) == (9, False)
    worker.shows("rank 0 was killed by SIGKILL (out of memory)")
    worker.kill()


@pytest.mark.case("processes", "The kernel kills a process for memory", counted="maxFailures")
def test_a_process_that_the_kernel_kills_for_memory_is_told_apart_from_one_that_is_killed(
    operator: OperatorStandIn, workers: Workers, group: MemoryCgroup
) -> None:
    agent = ["sh", "-c", JOIN, str(group.path), *AGENT]
    check(operator, workers, workers.start(TWO_RANKS, agent=agent, processes_per_worker=2))


@pytest.mark.parametrize("namespace", ["", "--cgroup"])
def test_a_container_that_sees_its_own_group_alone_finds_its_counter(
    operator: OperatorStandIn, workers: Workers, group: MemoryCgroup, namespace: str
) -> None:
    worker = workers.start(
        TWO_RANKS,
        agent=["sh", "-c", SHOW, str(group.path), str(group.mount), *AGENT],
        env={"NEW_CGROUP": namespace},
        processes_per_worker=2,
    )
    check(operator, workers, worker)


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
