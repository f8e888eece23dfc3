"""The page in a real browser: on a desk and a phone, light and dark, with and without scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.cli.stories import at
from tests.cli.viewing.browser import browsing
from tests.cli.viewing.chromium import PROGRAM, chromium
from tests.cli.viewing.pictures import some_runs
from tests.cli.viewing.tenants import a_tenant, cluster_page
from tests.cli.viewing.test_browsing import EVIL, a_local_run, with_metrics
from trainrun_operator.api.run.status_parts import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun_operator.kube.api import KubeApi

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="needs chromium, or google-chrome, in PATH"),
    pytest.mark.slow,
]

NARROWEST = """Math.min(...[...document.querySelectorAll("td.name a, .wide td, h1, h2")]
    .filter((e) => e.offsetParent && e.textContent.length > 3)
    .map((e) => e.getBoundingClientRect().width))"""
"""Pixels of the narrowest of the texts that a reader looks for."""
FAINTEST = """Math.min(...[...document.querySelectorAll("main *")]
    .filter((e) => e.offsetParent && e.childElementCount === 0 && e.textContent.trim()
        && !e.closest("svg, button, input"))
    .map((e) => {
      const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
        .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
      const [a, b] = [getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor]
        .map(light).sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    }))"""
"""Contrast of the faintest text; WCAG AA asks for 4.5."""


async def test_every_page_can_be_read_on_a_desk_and_on_a_phone_light_and_dark_without_scripts(
    tmp_path: Path,
) -> None:
    root = tmp_path / "storage"
    some_runs(root)
    async with browsing(root.as_uri()) as reader, chromium() as browser:
        text = await reader.shows("3 runs, 1 sweep.")
        await reader.link_to("gpt-small")
        ids = re.findall(r'form="chosen" name="run" value="(.*?)"', text)
        await browser.open(reader.server.address())
        paths = {
            "": "Runs",
            "nodes": "Nodes",
            await reader.link_to("llama-8b"): "Run llama-8b",
            await reader.link_to("gpt-small"): "Run gpt-small",
            f"compare?run={ids[0]}&run={ids[1]}": "2 runs",
            f"sweep?id=stored:{root.as_uri()}/lr": "Sweep lr",
        }
        for width, dark, scripts in ((1280, False, True), (390, True, False), (390, False, True)):
            await browser.see(width, dark=dark, scripts=scripts)
            for path, head in paths.items():
                await browser.open(f"{reader.root}{path}")
                where = f"{path} at {width} px"
                said = await browser.evaluate("document.querySelector('h1').textContent")
                assert said == head, where
                sideways = "document.documentElement.scrollWidth - innerWidth"
                assert await browser.evaluate(sideways) <= 0, where
                assert await browser.evaluate(NARROWEST) > 20, where
                assert await browser.evaluate(FAINTEST) > 4.4, where
        assert browser.complaints == []


@pytest.mark.usefixtures("trainruns")
async def test_a_reader_signs_in_by_the_form_and_out_again_with_and_without_scripts(
    api: KubeApi,
) -> None:
    tenant = await a_tenant(api)
    await tenant.create_run("falcon")
    form = "document.querySelector('input[name=token]')"
    listed = "[...document.querySelectorAll('td.name a')].some((a) => a.textContent === 'falcon')"
    async with cluster_page(base="/ml") as server, chromium() as browser:
        for scripts, dark, width in ((True, False, 1280), (False, True, 390)):
            await browser.see(width, dark=dark, scripts=scripts)
            await browser.open(server.address("?q=falcon"))
            assert await browser.evaluate(FAINTEST) > 4.4
            for token, then in (("wrong", "document.body.textContent.includes('does not accept')"),
                                (tenant.token, listed)):  # fmt: skip
                await browser.becomes(f"!!{form}")
                await browser.evaluate(f"{form}.value = '{token}'; {form}.form.submit()")
                await browser.becomes(then)
            assert "falcon" in await browser.evaluate("location.search")
            assert await browser.evaluate("document.cookie") == ""
            await browser.evaluate("document.querySelector('form.out').submit()")
            await browser.becomes(f"!!{form}")
            await browser.open(server.address())
            assert await browser.evaluate(f"!!{form}")
        refused = [told for told in browser.complaints if "status of 401" not in told]
        assert refused == []


async def test_a_page_follows_by_itself_and_runs_no_code_of_a_run(tmp_path: Path) -> None:
    first = Progress(step=7, metrics={"loss": 1.0, EVIL: 1.0}, time=at(0))
    a_local_run(tmp_path, name=EVIL.replace("/", ""), phase=EVIL, reason=EVIL, progress=first)
    with_metrics(tmp_path, EVIL, **{EVIL: 1.0})
    async with browsing(tmp_path.as_uri()) as reader, chromium() as browser:
        await browser.open(reader.server.address())
        await browser.becomes("document.body.textContent.includes('onerror=alert(1)')")
        a_local_run(tmp_path, name="new", progress=Progress(step=4242, time=at(9)))
        await browser.becomes("document.body.textContent.includes('4242')")
        await browser.evaluate("document.querySelector('input[name=run]').click()")
        await browser.evaluate("document.querySelector('td.name a').click()")
        await browser.becomes("document.querySelector('h1').textContent.startsWith('Run')")
        assert await browser.evaluate("document.querySelectorAll('img').length") == 0
        assert browser.complaints == []


async def test_a_table_stays_where_its_reader_has_scrolled_it_to(tmp_path: Path) -> None:
    a_local_run(tmp_path, name="one")
    file, stored = a_local_run(tmp_path, name="two")
    async with browsing(tmp_path.as_uri()) as reader, chromium() as browser:
        ids = re.findall(r'form="chosen" name="run" value="(.*?)"', await reader.shows("2 runs."))
        await browser.see(390)
        await browser.open(reader.server.address())
        await browser.open(f"{reader.root}compare?run={ids[0]}&run={ids[1]}")
        await browser.evaluate("document.querySelector('.wide').scrollLeft = 30")
        step = Progress(step=4242, time=at(9))
        file.replace(replace(stored, status=replace(stored.status, progress=step)))
        await browser.becomes("document.body.textContent.includes('4242')")
        assert await browser.evaluate("document.querySelector('.wide').scrollLeft") == 30
        assert browser.complaints == []
