"""Sweeps on a real API server: what their user sees where something is refused, gone, or away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import yaml

from tests.cluster.sweeping.led import CRD, NAME, KeptLog, Led, becomes
from trainrun.sweep.records import Ask, Tell
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.cluster.sweeping import clerks
from trainrun_operator.core.sweep.clerking import ClerkTrouble
from trainrun_operator.kube.errors import Forbidden

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi


@pytest_asyncio.fixture
async def led(api: KubeApi, trainruns: TrainRuns) -> AsyncIterator[Led]:
    trainruns.install(CRD, name=TRAINSWEEP.name)
    yield Led(api=api, namespace=trainruns.namespace, log=KeptLog())


async def test_a_trial_object_deleted_by_hand_comes_back(led: Led) -> None:
    await led.apply()
    async with led.operator():
        await becomes(led.trials, len, "the first trial is there")
        before = led.log.view.trials[0].params
        await led.api.delete(TRAINRUN.path(led.namespace, f"{NAME}-00000"))
        (again,) = (await becomes(led.trials, len, "it is there again")).values()
    template = json.dumps(again["spec"]["workers"]["template"])
    assert f'"TRAINRUN_PARAM_LR", "value": "{before["lr"]}"' in template
    assert [it.trial for it in led.log.records if isinstance(it, Ask)] == [0]


async def test_a_sweep_is_led_under_the_crd_of_the_next_version(
    led: Led, trainruns: TrainRuns, tmp_path: Path
) -> None:
    """Neither its operator nor its clerk knew the field that the newer CRD had filled in."""
    crd = yaml.safe_load(CRD.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    new = {"type": "string", "default": "5m"}
    spec = schema["properties"]["spec"]["properties"]
    spec["patience"] = spec["objective"]["properties"]["patience"] = new
    newer = tmp_path / "newer.yaml"
    newer.write_text(yaml.safe_dump(crd))
    trainruns.install(newer, name=TRAINSWEEP.name)
    try:
        await led.apply()
        async with led.operator():
            await becomes(led.trials, len, "the first trial is there")
            sweep = await led.api.get(TRAINSWEEP.path(led.namespace, NAME))
    finally:
        trainruns.install(CRD, name=TRAINSWEEP.name)
    assert sweep["spec"]["patience"] == sweep["spec"]["objective"]["patience"] == "5m"
    assert sweep["status"].get("reason") != "InvalidSpec"


async def test_an_operator_that_dies_leaves_trials_that_the_next_one_finds(led: Led) -> None:
    await led.apply(maxConcurrent=2)
    async with led.operator():
        before = await becomes(led.trials, lambda it: len(it) == 2, "two trials are there")
    await led.end_trial(f"{NAME}-00000", reason="MaxFailuresExceeded", message="it broke")
    assert len(led.log.records) == 3, "a session and two trials: nobody has told the end"

    async with led.operator():
        await becomes(led.trials, lambda it: f"{NAME}-00002" in it, "the next one has its slot")
        now = await led.trials()
    assert {it: now[it]["metadata"]["uid"] for it in before} == {
        name: it["metadata"]["uid"] for name, it in before.items()
    }, "a failed one stays for its logs"
    assert [it.trial for it in led.log.records if isinstance(it, Ask)] == [0, 1, 2]
    assert [it.reason for it in led.log.records if isinstance(it, Tell)] == ["MaxFailuresExceeded"]


async def test_when_all_trials_fail_they_are_counted_the_sweep_fails_and_its_clerk_leaves(
    led: Led,
) -> None:
    await led.apply(budget={"trials": 2})
    async with led.operator():
        for number in range(2):
            name = f"{NAME}-{number:05}"
            await becomes(led.trials, lambda it, name=name: name in it, f"{name} is there")
            await led.end_trial(name, reason="MaxFailuresExceeded", message="no GPU")
        status = await becomes(led.status, lambda it: it.get("phase") == "Failed", "it fails")
        await becomes(led.clerks, lambda it: not it, "the clerk has left")
    assert (status["reason"], status["trials"]["errored"]) == ("NoTrialSucceeded", 2)
    assert await led.condition("Failed") == (
        "True",
        "NoTrialSucceeded",
        "all 2 trials have ended, 0 with success; `trainrun explain` tells why",
    )
    assert [it.reason for it in led.events].count("TrialErrored") == 2


async def test_a_quota_that_refuses_runs_is_waited_for_and_told_without_a_storm(led: Led) -> None:
    hard = {"hard": {"count/trainruns.trainrun.dev": "0"}}
    path = f"/api/v1/namespaces/{led.namespace}/resourcequotas"
    body = {"metadata": {"name": "none"}, "spec": hard}
    await led.api.post(path, body)
    # What a controller would count; none runs here.
    quota = {**await led.api.get(f"{path}/none"), "status": {**hard, "used": hard["hard"]}}
    await led.api.put(f"{path}/none/status", quota)
    await led.apply(maxConcurrent=3)
    async with led.operator():
        status = await becomes(
            led.status, lambda it: it.get("reason") == "TrialRefused", "the refusal is told"
        )
        assert f"the TrainRun {NAME}-00000 cannot be created" in status["message"]
        assert "exceeded quota: none" in status["message"]
        assert await led.trials() == {}
        assert led.log.view.asked == 3, "no more are asked for than can be at work"

        await led.api.delete(f"{path}/none")
        await becomes(led.trials, lambda it: len(it) == 3, "they are created once there is room")
        await becomes(led.status, lambda it: it["reason"] == "TrialsAtWork", "it is taken back")


async def test_a_parameter_that_does_not_exist_is_named_in_the_status(led: Led) -> None:
    container = {"name": "worker", "command": ["python3", "t.py", "$(TRAINRUN_PARAM_RL)"]}
    run = {"workers": {"template": {"spec": {"containers": [container]}}}}
    await led.apply(run=run)
    async with led.operator():
        status = await becomes(led.status, lambda it: it.get("reason"), "a word about it")
    assert status["reason"] == "InvalidSpec"
    assert (
        'spec.run.workers.template.spec.containers[0].command[2]: "$(TRAINRUN_PARAM_RL)" is not '
        "allowed: it must not refer to "
        "TRAINRUN_PARAM_RL, which no parameter of space or fixed becomes; there: TRAINRUN_PARAM_LR"
    ) in status["message"]
    assert await led.trials() == {}


async def test_a_store_that_is_away_is_told_and_trials_go_on_until_it_is_back(led: Led) -> None:
    await led.apply()
    async with led.operator():
        before = await becomes(led.trials, len, "the first trial is there")
        assert await led.condition("StorageReady") == ("", "", "")
        led.log.trouble = ClerkTrouble(reason="StorageUnavailable", message="s3://bucket: no route")

        async def store() -> tuple[str, str, str]:
            return await led.condition("StorageReady")

        await becomes(
            store,
            lambda it: it == ("False", "StorageUnavailable", "s3://bucket: no route"),
            "the store is told as away",
        )
        assert (await led.status())["reason"] == "StorageUnavailable"
        assert (await led.trials()).keys() == before.keys()
        led.log.trouble = None
        await becomes(
            store,
            lambda it: it == ("True", "Resolved", "the store answers again"),
            "the store is told as back",
        )


async def test_a_clerk_that_runs_out_of_memory_again_and_again_is_told_as_such(led: Led) -> None:
    led.log.deaf = True
    await led.apply()
    async with led.operator():
        (name,) = await becomes(led.clerks, len, "a clerk is there")
        ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
        waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}

        async def told() -> tuple[str, str, str]:
            return await led.condition("ClerkReady")

        for restarts, reason in ((2, "NoClerk"), (3, "OutOfMemory")):
            container = {
                "name": "clerk",
                "image": "ours",
                "imageID": "",
                "ready": False,
                "restartCount": restarts,
                "state": waits,
                "lastState": ended,
            }
            await led.set_pod(name, phase="Running", containerStatuses=[container])
            found = await becomes(told, lambda it, r=reason: it[1] == r, f"{reason} is told")
        assert found[2].startswith(
            f"the clerk's pod {name} was ended 3 times for using more than its memory, 1Gi; trials "
            "go on"
        )
        assert "lead it by `trainrun run` on a machine with more memory" in found[2]


async def test_a_sweep_on_tainted_nodes_as_root_with_a_volume_tmp_has_a_clerk(led: Led) -> None:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "trainrun", "mountPath": "/scratch"}]
    worker = {"name": "worker", "image": "train", "command": ["train"], "volumeMounts": mounts}
    pod = {
        "serviceAccountName": "trainer",
        "securityContext": {"runAsUser": 0},
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "containers": [worker],
    }
    await led.apply(run={"workers": {"template": {"spec": pod}}})
    async with led.operator():
        await becomes(led.clerks, len, "the API server takes the pod")


async def test_a_clerk_whose_image_may_not_be_pulled_tells_where_a_secret_is_missing(
    led: Led,
) -> None:
    led.log.deaf = True
    await led.apply()
    async with led.operator():
        (name,) = await becomes(led.clerks, len, "a clerk is there")
        waits = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "ours"'}
        container = {
            "name": "clerk",
            "image": "ours",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": waits},
        }
        await led.set_pod(name, phase="Pending", containerStatuses=[container])

        async def told() -> tuple[str, str, str]:
            return await led.condition("ClerkReady")

        found = await becomes(told, lambda it: "image" in it[2], "the image is told")
    assert found == (
        "False",
        "NoClerk",
        f"the clerk's pod {name} waits: the operator's image cannot be pulled here; where its "
        "registry asks who pulls, spec.run.workers.template must name a Secret of this namespace "
        'in imagePullSecrets: ImagePullBackOff: Back-off pulling image "ours"',
    )


async def test_a_clerk_that_may_not_be_deleted_is_told_and_no_other_is_made_beside_it(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> dict[str, Any]:
        raise Forbidden("pods are forbidden: not today")

    async def told() -> tuple[str, str, str]:
        return await led.condition("ClerkReady")

    led.log.deaf = True
    await led.apply()
    async with led.operator():
        (name,) = await becomes(led.clerks, len, "a clerk is there")
        with monkeypatch.context() as patched:
            patched.setattr(led.api, "delete", refuse)
            await led.set_pod(name, phase="Failed")
            found = await becomes(told, lambda it: "deleted" in it[2], "the refusal is told")
            assert found == (
                "False",
                "NoClerk",
                f"the clerk's pod {name} cannot be deleted: pods are forbidden: not today",
            )
            assert [*await led.clerks()] == [name]
        await becomes(led.clerks, lambda it: [*it] == [f"{NAME}-clerk-2"], "the next one is there")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_clerk_that_has_ended_is_replaced_by_the_next(led: Led, phase: str) -> None:
    await led.apply()
    async with led.operator():
        (first,) = await becomes(led.clerks, len, "a clerk is there")
        await led.set_pod(first, phase=phase)
        names = await becomes(led.clerks, lambda it: it and first not in it, "another one is there")
    assert [*names] == [f"{NAME}-clerk-2"]


async def test_a_clerk_that_runs_and_says_nothing_is_replaced(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clerks, "DEAF", timedelta(seconds=2))
    led.log.deaf = True
    await led.apply()
    async with led.operator():
        (first,) = await becomes(led.clerks, len, "a clerk is there")
        await led.set_pod(first, phase="Running")
        names = await becomes(led.clerks, lambda it: it and first not in it, "another one is there")
        assert [*names] == [f"{NAME}-clerk-2"]
