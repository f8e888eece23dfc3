"""Sweeps on a real API server: what their user sees where something is refused, gone, or away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import yaml

from tests.cluster.sweeping.led import CRD, NAME, KeptLog, Led, becomes
from tests.kube.api_server import POWERLESS_TOKEN
from tests.kube.patching import patch
from trainrun.sweep.records import Ask, Tell
from trainrun_operator.api.crd import RESOURCES
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.cluster.sweeping import clerks
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Conflict, Forbidden, KubeError
from trainrun_operator.runtime import sweep_leader
from trainrun_operator.worlds.kubernetes.observing.facts import KUEUE
from trainrun_operator.worlds.kubernetes.sweep_objects import sweep_version

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.trainruns import TrainRuns


@pytest_asyncio.fixture
async def led(api: KubeApi, trainruns: TrainRuns) -> AsyncIterator[Led]:
    trainruns.install(CRD, name=TRAINSWEEP.name)
    yield Led(api=api, namespace=trainruns.namespace, log=KeptLog())


@pytest.mark.case("sweeps", "The TrainRun of an open trial is deleted by hand")
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
        "all 2 trials have ended, 0 with success; `trainrun explain` shows why",
    )
    assert [it.reason for it in led.events].count("TrialErrored") == 2


@pytest.mark.case("sweeps", "TrainRuns of trials are refused (quota, policy)")
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
        "TRAINRUN_PARAM_RL: no parameter of space or fixed sets it; known: TRAINRUN_PARAM_LR"
    ) in status["message"]
    assert await led.trials() == {}


@pytest.mark.case("operator", "A TrainRun or TrainSweep is larger than 512 KiB")
async def test_a_sweep_that_is_too_large_says_so_and_what_runs_goes_on(led: Led) -> None:
    await led.apply()
    path = TRAINSWEEP.path(led.namespace, NAME)

    async def edit(unread: str) -> None:
        while True:
            sweep = await led.api.get(path)
            sweep["spec"]["run"]["workers"]["template"]["spec"]["unread"] = unread
            try:
                await led.api.put(path, sweep)
            except Conflict:
                continue
            return

    async with led.operator():
        trials = await becomes(led.trials, len, "the first trial is there")
        await edit("x" * 900_000)
        status = await becomes(led.status, lambda it: it.get("reason") == "TooLarge", "it is told")
        assert [it["type"] for it in status["conditions"]].count("TooLarge") == 1
        assert (await led.trials()).keys() == trials.keys()

        await edit("x" * 100_000)
        status = await becomes(led.status, lambda it: it["reason"] != "TooLarge", "it is led again")
        assert "TooLarge" not in [it["type"] for it in status["conditions"]]


async def test_a_sweep_that_was_deleted_under_somebodys_finalizer_says_so_once(led: Led) -> None:
    """It stayed `Running`, and nobody led it."""
    await led.apply()
    path = TRAINSWEEP.path(led.namespace, NAME)
    keepers = ["example.com/archive", "example.com/audit"]
    await patch(led.api, path, {"metadata": {"finalizers": keepers}})
    async with led.operator():
        await becomes(led.trials, len, "the first trial is there")
        await led.api.delete(path)
        await becomes(led.status, lambda it: it["phase"] == "Terminating", "it is told")
    message = (
        "the TrainSweep was deleted: it no longer starts, pauses or stops trials. The object "
        "and its remaining TrainRuns disappear once these finalizers are removed: "
        "example.com/archive, example.com/audit"
    )
    assert await led.condition("Deleted") == ("True", "Finalizers", message)
    written = await led.api.get(path)
    told = sweep_version(written).status
    assert (told.reason, told.message) == ("Deleted", message)

    async with led.operator():
        await patch(led.api, path, {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(1)
    assert [it.message for it in led.events if it.reason == "Deleted"] == [message]
    await patch(led.api, path, {"metadata": {"finalizers": []}})


async def test_a_large_sweep_is_led_with_the_rights_that_the_chart_gives(
    led: Led, trainruns: TrainRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again for each pass, which no role allowed: it was never led."""
    rights = {right for resource in RESOURCES for right in resource.rights()}
    rights |= {("pods", verb) for verb in ("get", "list", "watch", "create", "delete")}
    rules = [
        {"apiGroups": [name.partition(".")[2]], "resources": [name.split(".")[0]], "verbs": [verb]}
        for name, verb in rights
    ]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{led.namespace}"
    await led.api.post(f"{roles}/roles", {"metadata": {"name": "operator"}, "rules": rules})
    trainruns.kubectl("create", "rolebinding", "operator", "--role=operator", "--user=nobody")
    await led.apply()
    large = {"template": {"unread": "x" * 70_000}}
    await patch(
        led.api, TRAINSWEEP.path(led.namespace, NAME), {"spec": {"run": {"workers": large}}}
    )
    config = trainruns.server.kubeconfig(tmp_path / "config", token=POWERLESS_TOKEN)
    monkeypatch.setenv("KUBECONFIG", str(config))
    api = await KubeApi.connect()

    async with replace(led, api=api).operator():
        await becomes(led.trials, len, "the first trial is there")
    await api.close()


async def test_a_store_that_is_away_is_told_and_trials_go_on_until_it_is_back(led: Led) -> None:
    await led.apply()
    async with led.operator():
        before = await becomes(led.trials, len, "the first trial is there")
        assert await led.condition("StorageReady") == ("", "", "")
        led.log.trouble = ClerkUnknown(reason="StorageUnavailable", message="s3://bucket: no route")

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


@pytest.mark.case("sweeps", "The store refuses the clerk")
async def test_a_clerk_with_a_wrong_secret_is_made_anew_until_the_store_takes_it(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a new pod sees a Secret that was changed; trials go on, and the sweep does not fail."""
    monkeypatch.setattr(clerks, "RENEWED_AFTER", (1, 2))
    storage = {"uri": "s3://bucket/sweeps", "credentialsSecretRef": {"name": "keys"}}
    await led.apply(storage=storage)
    async with led.operator():
        before = await becomes(led.trials, len, "the first trial is there")
        await led.set_pod(f"{NAME}-clerk-1", phase="Running")
        refused = "cannot read s3://bucket/sweeps: InvalidAccessKeyId"
        led.log.trouble = ClerkUnknown(reason="StorageMisconfigured", message=refused)
        for number in (2, 3):
            name = f"{NAME}-clerk-{number}"
            await becomes(led.clerks, lambda it, name=name: [*it] == [name], "made anew")
            await led.set_pod(name, phase="Running")
        for kind in ("StorageReady", "ClerkReady"):
            assert await led.condition(kind) == (
                "False",
                "StorageMisconfigured",
                f"the store refuses the clerk: {refused}. Correct the credentials of "
                "spec.storage.credentialsSecretRef (Secret keys), or what the store names; the "
                "operator replaces the clerk from time to time to try again",
            )
        assert (await led.trials()).keys() == before.keys()
        led.log.trouble = None
        await becomes(lambda: led.condition("StorageReady"), lambda it: it[0] == "True", "back")
        assert [*await led.clerks()] == [name]
        assert (await led.status())["phase"] == "Running"


@pytest.mark.parametrize(
    ("refused", "age", "anew"),
    [
        (0, 9000, False),  # the store has not refused it, or has answered since
        (29, 9000, False),
        (30, 9000, True),
        (60, 30, False),
        (90, 60, True),
        (209, 119, False),
        (210, 120, True),
        (509, 299, False),
        (9000, 300, True),
    ],
)
def test_refused_clerks_are_made_anew_after_half_a_minute_one_two_and_then_five(
    refused: int, age: int, *, anew: bool
) -> None:
    assert clerks.is_renewed(timedelta(seconds=refused), timedelta(seconds=age)) is anew


async def test_a_clerk_that_waited_long_for_its_node_is_not_deaf_when_it_begins(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clerks, "DEAF", timedelta(seconds=4))
    led.log.deaf = True
    await led.apply()
    async with led.operator():
        (first,) = await becomes(led.clerks, len, "a clerk is there")
        await asyncio.sleep(5)
        await led.set_pod(first, phase="Running")
        await asyncio.sleep(2)
        assert [*await led.clerks()] == [first]


@pytest.mark.case("sweeps", "A clerk cannot start, runs out of memory or cannot reach the store")
async def test_a_clerk_that_runs_out_of_memory_again_and_again_is_told_as_such(led: Led) -> None:
    led.log.deaf = True
    await led.apply()
    async with led.operator():
        (name,) = await becomes(led.clerks, len, "a clerk is there")
        ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
        waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}

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
            found = await becomes(
                led.clerk_ready, lambda it, r=reason: it[1] == r, f"{reason} is told"
            )
        assert found[2].startswith(
            f"the clerk's pod {name} ran out of memory 3 times (limit 1Gi); trials continue"
        )
        assert "Raise spec.clerk.resources.limits.memory" in found[2]
        await led.edit(clerk={"resources": {"limits": {"memory": "2Gi"}}})
        names = await becomes(led.clerks, lambda it: [*it] == [f"{NAME}-clerk-2"], "a larger one")
    (container,) = names[f"{NAME}-clerk-2"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "2Gi"}


async def bounded(led: Led, kind: str, spec: dict[str, Any], **status: Any) -> None:
    """By an object of the namespace that admission goes by."""
    path = f"/api/v1/namespaces/{led.namespace}/{kind}"
    made = await led.api.post(path, {"metadata": {"name": "b"}, "spec": spec})
    if status:
        await led.api.put(f"{path}/b/status", {**made, "status": status})


async def is_refused(led: Led, why: str) -> None:
    """The clerk; its user reads why, and one event says so."""
    found = await becomes(
        led.clerk_ready, lambda it: it[1] == "ClerkRefused", "the refusal is told"
    )
    assert found[2].startswith("the API server refuses the clerk's pod: ")
    assert why in found[2]
    assert (await led.status())["reason"] == "ClerkRefused"
    assert [it.message for it in led.events if it.reason == "ClerkRefused"] == [found[2]]
    assert await led.clerks() == {}


async def is_refused_until_its_limits_are(led: Led, why: str, **limits: str) -> None:
    led.log.deaf = True
    await led.apply()
    async with led.operator():
        await is_refused(led, why)
        await led.edit(clerk={"resources": {"limits": limits}})
        await becomes(led.clerks, len, "it is made")


async def test_a_quota_that_demands_a_limit_of_cpu_refuses_the_clerk_until_it_has_one(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_leader, "LOOK_AGAIN", 0.2)
    hard = {"limits.cpu": "2"}
    await bounded(led, "resourcequotas", {"hard": hard}, hard=hard, used={"limits.cpu": "0"})
    await is_refused_until_its_limits_are(led, "must specify limits.cpu", cpu="500m")


async def test_a_range_that_allows_less_memory_refuses_the_clerk_until_it_wants_less(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_leader, "LOOK_AGAIN", 0.2)
    limit = {"type": "Container", "max": {"memory": "256Mi"}}
    await bounded(led, "limitranges", {"limits": [limit]})
    why = "maximum memory usage per Container is 256Mi"
    await is_refused_until_its_limits_are(led, why, memory="100Mi")


@pytest.mark.case("nodes", "A webhook is away, or the API server refuses a creation for now")
async def test_a_webhook_that_is_away_refuses_the_clerk_in_the_servers_words(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_leader, "LOOK_AGAIN", 0.2)
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook = {
        "name": "away.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": led.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    led.log.deaf = True
    await led.api.post(path, {"metadata": {"name": led.namespace}, "webhooks": [hook]})
    await led.apply()
    async with led.operator():
        await is_refused(led, 'failed calling webhook "away.example.com"')
        await led.api.delete(f"{path}/{led.namespace}")
        await becomes(led.clerks, len, "it is made")


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

        found = await becomes(led.clerk_ready, lambda it: "image" in it[2], "the image is told")
    assert found == (
        "False",
        "NoClerk",
        f"the clerk's pod {name} waits: the operator's image cannot be pulled here; if its "
        "registry needs credentials, spec.run.workers.template must name a Secret of this "
        'namespace in imagePullSecrets: ImagePullBackOff: Back-off pulling image "ours"',
    )


@pytest.mark.case("nodes", "A scheduling gate holds back workers, e.g. Kueue's")
async def test_a_clerk_that_kueue_queues_tells_what_kueue_must_know(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_leader, "LOOK_AGAIN", 0.2)
    led.log.deaf = True
    await as_kueue_does(led)
    await led.apply()
    async with led.operator():
        found = await becomes(led.clerk_ready, lambda it: it[1] == "NoClerk", "the gate is told")
    assert found[2].startswith(
        f"the clerk's pod {NAME}-clerk-1 waits: the scheduling gate kueue.x-k8s.io/admission holds "
        "it back: Kueue queues each pod by itself. Name TrainRun.v1alpha1.trainrun.dev and "
    )


async def as_kueue_does(led: Led) -> None:
    """The gate that its webhook adds to every pod of a namespace with a default LocalQueue."""
    name = led.namespace
    gate = f'Object.spec.schedulingGates{{name: "{KUEUE}"}}'
    change = f"Object{{spec: Object.spec{{schedulingGates: [{gate}]}}}}"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": change},
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": chosen},
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
    }
    kinds = {
        "mutatingadmissionpolicies": policy,
        "mutatingadmissionpolicybindings": {"policyName": name},
    }
    for kind, spec in kinds.items():
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
        await led.api.post(path, {"metadata": {"name": name}, "spec": spec})

    async def gated() -> bool:
        pod = {
            "metadata": {"generateName": "p-"},
            "spec": {"serviceAccountName": "x", "containers": [{"name": "c", "image": "i"}]},
        }
        made = await led.api.post(f"/api/v1/namespaces/{name}/pods", pod)
        return "schedulingGates" in made["spec"]

    await becomes(gated, bool, "the policy is in force")


@pytest.mark.parametrize(("refusal", "status"), [(Forbidden, 403), (Conflict, 409)])
async def test_a_clerk_that_may_not_be_deleted_is_told_and_no_other_is_made_beside_it(
    led: Led, monkeypatch: pytest.MonkeyPatch, refusal: type[KubeError], status: int
) -> None:
    """After a webhook that says 409 the pod was not seen any more, and another one was made."""

    async def refuse(*_: object, **__: object) -> dict[str, Any]:
        raise refusal("pods are forbidden: not today", status=status)

    led.log.deaf = True
    await led.apply()
    async with led.operator():
        (name,) = await becomes(led.clerks, len, "a clerk is there")
        with monkeypatch.context() as patched:
            patched.setattr(led.api, "delete", refuse)
            await led.set_pod(name, phase="Failed")
            found = await becomes(
                led.clerk_ready, lambda it: "deleted" in it[2], "the refusal is told"
            )
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
