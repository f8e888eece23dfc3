"""Storages of the page: how they are opened, and where in them runs are found."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cli.stories import a_folder, a_life, at
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.viewing.browser import browsing
from tests.cli.viewing.test_browsing import a_local_run
from tests.cli.viewing.test_sweep_on_the_page import trials
from trainrun_operator.api.run.status_parts import Progress
from trainrun_operator.cli.viewing.storages import shared_store

if TYPE_CHECKING:
    from pathlib import Path


def test_one_storage_has_one_client_however_it_is_named() -> None:
    one = shared_store("s3://bucket/runs")
    assert shared_store("s3://bucket/runs/", endpoint_url=None, region=None) is one
    assert shared_store("s3://bucket/runs", endpoint_url="http://s3.example") is not one
    assert shared_store("file:///") is shared_store("file:///", region=None)


@pytest.mark.slow
async def test_runs_and_sweeps_in_folders_of_a_storage_are_listed_and_leave_with_their_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainrun_operator.cli.viewing.catalog.BROWSE", 0.0)
    runs, sweeps = tmp_path / "team" / "runs", Sweeps(tmp_path / "team")
    folder = a_folder(runs, *a_life())
    sweeps.write(*trials(0, 3))
    a_folder(sweeps.storage / "lr" / "trials", *a_life(), name="00000")
    a_folder(tmp_path / "data" / "deeper" / "still", *a_life(), name="hidden")
    async with browsing(tmp_path.as_uri()) as browser:
        text = await browser.shows("1 run, 1 sweep.")  # its trials are its own
        assert f"<small>storage, {runs.as_uri()}</small>" in text
        await browser.shows("3 attempts, step 3000", await browser.link_to("llama"))
        await browser.shows("Trials, the best first", await browser.link_to("lr"))
        a_folder(runs, *a_life(), name="later")
        await browser.shows(">later</a>")
        a_local_run(runs, name="live", progress=Progress(step=4242, time=at(0)))
        a_folder(runs, *a_life(), name="live")
        await browser.shows("4242")
        shutil.rmtree(folder)
        async with asyncio.timeout(60):
            while ">llama</a>" in await browser.shows(">later</a>"):
                await asyncio.sleep(0.1)
