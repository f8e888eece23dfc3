"""Sweeps and their trials on the page of a cluster: who sees what of them, by a real API server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cli.stories import a_folder, a_life
from tests.cli.sweeping.cluster_sweeps import SWEEPS_CRD
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.viewing.tenants import a_tenant, cluster_page, reading
from tests.cli.viewing.test_sweep_on_the_page import errored, trials
from tests.cli.viewing.test_tenants import UNKNOWN, answer, bound_to
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.cli.viewing import server as page_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.viewing.browser import Browser
    from tests.cli.viewing.tenants import Tenant
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi


@pytest.fixture(autouse=True)
def _crds(trainruns: TrainRuns) -> None:
    trainruns.install(SWEEPS_CRD, name="trainsweeps.trainrun.dev")


@dataclass(frozen=True, kw_only=True)
class SearchingTenant:
    """One who has the TrainRun `falcon` and the TrainSweep `owl`, whose third trial had trouble."""

    tenant: Tenant
    sweeps: Sweeps

    @property
    def trial(self) -> str:
        return f"run?id=stored:{self.sweeps.storage.as_uri()}/lr/trials/00003"

    @property
    def run(self) -> str:
        return f"run?id=cluster:{self.tenant.namespace}/falcon"

    @property
    def sweep(self) -> str:
        return f"sweep?id=sweep:{self.tenant.namespace}/owl"


async def searching(api: KubeApi, root: Path, **options: Any) -> SearchingTenant:
    tenant = await a_tenant(api, **options)
    folder = root / tenant.namespace
    folder.mkdir()
    sweeps = Sweeps(folder)
    sweeps.write(*trials(0, 3), *errored(3, "no room"))
    a_folder(sweeps.storage / "lr" / "trials", *a_life(), name="00003")
    await tenant.create_run("falcon")
    await create_sweep(tenant, "owl", sweeps)
    return SearchingTenant(tenant=tenant, sweeps=sweeps)


async def create_sweep(tenant: Tenant, name: str, sweeps: Sweeps, **storage: str) -> None:
    document = yaml.safe_load(sweeps.file().read_text())
    document["metadata"]["name"] = name
    document["spec"]["storage"] |= {"sweepName": "lr", **storage}
    await tenant.api.post(TRAINSWEEP.path(tenant.namespace), document)


async def refused(browser: Browser, *paths: str) -> None:
    for path in paths:
        for wrong in (path, f"events/{path}"):
            assert await answer(browser, wrong) == (404, UNKNOWN), wrong


async def test_of_sweeps_and_trials_of_another_tenant_nothing_is_told(
    api: KubeApi, tmp_path: Path
) -> None:
    ours, theirs = await searching(api, tmp_path), await searching(api, tmp_path)
    bound = {
        **bound_to(ours.tenant, ours.sweeps.storage),
        **bound_to(theirs.tenant, theirs.sweeps.storage),
    }
    async with cluster_page(bound) as server:
        async with reading(server, ours.tenant.token) as us:
            await us.shows(">owl</a>")
            await us.shows("NodeLost", ours.sweep)
            mine = ours.trial.partition("?id=")[2]
            for wrong in (theirs.trial, theirs.run):
                await refused(us, f"compare?run={mine}&run={wrong.partition('?id=')[2]}")
            await refused(us, theirs.sweep, theirs.trial, theirs.run)
            await refused(us, theirs.sweep.replace("owl", "no-such"))
            # A sweep is no run, and a run no sweep.
            await refused(us, ours.sweep.replace("sweep?", "run?"))
            await refused(us, ours.run.replace("run?", "sweep?"))
            for odd in ("..", "x/../../lr/trials/00003", "%2e%2e/%2e%2e"):
                assert (await answer(us, ours.trial.replace("00003", odd)))[0] == 404
            for path in ("", "?q=owl", "nodes", ours.sweep, ours.trial):
                assert theirs.tenant.namespace not in await us.text(path), path

            # A sweep that says it were theirs.
            uri = theirs.sweeps.storage.as_uri()
            await create_sweep(ours.tenant, "thief", theirs.sweeps, uri=uri)
            await us.shows(">thief</a>")
            stolen = ours.sweep.replace("owl", "thief")
            text = await us.shows("value page.stores has no", stolen)
            assert "no room" not in text
            async with aclosing(us.news(stolen)) as news:
                assert "no room" not in str(await anext(news))
            await refused(us, theirs.trial)
        async with reading(server, theirs.tenant.token) as them:
            text = await them.shows("NodeLost", theirs.sweep)
            assert "Run 00003" in await them.text(theirs.trial)
            assert "thief" not in await them.text()


async def test_who_may_list_one_kind_alone_sees_nothing_of_the_other(
    api: KubeApi, tmp_path: Path
) -> None:
    runs = await searching(api, tmp_path, kinds=("trainruns",))
    sweeps = await searching(api, tmp_path, kinds=("trainsweeps",))
    bound = {
        **bound_to(runs.tenant, runs.sweeps.storage),
        **bound_to(sweeps.tenant, sweeps.sweeps.storage),
    }
    async with cluster_page(bound) as server:
        async with reading(server, runs.tenant.token) as us:
            text = await us.shows(">falcon</a>")
            assert ">owl</a>" not in text
            assert "1 run." in text
            await refused(us, runs.sweep, runs.trial)
            await refused(us, f"compare?run={runs.run[7:]}&run={runs.trial[7:]}")
        async with reading(server, sweeps.tenant.token) as us:
            text = await us.shows(">owl</a>")
            assert "falcon" not in text
            text = await us.shows("no room", sweeps.sweep)
            assert "NodeLost" not in text, "incidents are the runs'"
            assert "0 runs" in await us.text("nodes")
            await refused(us, sweeps.run, sweeps.trial)
            await refused(us, f"compare?run={sweeps.run[7:]}&run={sweeps.trial[7:]}")


async def test_one_reader_has_a_bounded_number_of_pages_open_and_others_have_their_own(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "MOST_STREAMS", 3)
    ours, theirs = await a_tenant(api), await a_tenant(api)
    told = "you have 3 pages open; close some, and reload this one\n"
    async with cluster_page() as server, AsyncExitStack() as opened:
        us = await opened.enter_async_context(reading(server, ours.token))
        them = await opened.enter_async_context(reading(server, theirs.token))
        for _ in range(3):
            await anext(await opened.enter_async_context(aclosing(us.news(""))))
        assert await answer(us, "events/") == (429, told)
        assert "There are none yet." in await us.text()
        async with aclosing(them.news("")) as news:
            await anext(news)
        await opened.aclose()
        async with reading(server, ours.token) as us, asyncio.timeout(60):
            while (await answer(us, "events/run?id=x"))[0] == 429:
                await asyncio.sleep(0.1)  # until the server has seen that they are closed
