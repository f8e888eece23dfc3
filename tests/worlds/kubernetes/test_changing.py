"""Two users who change one TrainSweep, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.trainruns import CRD
from tests.worlds.kubernetes.sweeps import a_document
from trainrun_operator.worlds.kubernetes.user_client import TRIES, ClusterRefused, change_sweep

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion


@pytest.fixture
def objects(trainruns: TrainRuns) -> TrainRuns:
    """With the TrainSweep `lr`."""
    file = CRD.with_name("trainrun.dev_trainsweeps.yaml")
    trainruns.install(file, name="trainsweeps.trainrun.dev")
    trainruns.create_sweep({**a_document(), "metadata": {"name": "lr"}})
    return trainruns


class Users:
    """One adds trial 1 to pausedTrials; `in_between` others have written since he looked."""

    def __init__(self, objects: TrainRuns, *, in_between: int) -> None:
        self.objects = objects
        self.left = in_between
        self.looked = 0

    def decide(self, version: SweepVersion) -> Mapping[str, object]:
        self.looked += 1
        if self.left:
            self.left -= 1
            paused = [*version.sweep.spec.paused_trials, 10 + self.looked]
            self.patch({"spec": {"pausedTrials": paused}})
        return {"pausedTrials": (*version.sweep.spec.paused_trials, 1)}

    def patch(self, change: dict[str, Any]) -> None:
        self.objects.kubectl(
            "patch", "trainsweep", "lr", "--type=merge", f"--patch={json.dumps(change)}"
        )

    def paused(self) -> list[int]:
        text = self.objects.kubectl("get", "trainsweep", "lr", "--output=json")
        found: list[int] = json.loads(text)["spec"]["pausedTrials"]
        return found


def test_what_another_user_has_written_meanwhile_stays(objects: TrainRuns) -> None:
    users = Users(objects, in_between=2)
    change_sweep("lr", objects.namespace, users.decide)
    assert users.paused() == [11, 12, 1]
    assert users.looked == 3


def test_a_sweep_that_never_rests_is_left_alone(objects: TrainRuns) -> None:
    users = Users(objects, in_between=TRIES)
    with pytest.raises(ClusterRefused) as caught:
        change_sweep("lr", objects.namespace, users.decide)
    assert str(caught.value) == (
        f"{objects.namespace}/lr was not changed: it was modified concurrently 10 times. Retry"
    )
    assert 1 not in users.paused()
