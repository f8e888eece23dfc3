"""A sweep whose TrainSweep comes from a backup that was restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.sweeping.led import KeptLog, Led
from tests.kube.fake_api import status
from tests.kube.waiting import until
from tests.worlds.kubernetes.sweeps import a_document
from trainrun_operator.kube.api import KubeApi

if TYPE_CHECKING:
    from typing import Any

    from tests.kube.fake_api import FakeApi


def a_sweep(version: int, **spec: Any) -> dict[str, Any]:
    document = a_document(**spec)
    metadata = {**document["metadata"], "generation": version, "resourceVersion": str(version)}
    return {**document, "metadata": metadata}


async def test_after_a_restore_of_etcd_a_sweep_is_led_from_what_was_restored(
    fake: FakeApi,
) -> None:
    """Its leader went by the version of before, and each of its writes met a conflict."""

    def versions() -> list[str]:
        sweeps = [body for body in fake.bodies if body.get("kind") == "TrainSweep"]
        return [body["metadata"]["resourceVersion"] for body in sweeps]

    api = await KubeApi.connect()
    led = Led(api=api, namespace="team", log=KeptLog(deaf=True))
    fake.things, fake.version = [a_sweep(900)], 1000
    async with led.operator():
        await until(lambda: "900" in versions())
        fake.things, fake.version = [a_sweep(80, suspend=True)], 90
        await fake.emit("ERROR", status(410, "Expired", "too old"))
        await until(lambda: "80" in versions())
    await api.close()
