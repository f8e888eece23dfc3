"""Sweeps on the page: of a real API server, and of a folder alone."""

from __future__ import annotations

import asyncio
import html
import re
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.stories import a_folder, a_life
from tests.cli.sweeping.cluster_sweeps import ClusterSweeps
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.viewing.browser import browsing
from tests.cli.viewing.test_browsing import EVIL, check
from tests.support.sweeps import report, told
from trainrun.sweep.records import Ask, Record, Reports, written
from trainrun_operator.worlds.kubernetes.user_watch import UserWatch

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns


def trials(first: int, last: int) -> list[Record]:
    """The value is the learning rate."""
    return [
        record
        for number in range(first, last)
        for record in (
            Ask(number, {"lr": 0.1 * (number + 1), "width": 1 + number % 2}),
            Reports((report(number, 1, 0.1 * (number + 1)),), active=1.0),
            told(number, value=written(0.1 * (number + 1)), step=1),
        )
    ]


def errored(number: int, message: str) -> list[Record]:
    ended = told(number, "Errored", reason="MaxFailuresExceeded", message=message)
    return [Ask(number, {"lr": 9.0, "width": 3}), ended]


@pytest.mark.slow
async def test_the_sweep_of_a_folder_has_pictures_trials_and_a_page_of_each_trial(
    tmp_path: Path,
) -> None:
    sweeps = Sweeps(tmp_path)
    sweeps.write(*trials(0, 20), *errored(20, EVIL))
    a_folder(sweeps.storage / "lr" / "trials", *a_life(), name="00003")
    async with browsing(sweeps.storage.as_uri()) as browser:
        listed = await browser.shows("21 trials, 0 open<small>best loss 0.1</small>")
        assert ">no end recorded<" in listed
        link = await browser.link_to("lr")
        text = await browser.text(link)
        for said in (
            "Values of the trials, and the best so far",
            "<b>lr 9", ">20</a></td><td>Errored</td>", "Best: trial 0, loss 0.1 at step 1",
            "What failed (MaxFailuresExceeded 1)",
        ):  # fmt: skip
            assert said in text, said
        check(text)
        assert "&lt;img" in text
        values = re.findall(r"<tr class=\"plain\"><td><a [^>]*>(\d+)</a>", text)
        assert [*map(int, values)] == [*range(20)], "the best first"
        trial = re.search(r'href="(run\?[^"]*00003)">3</a>', text)
        assert trial is not None
        assert "Run 00003 succeeded" in await browser.text(html.unescape(trial[1]))
        async with aclosing(browser.news(link)) as news:
            await anext(news)
            await asyncio.to_thread(sweeps.write, *trials(21, 22))
            async for sent in news:
                if "22 trials with parameters" in str(sent):
                    break
        for path in ("run?id=stored:file:///etc/passwd", f"sweep?id=stored:{tmp_path.as_uri()}/x"):
            async with browser.session.get(browser.root + path) as answer:
                assert answer.status == 404


async def test_a_trainsweep_is_followed_and_stays_on_the_page_after_it_was_deleted(
    trainruns: TrainRuns, tmp_path: Path
) -> None:
    cluster = ClusterSweeps(Sweeps(tmp_path), trainruns)
    cluster.install()
    await asyncio.to_thread(cluster.create, *trials(0, 2))
    watch = await UserWatch.connect(trainruns.namespace, everywhere=False, needed=True)
    async with browsing(watch=watch) as browser:
        await browser.shows(">NotLed<")
        link = await browser.link_to("lr")
        await asyncio.to_thread(
            cluster.says, phase="Running", reason="Searching", trials={"text": "2/4"}
        )
        assert f"sweep, {trainruns.namespace}" in await browser.shows(">2/4 trials<")
        assert "Best: trial 0" in await browser.shows("is Running (Searching)", link)
        await asyncio.to_thread(trainruns.kubectl, "delete", "trainsweep", "lr")
        assert "sweep, storage, file:" in await browser.shows(">no end recorded<")
        assert "Best: trial 0" in await browser.shows("no process on this machine leads it", link)
