"""A sweep from whose template no pod can be made, neither a trial's nor its clerk's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.sweeping.led import KeptLog, Led
from tests.cluster.sweeping.test_restored import a_sweep
from tests.kube.waiting import until
from trainrun_operator.kube.api import KubeApi

if TYPE_CHECKING:
    from tests.kube.fake_api import FakeApi


TWO = [{"name": name, "command": ["train"]} for name in ("logs", "pytorch")]


@pytest.mark.case(
    "nodes",
    "The template has several containers, and none is called worker",
    counted="a new run fails",
)
@pytest.mark.parametrize(
    ("pod", "problem"),
    [
        ({"volumes": ["data"]}, 'volumes[0]: "data" is a string; a mapping is needed'),
        (
            {"containers": TWO},
            'containers: logs, pytorch: none of these is named "worker"; rename the container '
            "that trains to worker",
        ),
    ],
)
async def test_its_user_is_told_of_the_field_and_no_trial_is_begun(
    fake: FakeApi, pod: dict[str, Any], problem: str
) -> None:
    """Its leader failed every two seconds by a TypeError, and nothing was told."""
    api = await KubeApi.connect()
    led = Led(api=api, namespace="team", log=KeptLog(deaf=True))
    fake.things = [a_sweep(7, pod=pod)]
    async with led.operator():
        await until(lambda: bool(led.events))
    await api.close()

    (written,) = fake.bodies
    message = f"spec.run.workers.template.spec.{problem}"
    assert written["metadata"]["resourceVersion"] == "7"
    assert (written["status"]["reason"], written["status"]["message"]) == ("InvalidSpec", message)
    assert [(event.reason, event.message) for event in led.events] == [("InvalidSpec", message)]
