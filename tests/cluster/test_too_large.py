"""Objects of a megabyte: told to their users, and no matter for anybody else."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.office import Office, raw
from tests.cluster.test_installations import SOON, TEMPLATE, Place
from tests.kube.waiting import until
from tests.support.eventually import eventually
from tests.support.kstatus import kstatus
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Conflict
from trainrun_operator.worlds.kubernetes.run_object import RunObject, managed_version
from trainrun_operator.worlds.kubernetes.trimmed_objects import LARGEST, PACKED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.fake_api import FakeApi
    from tests.support.trainruns import TrainRuns


def with_text(
    size: int, *, name: str = "run", uid: str = "uid-1", version: int = 1, **more: Any
) -> dict[str, Any]:
    """A run whose template holds so much that nobody reads, and that does not shrink."""
    found = {**TRAINRUN.head(), **raw(name, uid=uid, version=version, **more)}
    text = random.Random(1).randbytes(size // 2).hex()
    spec = {**found["spec"]["workers"]["template"]["spec"], "unread": text}
    found["spec"]["workers"] = {"replicas": 2, "template": {"spec": spec}}
    return found


async def test_a_run_that_is_led_goes_on_by_its_spec_before_when_it_becomes_too_large() -> None:
    office = Office()
    office.sees(raw(failurePolicy={"maxFailures": 7}))

    office.sees(with_text(LARGEST, version=2, failurePolicy={"maxFailures": 3}))

    assert office.max_failures() == [7]
    assert office.events == [], "its own condition tells it"
    office.sees(raw(version=3, failurePolicy={"maxFailures": 3}))
    assert office.max_failures() == [3]


def test_what_is_too_large_is_known_and_why() -> None:
    run = RunObject(managed_version(with_text(1000)))

    assert run.learn(with_text(LARGEST, version=2))

    assert run.current.number == 2
    assert run.too_large.startswith("the object is too large: 512 KiB (limit 512 KiB). Move large")


def test_a_run_that_is_too_large_from_the_first_is_not_led_and_comes_back_when_it_shrinks() -> None:
    office = Office()
    for _ in range(3):
        office.sees(with_text(LARGEST), raw("other", uid="other"))
    assert office.uids() == {"uid-1", "other"}
    assert len(office.max_failures()) == 1

    office.sees(raw(version=2), raw("other", uid="other"))

    assert len(office.max_failures()) == 2


async def test_gitops_tools_see_that_a_run_that_is_too_large_needs_its_user(fake: FakeApi) -> None:
    """It was in progress for ever."""
    office, api = Office(), await KubeApi.connect()
    office.manager.lead(office.around(api))
    large = with_text(LARGEST)
    office.sees(large)
    await until(lambda: fake.bodies and office.events)
    told = {**large, "status": fake.bodies[0]["status"]}
    office.sees(told)
    await office.manager.stop()
    await api.close()
    assert kstatus(told)[0] == "Failed"
    assert [it["type"] for it in told["status"]["conditions"]] == ["TooLarge", "Stalled"]
    assert [it.reason for it in office.events] == ["TooLarge"]
    assert len(fake.bodies) == 1, "it is told once"


def test_of_a_large_template_nothing_is_kept() -> None:
    large, small = managed_version(with_text(LARGEST - 10_000)), managed_version(with_text(1000))

    assert large.trimmed.packed is None
    assert large.written() is None
    assert small.trimmed.packed is not None
    assert len(small.trimmed.packed) < PACKED
    assert small.written() is not None
    assert large.config.replicas == small.config.replicas


@pytest.mark.slow
@pytest.mark.case("operator", "Somebody creates hundreds of objects of a megabyte each")
def test_a_hundred_large_runs_of_a_stranger_take_next_to_no_memory() -> None:
    """Each kept four megabytes: eighty of them ended the operators of a cluster."""
    office = Office()
    office.sees(with_text(1000))
    tracemalloc.start()
    for number in range(50):
        for size, name in ((LARGEST, f"large-{number}"), (LARGEST - 10_000, f"less-{number}")):
            office.sees(with_text(size, name=name, uid=name))
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(office.uids()) == 101
    assert kept / 100 < 50_000


@pytest.mark.case("operator", "A TrainRun or TrainSweep is larger than 512 KiB")
@pytest.mark.slow
async def test_a_run_that_is_too_large_says_so_and_what_runs_goes_on(
    trainruns: TrainRuns, api: KubeApi, namespace: str, tmp_path: Path
) -> None:
    place = Place(folder=tmp_path, runs=trainruns)
    trainruns.server.kubectl("create", "namespace", f"{namespace}-system")
    made = trainruns.create(workers={"template": TEMPLATE})
    path = TRAINRUN.path(namespace, "digits")
    text = {"unread": "x" * 900_000}

    async def edit(**more: Any) -> None:
        while True:
            stored = await api.get(path)
            template = {"spec": {**TEMPLATE["spec"], **more}}
            workers = {**made["spec"]["workers"], "template": template}
            try:
                await api.put(path, {**stored, "spec": {**made["spec"], "workers": workers}})
            except Conflict:
                continue
            return

    def told() -> str:
        conditions = place.status().get("conditions", [])
        return next((str(c["message"]) for c in conditions if c["type"] == "TooLarge"), "")

    await edit(**text)
    with place.operator(f"{namespace}-system"):
        eventually(told, timeout=SOON)
        assert told().startswith("the object is too large: ")
        assert "(limit 512 KiB)" in told()
        assert place.pods() == {}

        await edit()
        eventually(lambda: place.pods() and not told(), timeout=SOON)
        pods = place.pods()

        await edit(**text)
        eventually(told, timeout=SOON)
        assert place.pods() == pods
        assert "TooLarge" in place.events()
        await edit()
        eventually(lambda: not told(), timeout=SOON)
        assert place.pods() == pods
