"""How many tasks a worker runs at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainrun.contract.environment import ProcessPlace
from trainrun.tasks import worker as module
from trainrun.tasks.worker import cpus_of, devices_of


def place(**environ: int | str) -> ProcessPlace:
    return ProcessPlace.read({name: str(value) for name, value in environ.items()})


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(module, "CGROUP", tmp_path)


ELSEWHERE = {"MASTER_ADDR": "10.1.2.3"}


def test_the_ranks_of_a_worker_share_its_cpus_and_gpus() -> None:
    of_pod = place(WORLD_SIZE=4, LOCAL_WORLD_SIZE=2, LOCAL_RANK=1, **ELSEWHERE)
    assert cpus_of(of_pod, {}) == 4.0
    assert devices_of(of_pod, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}) == ("5", "7")


def test_workers_on_one_machine_share_its_cpus() -> None:
    assert cpus_of(place(WORLD_SIZE=4, MASTER_ADDR="127.0.0.1"), {}) == 2.0


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "250000 100000"}, 2.5),
        ({"cpu.max": "max 100000"}, 8.0),
        ({"cpu.max": "50000 100000"}, 1.0),  # so that a task fits
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8.0),
        ({}, 8.0),
    ],
)
def test_a_container_has_what_its_cgroup_allows(
    files: dict[str, str], cpus: float, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cpus_of(place(**ELSEWHERE), {}) == cpus


def test_the_user_s_number_counts() -> None:
    assert cpus_of(place(**ELSEWHERE), {"TRAINRUN_TASKS_CPUS": "0.5"}) == 0.5
    with pytest.raises(ValueError, match="TRAINRUN_TASKS_CPUS is 'many'; set it to a number"):
        cpus_of(place(**ELSEWHERE), {"TRAINRUN_TASKS_CPUS": "many"})


@pytest.mark.parametrize("visible", ["", "-1"])
def test_hidden_gpus_are_not_used(visible: str) -> None:
    assert devices_of(place(), {"CUDA_VISIBLE_DEVICES": visible}) == ()
