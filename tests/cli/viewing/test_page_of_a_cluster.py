"""`trainrun page` and the TrainRuns of a cluster: a real API server, and one that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.api.spec_table import BASE
from tests.cli.stories import a_folder, a_life
from tests.cli.viewing.browser import browsing
from tests.kube.fake_api import Answer, status
from tests.kube.patching import merged
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.api.run.status_parts import Progress
from trainrun_operator.kube import informer
from trainrun_operator.worlds.kubernetes.user_watch import UserWatch

if TYPE_CHECKING:
    from tests.kube.fake_api import FakeApi
    from tests.support.trainruns import TrainRuns

HEAD = {"namespace": "team", "uid": "u-1", "resourceVersion": "7"}


async def followed(namespace: str) -> UserWatch:
    watch = await UserWatch.connect(namespace, everywhere=False, needed=True)
    assert watch is not None
    return watch


async def test_a_trainrun_is_followed_by_step_and_stays_on_the_page_after_it_was_deleted(
    trainruns: TrainRuns, tmp_path: Path
) -> None:
    a_folder(tmp_path, *a_life(), name="digits")
    await asyncio.to_thread(
        trainruns.create, storage={"uri": tmp_path.as_uri(), "runName": "digits"}
    )
    async with browsing(watch=await followed(trainruns.namespace)) as browser:
        link = await browser.link_to("digits")
        told = json_object(TrainRunStatus(phase="Running", attempt=4, progress=Progress(step=4242)))
        await asyncio.to_thread(trainruns.apply_status, told, manager="trainrun-operator")
        assert "led by the operator" in await browser.shows("4242", link)
        assert f"<small>{trainruns.namespace}</small>" in await browser.shows(">4242<")
        await asyncio.to_thread(trainruns.kubectl, "delete", "trainrun", "digits")
        assert "storage, file:" in await browser.shows(">Succeeded<")
        assert "3 attempts, step 3000" in await browser.shows("3 attempts", link)


async def test_a_trainrun_that_cannot_be_read_here_is_listed_with_its_problem(
    fake: FakeApi, tmp_path: Path
) -> None:
    spec = {"storage": {"uri": tmp_path.as_uri()}, "workers": {"replicas": "<many>"}}
    raw = merged(BASE, {"metadata": HEAD, "spec": spec})
    fake.things, fake.objects = [raw], {TRAINRUN.path("team", "digits"): raw}
    async with browsing(watch=await followed("team")) as browser:
        text = await browser.shows(">digits</a>")
        assert "cannot be read here: " in text
        assert "spec.workers.replicas" in text
        assert "spec.workers.replicas" in await browser.text(await browser.link_to("digits"))


async def test_before_the_first_answer_of_the_cluster_nothing_counts_as_empty(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(informer, "LONGEST_PAUSE", 0.01)
    refusal = status(403, "Forbidden", "trainruns is forbidden")
    fake.answers = [Answer(code=403, body=refusal) for _ in range(10_000)]
    async with browsing(watch=await followed("team")) as browser:
        text = await browser.shows("The TrainRuns of the cluster cannot be read: ")
        assert "trainruns is forbidden" in text
        assert "Still reading." in text
        assert "There are none yet." not in text
        fake.answers.clear()
        await browser.shows("There are none yet.")


async def test_while_the_api_server_is_away_the_list_says_how_old_it_is(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(informer, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(informer, "LONGEST_PAUSE", 0.01)
    raw = merged(BASE, {"metadata": HEAD, "spec": {"storage": {"uri": tmp_path.as_uri()}}})
    fake.things = [raw]
    async with browsing(watch=await followed("team")) as browser:
        await browser.shows(">digits</a>")
        away = status(503, "ServiceUnavailable", "the server is starting")
        fake.answers = [Answer(code=503, body=away) for _ in range(10_000)]
        await fake.cut()
        text = await browser.shows("The cluster does not answer: its data is ")
        assert "the server is starting" in text
        assert ">digits</a>" in text
        fake.answers.clear()
        await browser.shows('<div id="trouble" role="status"></div>')
