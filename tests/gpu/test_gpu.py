"""Processes with a context on a GPU: how they die, what is free afterwards, what they come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.conftest import Trainings
from tests.support.eventually import eventually
from tests.worlds.local.local_runs import TIMEOUT, Driver, LocalRuns
from trainrun.contract.variables import STANDBY_NAME

HELD = "0.6"
"""Of the GPU's memory: two processes with it do not fit."""
WARM = {"workers": {"warmStart": {"preload": ["torch"]}}}


@pytest.mark.parametrize("wrap", ["", "DDP", "FSDP2", "compile"])
def test_a_run_that_is_killed_on_a_gpu_ends_with_the_bits_of_an_undisturbed_one(
    trainings: Trainings, wrap: str
) -> None:
    calm = trainings.run(WRAP=wrap)
    expected = trainings.result()
    ended = trainings.run(WRAP=wrap, END="killed")
    assert (calm.incidents, trainings.result()) == ([], expected)
    (incident,) = ended.incidents
    assert (incident["cause"], incident["exitCode"]) == ("AppError", 137)
    assert incident["resumedFrom"]["step"] == 4


def test_two_ranks_that_share_a_gpu_end_with_the_bits_of_an_undisturbed_run(
    trainings: Trainings,
) -> None:
    trainings.run(ranks=2, WRAP="DDP")
    expected = trainings.result()
    ended = trainings.run(ranks=2, WRAP="DDP", END="killed")
    assert [incident["rank"] for incident in ended.incidents] == [0]
    assert trainings.result() == expected


@pytest.mark.parametrize("end", ["killed", "crashed", "exited"])
def test_memory_of_a_process_that_died_inside_a_kernel_is_free_for_the_next_attempt(
    trainings: Trainings, end: str
) -> None:
    ended = trainings.run(END=end, HELD=HELD)
    assert [incident["attempt"] for incident in ended.incidents] == [1]


@pytest.mark.case(
    "decisions", "A process dies of a known CUDA, NCCL or DataLoader error", counted="its cause"
)
@pytest.mark.parametrize(
    ("end", "exception", "remedy"),
    [
        ("asserted", "device-side assert triggered", "an index out of range"),
        ("illegal", "an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING=1"),
        ("full", "CUDA out of memory", "lower the batch"),
    ],
)
def test_an_error_of_the_gpu_is_told_with_what_helps(
    trainings: Trainings, end: str, exception: str, remedy: str
) -> None:
    ended = trainings.run(END=end, HELD=HELD)
    (incident,) = ended.incidents
    assert incident["cause"] == "AppError"
    assert exception in incident["message"]
    assert remedy in incident["message"]


@pytest.mark.case("decisions", "A process dies or hangs inside a GPU kernel", counted="its cause")
def test_a_kernel_that_never_ends_is_a_hang_and_its_memory_is_free_afterwards(
    trainings: Trainings,
) -> None:
    health = {"heartbeatTimeout": "6s", "progressTimeout": "5s", "firstStepTimeout": "2m"}
    ended = trainings.run(END="hung", HELD=HELD, spec={"health": health})
    (incident,) = ended.incidents
    assert incident["cause"] == "Hung"
    told = "rank 0 computes, or waits for its GPU (100 % of a core) in `<module>` (train.py:"
    assert told in incident["message"]


def on_the_gpu(pid: int) -> bool:
    """Whether this process has opened a GPU."""
    opened = (path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir())
    return any(name.startswith("nvidia") for name in opened)


def standby_of(runs: LocalRuns, driver: Driver) -> int:
    """Once it is ready."""
    eventually(lambda: "standby ready" in driver.out.read_text(), timeout=TIMEOUT, what="a standby")
    [pid] = [pid for pid in runs.our_processes() if comm(pid) == STANDBY_NAME]
    return pid


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize("wrap", ["DDP", "FSDP2"])
def test_a_standby_takes_nothing_of_the_gpu_and_starts_with_the_same_bits(
    trainings: Trainings, wrap: str
) -> None:
    trainings.run(WRAP=wrap)
    expected = trainings.result()
    until = trainings.folder / "go"
    runs = trainings.prepare(WRAP=wrap, END="killed", UNTIL=str(until), HELD=HELD, spec=WARM)
    driver = runs.start()
    standby = standby_of(runs, driver)
    assert not on_the_gpu(standby)
    assert any(on_the_gpu(pid) for pid in runs.our_processes())
    until.touch()
    ended = driver.end()
    (incident,) = ended.incidents
    assert (ended.code, incident["warm"]) == (0, 1)
    assert trainings.result() == expected
