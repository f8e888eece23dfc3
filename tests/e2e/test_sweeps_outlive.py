"""What a search outlives: its operator's death at each step of a trial, its whole cluster's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from testbed.cluster import Cluster
from testbed.faults import nodes
from tests.e2e.support.bed import Bed
from tests.e2e.support.cluster_sweep import ClusterSweep, parameters, written_once
from tests.e2e.support.installation import Installation
from tests.support.eventually import eventually
from trainrun.sweep.records import Ask, Tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.cluster


def asked(sweep: ClusterSweep, trial: int) -> bool:
    return any(isinstance(it, Ask) and it.trial == trial for it in sweep.log()[1])


def created(sweep: ClusterSweep, trial: int) -> bool:
    return f"search-{trial:05d}" in sweep.trials()


def in_phase(sweep: ClusterSweep, trial: int, phase: str) -> bool:
    run = sweep.trials().get(f"search-{trial:05d}", {})
    return bool(run.get("status", {}).get("phase") == phase)


def told(sweep: ClusterSweep, trial: int) -> bool:
    return any(isinstance(it, Tell) and it.trial == trial for it in sweep.log()[1])


def saved(sweep: ClusterSweep, step: int) -> bool:
    """Trial 0 has committed a checkpoint of this step."""
    key = f"sweeps/search/trials/00000/checkpoints/step-{step:09d}-attempt-1/manifest.json"
    listed = sweep.bed.s3.list_objects_v2(Bucket=sweep.bed.bucket, Prefix=key)
    return bool(listed["KeyCount"])


SAVED = 10
"""A step that a trial has saved."""

STEPS: Mapping[str, Callable[[ClusterSweep], bool]] = {
    "nothing is asked yet": lambda _: True,
    "trial 0 is asked": lambda sweep: asked(sweep, 0),
    "the run of trial 1 is created": lambda sweep: created(sweep, 1),
    "trial 2 trains": lambda sweep: in_phase(sweep, 2, "Running"),
    "the run of trial 3 has ended": lambda sweep: in_phase(sweep, 3, "Succeeded") or told(sweep, 3),
    "the end of trial 4 is told": lambda sweep: told(sweep, 4),
}


@pytest.mark.rare(
    "tests/simulation/sweep/test_sweep_lives.py::test_an_operator_may_die_before_any_of_its_effects"
)
def test_a_search_comes_out_the_same_though_its_operator_is_killed_at_each_step_of_a_trial(
    bed: Bed, installation: Installation
) -> None:
    sweep = ClusterSweep(bed, maxConcurrent=1)
    for what, reached in STEPS.items():
        eventually(functools.partial(reached, sweep), timeout=90, what=what)
        leader = installation.wait_for_leader()
        installation.kubectl("delete", "pod", leader, "--wait=false", "--grace-period=0", "--force")

    status = sweep.wait_for_phase("Succeeded")
    assert status["trials"]["text"] == "6/6"
    view, records = sweep.log()
    written_once(records)
    assert len(view.sessions) == 1
    assert sum(it.restarts for it in view.trials.values()) == 0, "no training noticed"
    assert {it.step for it in records if isinstance(it, Tell)} == {20}, "the last report counts"
    values = {n: it.value for n, it in view.trials.items()}
    assert status["best"]["trial"] == min(values, key=lambda n: values[n] or 0.0)
    eventually(lambda: sweep.trials() == {}, timeout=30, what="no run is left")


@pytest.fixture
def doomed(cluster: Cluster, images: dict[str, Path]) -> Iterator[Cluster]:
    """A second cluster with the operator; its workers store in the first one's S3 server."""
    second = Cluster(f"{cluster.name}-doomed")
    second.up(list(images.values()))
    try:
        installed = Installation(second)
        installed.install("--set", "replicas=1")
        installed.wait_for_leader(seconds=60)
        yield second
    finally:
        second.down()


@pytest.mark.rare(
    "tests/simulation/sweep/test_each_crash.py::test_everything_dies_once_reports_are_in_the_log"
)
def test_a_search_whose_whole_cluster_is_lost_goes_on_in_another_one(
    bed: Bed, doomed: Cluster
) -> None:
    options: dict[str, Any] = {"args": ("--steps=60", "--pause=0.3"), "budget": {"trials": 2}}
    there = ClusterSweep(Bed(doomed, bed.namespace, store=bed.store), **options)
    eventually(lambda: saved(there, SAVED), timeout=300, what="trial 0 has saved")
    before = parameters(there.log()[1])
    for node in doomed.nodes:
        nodes.power_off(doomed, node.name)
    doomed.down()

    here = ClusterSweep(bed, **options)
    status = here.wait_for_phase("Succeeded", seconds=300)
    view, records = here.log()
    written_once(records)
    assert status["trials"]["text"] == "2/2"
    assert len(view.sessions) == 2
    assert {n: parameters(records)[n] for n in before} == before
    (end,) = (it for it in records if isinstance(it, Tell) and it.trial == 0)
    assert (end.attempt, end.step) == (2, 60)
    assert end.resumed >= SAVED
