"""From a TrainRun to what the core decides by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import seconds
from trainrun.contract.answer import FolderRule
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.core.run.config import config_of, template_hash


def a_resource(**spec: Any) -> TrainRun:
    container = {"name": "worker", "image": "img:1", "command": ["python", "train.py"]}
    plain: dict[str, Any] = {
        "workers": {"replicas": 4, "template": {"spec": {"containers": [container]}}},
        "storage": {"uri": "s3://bucket/prefix"},
    }
    return TrainRun.model_validate(
        {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainRun",
            "metadata": {"name": "digits", "uid": "u-1"},
            "spec": plain | spec,
        }
    )


def test_every_field_that_decisions_need_is_taken_over() -> None:
    run = a_resource(
        suspend=True,
        storage={"uri": "s3://bucket/prefix/", "runName": "other", "onExisting": "Fail"},
        checkpoint={"flushTimeout": "7s", "maxPending": 5, "onNotice": "Signal"},
        failurePolicy={
            "maxFailures": 3,
            "maxPreemptions": -1,
            "backoff": {"initial": "2s", "factor": 3, "max": "90s"},
        },
        health={
            "heartbeatTimeout": "40s",
            "startTimeout": "6m",
            "placementTimeout": "2m",
            "progressTimeout": "3m",
            "firstStepTimeout": "20m",
            "hangPolicy": "Restart",
        },
        activeDeadline="2h",
        ttlAfterFinished="0s",
        retainFailedWorkers=7,
    )
    config = config_of(run)
    assert (config.name, config.uid, config.replicas) == ("digits", "u-1", 4)
    assert config.checkpoints_uri == "s3://bucket/prefix/other/checkpoints"
    assert (config.suspend, config.on_existing) == (True, "Fail")
    assert config.limits == {"failures": 3, "preemptions": -1}
    assert (config.backoff_initial, config.backoff_factor, config.backoff_max) == (
        seconds(2),
        3.0,
        seconds(90),
    )
    assert (config.heartbeat_timeout, config.start_timeout) == (seconds(40), seconds(360))
    assert (config.placement_timeout, config.retain_failed_workers) == (seconds(120), 7)
    assert (config.progress_timeout, config.first_step_timeout) == (seconds(180), seconds(1200))
    assert (config.flush_timeout, config.max_pending) == (seconds(7), 5)
    assert (config.on_notice, config.hang_policy) == ("Signal", "Restart")
    assert (config.active_deadline, config.ttl_after_finished) == (seconds(7200), seconds(0))


@pytest.mark.parametrize(
    ("given", "every", "seen"),
    [("30s", "5m", 300), ("7m", "5m", 420), ("30s", "24h", 600), ("0s", "5m", 0)],
)
def test_a_restart_waits_for_an_upload_as_long_as_its_steps_may_take_again(
    given: str, every: str, seen: float
) -> None:
    config = config_of(a_resource(checkpoint={"flushTimeout": given, "uploadEvery": every}))
    assert config.flush_timeout == seconds(seen)
    assert config.settings.upload_every in (300.0, 86_400.0)


@pytest.mark.parametrize(
    ("grace", "seen"), [(None, 30), (90, 90), (-5, 0), (10**12, 86_400), ("90", 30), (True, 30)]
)
def test_the_grace_is_that_of_the_templates_pods(grace: object, seen: int) -> None:
    container = {"name": "worker", "image": "img:1", "command": ["python", "train.py"]}
    pod = {"containers": [container]}
    pod |= {"terminationGracePeriodSeconds": grace} if grace is not None else {}
    config = config_of(a_resource(workers={"replicas": 4, "template": {"spec": pod}}))
    assert config.grace == seconds(seen)


def test_the_folder_of_a_script_is_handed_to_its_agents() -> None:
    folder = {
        "path": "out",
        "newest": "checkpoint-*",
        "complete": ["*/state.json"],
        "settle": "5s",
        "resumeArgs": ["--resume", "{newest}"],
        "resumeArgsFrom": "SecondAttempt",
        "carry": False,
    }
    assert config_of(a_resource(checkpoint={"folder": folder})).settings.folder == FolderRule(
        path="out",
        newest="checkpoint-*",
        complete=("*/state.json",),
        settle=5.0,
        resume_args=("--resume", "{newest}"),
        from_second_attempt=True,
        carry=False,
    )


def test_what_is_absent_stays_absent() -> None:
    config = config_of(a_resource())
    assert config.settings.folder is None
    assert (config.active_deadline, config.ttl_after_finished) == (None, None)
    assert (config.progress_timeout, config.first_step_timeout) == (None, None)
    assert "preemptions" not in config.limits
    assert config.checkpoints_uri == "s3://bucket/prefix/digits/checkpoints"
    assert config.world_size == 4


def test_the_hash_follows_the_template_and_nothing_else() -> None:
    run = a_resource()
    same = a_resource(failurePolicy={"maxFailures": 9})
    other = a_resource(
        workers={
            "replicas": 4,
            "template": {
                "spec": {"containers": [{"name": "worker", "image": "img:2", "command": ["a"]}]}
            },
        }
    )
    assert template_hash(run.spec.workers) == template_hash(same.spec.workers)
    assert template_hash(run.spec.workers) != template_hash(other.spec.workers)
    assert len(template_hash(run.spec.workers)) == 12


def test_workers_with_other_standbys_have_another_hash() -> None:
    template = {"spec": {"containers": [{"name": "worker", "image": "img:1", "command": ["a"]}]}}
    hashes = {
        template_hash(a_resource(workers={"template": template, **more}).spec.workers)
        for more in (
            {},
            {"warmStart": {}},
            {"warmStart": {"preload": ["torch"]}},
            {"warmStart": {"preload": ["torch", "transformers"]}},
        )
    }
    assert len(hashes) == 3


def test_another_way_in_for_the_agent_is_another_hash() -> None:
    template = {"spec": {"containers": [{"name": "worker", "image": "img:1", "command": ["a"]}]}}
    plain, injected, inside = (
        template_hash(a_resource(workers={"template": template, **more}).spec.workers)
        for more in ({}, {"agent": "Inject"}, {"agent": "InImage"})
    )
    assert plain == injected
    assert plain != inside
