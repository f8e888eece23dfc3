"""Workers that a real API server refuses to make: what the user sees, and when that ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.cluster.office import Office
from tests.cluster.test_installations import TEMPLATE
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.core.run.gang import roster
from trainrun_operator.core.run.stages import placement
from trainrun_operator.kube.errors import Conflict
from trainrun_operator.worlds.kubernetes import pod_writes

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@dataclass(frozen=True, kw_only=True)
class Led:
    """One run that is led in this process; nobody runs its pods."""

    api: KubeApi
    runs: TrainRuns
    office: Office

    async def see(self) -> dict[str, Any]:
        """The run as it is now; the office sees it, too."""
        path = TRAINRUN.path(self.runs.namespace, "digits")
        raw = await self.api.get(path)
        self.office.sees(raw)
        return raw

    async def condition(self, type_: str) -> tuple[str, str, str]:
        conditions = (await self.see()).get("status", {}).get("conditions", [])
        found = [(c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == type_]
        return found[0] if found else ("", "", "")

    async def becomes(self, type_: str, reason: str) -> str:
        """Wait until the condition has this reason; its message."""
        async with asyncio.timeout(60):
            while (found := await self.condition(type_))[1] != reason:
                await asyncio.sleep(0.05)
        return found[2]

    async def pods(self) -> list[str]:
        path = f"/api/v1/namespaces/{self.runs.namespace}/pods"
        return sorted(it["metadata"]["name"] for it in await self.api.list_all(path))


@pytest_asyncio.fixture
async def led(
    api: KubeApi, trainruns: TrainRuns, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Led]:
    monkeypatch.setattr(placement, "PATIENCE", timedelta(seconds=0.5))
    monkeypatch.setattr(pod_writes, "LONGEST_OUTAGE_PAUSE", 1.0)
    monkeypatch.setattr(pod_writes, "LONGEST_PAUSE", 1.0)
    monkeypatch.setattr(roster, "QUOTA_SETTLES", timedelta(seconds=0.5))
    office = Office()
    around = office.around(api, trainruns.namespace)
    around.pods.follow()
    reading = [asyncio.create_task(informer.run()) for informer in around.pods.informers]
    office.manager.lead(around)
    yield Led(api=api, runs=trainruns, office=office)
    await office.manager.stop()
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


def webhook(namespace: str) -> dict[str, Any]:
    """One that must be asked for each pod of this namespace, and is away."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    hook = {
        "name": "policy.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    return {"metadata": {"name": f"policy-{namespace}"}, "webhooks": [hook]}


@pytest.mark.case("nodes", "A webhook is away, or the API server refuses a creation for now")
async def test_a_webhook_that_is_away_is_told_in_its_words_and_edits_are_observed(led: Led) -> None:
    """The condition was OperatorError, the status stayed as it was, and no edit was observed."""
    body = webhook(led.runs.namespace)
    await led.api.post(WEBHOOKS, body)
    try:
        led.runs.create(workers={"replicas": 2, "template": TEMPLATE})
        message = await led.becomes("WorkersReady", "Unavailable")
        assert message.startswith("2 of 2 workers cannot be created: Internal error occurred: ")
        assert 'failed calling webhook "policy.example.com"' in message
        assert await led.condition("OperatorError") == ("", "", "")

        edit = json.dumps({"spec": {"failurePolicy": {"maxFailures": 7}}})
        led.runs.kubectl("patch", "trainrun", "digits", "--type=merge", f"--patch={edit}")

        async def observed() -> bool:
            raw = await led.see()
            return bool(raw["status"]["observedGeneration"] == raw["metadata"]["generation"] == 2)

        async with asyncio.timeout(60):
            while not await observed():
                await asyncio.sleep(0.05)
    finally:
        await led.api.delete(f"{WEBHOOKS}/{body['metadata']['name']}")
    async with asyncio.timeout(60):
        while len(await led.pods()) < 2:
            await asyncio.sleep(0.05)
    assert (await led.see())["status"].get("failures", {}).get("counted", 0) == 0


class Quota:
    """Two pods of a namespace, ended ones included. Nobody but the test counts here what has gone:
    the controller of quotas runs on no testbed."""

    def __init__(self, led: Led) -> None:
        self._led, self._hard = led, {"count/pods": "2"}
        self._path = f"/api/v1/namespaces/{led.runs.namespace}/resourcequotas"

    async def begin(self) -> None:
        await self._led.api.post(
            self._path, {"metadata": {"name": "small"}, "spec": {"hard": self._hard}}
        )
        await self.count()

    async def count(self) -> None:
        path = f"{self._path}/small"
        used = {"count/pods": str(len(await self._led.pods()))}
        known = await self._led.api.get(path)
        with contextlib.suppress(Conflict):  # the API server counts a creation at this moment
            await self._led.api.put(
                f"{path}/status", known | {"status": {"hard": self._hard, "used": used}}
            )


async def test_a_worker_that_ended_before_it_joined_makes_room_in_its_quota(led: Led) -> None:
    """Its pod took the place of its own replacement, for ever."""
    quota = Quota(led)
    await quota.begin()
    led.runs.create(workers={"replicas": 2, "template": TEMPLATE})
    async with asyncio.timeout(60):
        while len(await led.pods()) < 2:
            await led.see()
            await asyncio.sleep(0.05)
    path = f"/api/v1/namespaces/{led.runs.namespace}/pods/digits-1-1"
    pod = await led.api.get(path)
    killed = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "it was active too long"}
    await led.api.put(f"{path}/status", pod | {"status": pod["status"] | killed})

    async with asyncio.timeout(60):
        while await led.pods() != ["digits-0-1", "digits-1-2"]:
            await led.see()
            await quota.count()
            await asyncio.sleep(0.1)
    status = (await led.see())["status"]
    assert status["phase"] == "Pending"
    assert status["internal"]["failedStarts"] == {"1": 1}
    assert "AttemptSkipped" in [it.reason for it in led.office.events]
