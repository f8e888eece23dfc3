from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.builders import BEGIN
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.cluster.helm_test import lived, story, verdict

if TYPE_CHECKING:
    from tests.kube.fake_api import FakeApi


async def test_it_leaves_a_run_of_a_user_that_has_its_name_alone(fake: FakeApi) -> None:
    metadata = {"name": "trainrun-test", "namespace": "ml"}
    fake.objects[TRAINRUN.path("ml", "trainrun-test")] = {"metadata": metadata}
    ours = {"metadata": {**metadata, "labels": {"app.kubernetes.io/name": "trainrun-test"}}}
    with pytest.raises(SystemExit, match="ml has a TrainRun trainrun-test that a user made"):
        await lived(ours, 60.0)
    assert not fake.of("delete")


def test_it_is_content_with_a_run_that_resumed_once_and_says_what_else_it_finds() -> None:
    resumed = Incident(attempt=1, cause="AppError", time=BEGIN)
    resumed = replace(resumed, resumed_from=CheckpointId(attempt=1, step=20))
    good = TrainRunStatus(phase="Succeeded", restarts=1, incidents=(resumed,))

    assert verdict(good) == ""
    assert verdict(TrainRunStatus()) == "the run is Pending, and not Succeeded"
    failed = replace(good, phase="Failed", reason="MaxFailuresExceeded")
    assert verdict(failed) == "the run is Failed MaxFailuresExceeded, and not Succeeded"
    assert verdict(replace(good, restarts=0)) == "the run was restarted 0 times, and not once"
    scratch = replace(good, incidents=(replace(resumed, resumed_from=None),))
    assert verdict(scratch) == "the run began again without its checkpoint"


def test_it_tells_what_ended_an_attempt_and_where_the_time_went() -> None:
    lost = Incident(
        attempt=1,
        cause="AppError",
        time=BEGIN,
        message="rank 0 was killed by SIGKILL",
        resumed_from=CheckpointId(attempt=1, step=20),
        recovery_seconds=2.04,
        stages={"detect": 0.04, "import": 2.0},
    )
    assert story(TrainRunStatus(incidents=(lost,), spent={"useful": 20.0, "rework": 0.5})) == (
        "attempt 1 ended: rank 0 was killed by SIGKILL (AppError)\n"
        "the next one continued from step 20, 2.0 s after the loss: detect 0.0 s, import 2.0 s\n"
        "time went into: useful 20.0 s, rework 0.5 s"
    )
