"""`trainrun page`: a real server, real folders of runs, and what a browser gets."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shutil
import socket
import urllib.error
import urllib.request
from contextlib import aclosing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.cli.stories import a_folder, a_life, an_incident, at
from tests.cli.viewing.browser import browsing
from tests.support.eventually import eventually
from trainrun.checkpoint.agent_records import write_hang
from trainrun.checkpoint.logs import LogLine, RankLog, WorkerLog, write_log
from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.records import HangRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.api.run.status_parts import Incident, Progress
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.page import page_beside, serving
from trainrun_operator.cli.preparation import open_run, prepare
from trainrun_operator.cli.report.page import safe
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.viewing.access import ALL
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.nodes import nodes_view
from trainrun_operator.cli.viewing.rows import RunRow, matching, sorted_rows
from trainrun_operator.cli.viewing.run_details import RunDetails
from trainrun_operator.cli.viewing.views import ListAsked, list_view, now_utc, run_view
from trainrun_operator.worlds.kubernetes.pod_logs import WorkerPod
from trainrun_operator.worlds.local.place import StatusFile, StoredRun, place_of

if TYPE_CHECKING:
    from tests.support.s3_server import S3Server

EVIL = "<img src=x onerror=alert(1)>\"'"


class Markup(HTMLParser):
    """Fails for code or style in the markup, and for elements that no page has."""

    FOREIGN = ("img", "iframe", "object", "style", "base")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in self.FOREIGN, tag
        assert tag != "script" or dict(attrs).get("src") == "page.js"
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert name != "style", (tag, value)
            assert not (value or "").lower().startswith("javascript:"), (tag, name, value)


def check(text: str) -> None:
    markup = Markup()
    markup.feed(text)
    markup.close()


def with_metrics(root: Path, name: str = "llama", **metrics: float) -> None:
    records = [
        {"rank": 0, "step": step, "metrics": {"loss": 1 / step, **metrics}} for step in (1, 9)
    ]
    MetricsLog(1).write(RunStore(open_store(root.as_uri()), name), records)


def a_local_run(
    root: Path, name: str = "mine", *, spec: dict[str, Any] | None = None, **fields: Any
) -> tuple[StatusFile, StoredRun]:
    """The files of a run of this machine, without a process."""
    file = StatusFile(place_of(root.as_uri(), name, environ={}).status)
    status = TrainRunStatus(phase="Running", attempt=1, progress=Progress(step=7, time=at(0)))
    stored = file.replace(
        replace(file.create({"spec": spec or {}}), status=replace(status, **fields))
    )
    return file, stored


async def test_the_list_shows_runs_whose_cluster_is_gone_with_phase_step_goodput_and_cause(
    tmp_path: Path,
) -> None:
    a_folder(tmp_path, *a_life())
    *most, last = a_life()
    failed = replace(last, end="Incident", verdict="TooManyFailures", incident=an_incident())
    a_folder(tmp_path, *most, failed, name="gpt")
    (tmp_path / "datasets").mkdir()
    async with browsing(tmp_path.as_uri()) as browser:
        text = await browser.shows("2 runs.")
        (llama,) = re.findall(r"<tr id=.*?>llama<.*?</tr>", text)[-1:]
        for told in ("Succeeded", ">3000<", ">67.3 %<", "AppError", "step 3000"):
            assert told in llama, told
        assert "TooManyFailures" in text
        assert "datasets" not in text
        told = await browser.text(await browser.link_to("gpt"))
        assert '<li class="bad">AppError: bad batch</li>' in told
        only = await browser.text("?q=toomany")
        assert (">gpt</a>" in only, ">llama</a>" in only) == (True, False)
        assert ">gpt</a>" not in await browser.text("?phase=Succeeded")
        check(text)


async def test_a_step_of_a_run_of_this_machine_is_sent_to_whoever_looks_at_it(
    tmp_path: Path,
) -> None:
    file, stored = a_local_run(tmp_path)
    async with browsing(tmp_path.as_uri()) as browser:
        link = await browser.link_to("mine")
        async with aclosing(browser.news(link)) as news:
            assert "Run mine: Running, led by this machine" in (await anext(news))["whole"]
            progress = Progress(step=4242, metrics={"loss": 0.5}, time=at(9))
            file.replace(replace(stored, status=replace(stored.status, progress=progress)))
            async for sent in news:
                if "4242" in str(sent):
                    break
            check(str(sent))
        assert "4242  loss=0.5" in await browser.text(link)


async def test_the_page_of_a_run_has_its_curves_incidents_last_lines_and_advice(
    tmp_path: Path,
) -> None:
    a_folder(tmp_path, *a_life())
    with_metrics(tmp_path)
    run = RunStore(open_store(tmp_path.as_uri()), "llama")
    lines = (LogLine(at=1.0, text="ValueError: bad batch"),)
    write_log(run, WorkerLog(attempt=2, slot=0, ranks=(RankLog(rank=2, lines=lines),)))
    async with browsing(tmp_path.as_uri()) as browser:
        text = await browser.text(await browser.link_to("llama"))
    for told in (
        "Run llama succeeded after 148 min: 3 attempts, step 3000.",
        "<figcaption>loss</figcaption>",
        "NodeLost of worker llama-3-1, node n7",
        "<summary>rank 2: 1 line</summary>",
        "What to change",
        "node n7 caused 2 of 2",
    ):
        assert told in text, told
    attempts = re.findall(r"<h2>attempt (\d)", text)
    assert attempts == ["3", "2", "1"], "the newest first"
    check(text)


async def test_two_runs_are_compared_by_state_curves_and_what_they_were_started_with(
    tmp_path: Path,
) -> None:
    a_folder(tmp_path, *a_life())
    *most, last = a_life()
    failed = replace(last, end="Incident", verdict="TooManyFailures", incident=an_incident())
    changed = replace(failed, facts={**last.facts, "replicas": "16"})
    a_folder(tmp_path, *most, changed, name="gpt")
    with_metrics(tmp_path, only_one=1.0)
    with_metrics(tmp_path, "gpt")
    async with browsing(tmp_path.as_uri()) as browser:
        text = await browser.shows("2 runs.")
        await browser.link_to("gpt")
        ids = re.findall(r'<input type="checkbox" form="chosen" name="run" value="(.*?)"', text)
        assert '<form method="get" action="compare" id="chosen">' in text
        text = await browser.text(f"compare?run={ids[0]}&run={ids[1]}&run={ids[0]}")
        check(text)
        for told in (
            "<h1>2 runs</h1>",
            ">gpt</a></td><td>Failed</td><td>3000</td><td>2.5 h</td><td>67.3 %</td><td>3</td>",
            "<figcaption>only_one</figcaption>",
            "The specs are not compared: only the storage shows ",
        ):
            assert told in text, told
        loss = text[text.index("<figcaption>loss<") :]
        assert loss[: loss.index("</svg>")].count("<path ") == 2, "one curve for each run"
        assert re.search(r"<td>replicas</td><td>(8</td><td>16|16</td><td>8)</td>", text)
        assert "<td>keep</td>" not in text, "it is the same"
        for few_or_many in (ids[:1], [*"123456789"]):
            path = "&".join(f"run={name}" for name in few_or_many)
            async with browser.session.get(f"{browser.root}compare?{path}") as answer:
                assert answer.status == 400
                assert await answer.text() == "choose 2 to 8 runs in the list\n"
        assert "http-equiv" in await browser.text()
        assert "http-equiv" not in await browser.text("?still=1"), "boxes stay checked"


async def test_the_nodes_are_listed_with_the_incidents_of_all_runs_and_who_avoids_them(
    tmp_path: Path,
) -> None:
    a_folder(tmp_path, *a_life())
    why = "new workers avoid these nodes if others have room: n7 (3 incidents of 2 runs: AppError)"
    avoided = Condition(
        type="NodesAvoided", status="True", reason="R", message=why, last_transition_time=at(0)
    )
    there = Incident(attempt=1, cause="OutOfMemory", node="n7", worker="mine-0-1", time=at(9999))
    own = replace(there, node="mine-0-1")  # the folder of a worker of this machine is no node
    a_local_run(tmp_path, conditions=(avoided,), incidents=(there, own))
    async with browsing(tmp_path.as_uri()) as browser:
        await browser.shows("2 runs.")
        text = await browser.shows("1 node avoided now; 3 incidents on 1 node, of 2 runs.", "nodes")
        assert "<td>mine</td><td>3</td><td>" in text
        for told in ("AppError", "OutOfMemory", "llama", f"mine: {why}", "2026-11-03 11:46:39 UTC"):
            assert told in text, told
        check(text)
        assert "<tr id=" in await browser.text("?q=n7")


async def test_no_text_of_a_script_becomes_markup(tmp_path: Path) -> None:
    first, second, *rest = a_life()
    evil = an_incident(
        cause=EVIL,
        worker=EVIL,
        node=f"{EVIL}n",
        message=EVIL,
        lastLines=[EVIL],
        raisedAt=EVIL,
        evidence="hangs/000001-1/",
    )
    odd: tuple[Chapter, ...] = (first, replace(second, incident=evil), *rest)
    a_folder(tmp_path, *odd, name="a<b>'&")
    with_metrics(tmp_path, "a<b>'&", **{EVIL: 1.0})
    run = RunStore(open_store(tmp_path.as_uri()), "a<b>'&")
    log = RankLog(rank=0, lines=(LogLine(at=1.0, text=EVIL),))
    write_log(run, WorkerLog(attempt=1, slot=0, ranks=(log,)))
    write_hang(run, HangRecord(attempt=1, number=1, worker=0, ranks=({"rank": 0, "stacks": EVIL},)))
    a_local_run(tmp_path, EVIL, phase=EVIL, reason=EVIL, advice=EVIL, spec={EVIL: EVIL})
    a_local_run(tmp_path, "b", spec={"args": [f"--{EVIL}", EVIL], "env": [{"name": EVIL}]})
    async with browsing(tmp_path.as_uri()) as browser:
        await browser.shows("3 runs.")
        local = f"run?id=local:{tmp_path.as_uri()}/%3Cimg%20src=x%20onerror=alert(1)%3E%22'"
        evil = quote(f"local:{tmp_path.as_uri()}/{EVIL}")
        compared = f"compare?run={evil}&run=local:{tmp_path.as_uri()}/b"
        await browser.shows("&lt;img", "nodes")
        paths = [
            "nodes",
            compared,
            f"?q={EVIL}",
            f"run?id=stored:{tmp_path.as_uri()}/a%3Cb%3E'%26",
            local,
        ]
        for path in ("", *paths):
            text = await browser.text(path)
            check(text)
            assert "&lt;img" in text, path


async def test_only_a_browser_with_the_token_that_names_this_machine_may_read(
    tmp_path: Path,
) -> None:
    a_folder(tmp_path, *a_life())
    async with browsing(tmp_path.as_uri()) as browser:
        async with browser.session.get(browser.root, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
            assert await answer.text() == "open this page as http://127.0.0.1 or http://localhost\n"
        async with browser.session.post(browser.root) as answer:
            assert answer.status == 405
        async with browser.session.get(browser.root) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "Access-Control-Allow-Origin" not in answer.headers
        async with browser.session.get(f"{browser.root}run?id=../../etc/passwd") as answer:
            assert answer.status == 404
            assert await answer.text() == "there is no such run here: look for it among all runs\n"
        async with browser.session.get(f"{browser.root}events/run?id=x") as answer:
            assert answer.status == 404, "a browser asks for such a stream only once"
        browser.session.cookie_jar.clear()
        for path in ("", "run?id=x", "events/", "page.js", "?token=wrong"):
            async with browser.session.get(browser.root + path) as answer:
                assert answer.status == 403, path
                assert "has printed: it has a token" in await answer.text()


async def test_a_run_whose_name_looks_like_a_secret_has_a_stream(tmp_path: Path) -> None:
    name = "x-sk-learn-baseline-of-2026"
    assert name not in safe(name)
    a_folder(tmp_path, *a_life(), name=name)
    async with browsing(tmp_path.as_uri()) as browser:
        await browser.shows("1 run.")
        text = await browser.text(f"run?id=stored:{tmp_path.as_uri()}/{name}")
        (events,) = re.findall(r'data-events="events/(.*?)"', text)
        async with aclosing(browser.news(html.unescape(events))) as news:
            assert "whole" in await anext(news)


async def test_another_run_of_the_same_name_has_a_page_and_a_curve_of_its_own(
    tmp_path: Path,
) -> None:
    old = Progress(step=5000, metrics={"loss": 7.25}, time=at(0))
    file, _ = a_local_run(tmp_path, progress=old)
    async with browsing(tmp_path.as_uri()) as browser:
        link = await browser.link_to("mine")
        await browser.shows("loss=7.25", link)
        file.path.unlink()
        new = Progress(step=3, metrics={"loss": 0.5}, time=at(9))
        a_local_run(tmp_path, progress=new)
        text = await browser.shows("loss=0.5", link)
        assert "5,000" not in text
        assert "7.25" not in text
        (row,) = re.findall(r"<tr id=.*?>mine<.*?</tr>", await browser.shows(">3<"))
        assert row.count("L") == 1, "one point"


async def test_a_folder_that_cannot_be_read_takes_no_other_from_the_page(tmp_path: Path) -> None:
    a_folder(tmp_path, *a_life())
    for kind, text in enumerate(("[]", "{}", '{"at":{}}', "\xff", "[" * 100_000, "7")):
        folder = a_folder(tmp_path, *a_life(), name=f"broken{kind}")
        for path in folder.rglob("*.json"):
            path.write_text(text)
    async with browsing(tmp_path.as_uri()) as browser:
        await browser.shows("Succeeded")
        assert ">llama</a>" in await browser.text()


async def test_a_storage_that_is_away_leaves_its_rows_with_their_age(
    own_s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("trainrun_operator.cli.viewing.catalog.BROWSE", 0.0)
    monkeypatch.setattr("trainrun_operator.cli.viewing.catalog.ENDED", 0.0)
    folder = a_folder(tmp_path / "runs", *a_life())
    store = open_store("s3://bucket/runs")
    for path in folder.rglob("*.json"):
        store.put(f"llama/{path.relative_to(folder)}", path.read_bytes())
    async with browsing("s3://bucket/runs") as browser:
        await browser.shows(">llama</a>")
        own_s3.stop()
        text = await browser.shows("s3://bucket/runs cannot be read: its data is ")
        assert ">llama</a>" in text


@pytest.mark.slow
async def test_a_storage_that_hangs_is_told_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainrun_operator.cli.viewing.catalog.BROWSE", 0.0)
    monkeypatch.setattr("trainrun_operator.cli.viewing.catalog.QUIET", 1.0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        async with browsing("s3://hanging/runs", tmp_path.as_uri()) as browser:
            await browser.shows("s3://hanging/runs does not answer: its data is ")
            a_folder(tmp_path, *a_life(), name="later")
            text = await browser.shows(">later</a>")
            assert "s3://hanging/runs does not answer" in text


@pytest.mark.slow
async def test_a_past_run_leaves_the_list_after_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainrun_operator.cli.viewing.catalog.BROWSE", 0.0)
    folder = a_folder(tmp_path, *a_life())
    a_folder(tmp_path, *a_life(), name="other")
    async with browsing(tmp_path.as_uri()) as browser:
        await browser.shows(">llama</a>")
        shutil.rmtree(folder)
        async with asyncio.timeout(60):
            while ">llama</a>" in (text := await browser.shows(">other</a>")):
                await asyncio.sleep(0.1)
        assert ">other</a>" in text


async def test_who_looks_at_many_runs_of_one_namespace_shuts_out_nobody_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainrun_operator.cli.viewing.server.MOST_DETAILS", 4)
    catalog, storage = RunCatalog(storages=()), tmp_path.as_uri()
    place = place_of(storage, "x", environ={})
    for number in range(10):
        name = f"run-{number}"
        source = Source(name=name, storage=storage, place=place)
        namespace = "crowd" if number else "team"
        catalog.put(RunRow(kind="stored", name=name, namespace=namespace, source=source))
    mine, *many = catalog.rows
    async with serving(catalog) as server:
        ours = server._of_run(mine, ALL, None)
        for row_id in many:
            server._of_run(row_id, ALL, None)
        async with asyncio.timeout(60):
            while len(server._runs) > 4:
                await asyncio.sleep(0.01)
        assert server._of_run(mine, ALL, None) is ours, "what somebody reads is not begun anew"


async def test_looking_at_many_ranks_shuts_nobody_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainrun_operator.cli.viewing.server.MOST_DETAILS", 2)
    a_folder(tmp_path, *a_life())
    async with browsing(tmp_path.as_uri()) as browser:
        link = await browser.link_to("llama")
        for rank in range(4):
            await browser.shows("3 attempts, step 3000", f"{link}&rank={rank}")
        async with browser.session.get(f"{browser.root}{link}&rank=64") as answer:
            assert answer.status == 404
            assert await answer.text() == "this run has ranks from 0 to 63\n"


def rows(count: int) -> list[RunRow]:
    phases = ("Running", "Failed", "Succeeded")
    place = place_of("s3://bucket/runs", "x", environ={"HOME": "/"})
    return [
        RunRow(
            kind="cluster",
            name=f"run-{number:04d}",
            namespace="team",
            source=Source(name=f"run-{number:04d}", storage="s3://bucket/runs", place=place),
            phase=phases[number % 3],
            active=number % 3 == 0,
            step=str(number),
            at_step=number,
            begun=at(number),
            cause="NodeLost" if number == 500 else "",
        )
        for number in range(count)
    ]


def test_the_first_view_of_a_thousand_runs_is_below_300_kb() -> None:
    some = rows(1000)
    curve = [(step, 1 / (step + 1)) for step in range(0, 3000, 50)]
    view = list_view(
        some,
        sorted_rows(some, ""),
        ListAsked(),
        sparks={row.id: curve for row in some},
        troubles=(),
        now=now_utc(),
    )
    assert "1 to 100 of 1,000." in view.whole
    assert len(view.whole.encode()) < 300_000
    check(view.whole)


def test_of_a_thousand_workers_the_page_has_a_line_for_each_node() -> None:
    (row,) = rows(1)
    pods = tuple(
        WorkerPod(
            namespace="team",
            name=f"run-{slot}-1",
            slot=slot,
            container="train",
            phase="Pending" if slot == 9 else "Running",
            node=f"n{slot // 8}",
        )
        for slot in range(1000)
    )
    details = RunDetails(catalog=RunCatalog(storages=()), row=row, rank=0, pods=pods)
    text = run_view(details, ()).whole
    assert "<h2>Workers, 1,000 pods</h2>" in text
    assert text.count("<tr class=") == 125
    assert "<td>n1</td><td>8</td><td>8, 9 Pending, 10, 11, 12, 13, 14, 15</td>" in text
    assert len(text) < 30_000
    check(text)


def test_a_node_that_is_avoided_without_an_incident_of_its_own_is_avoided() -> None:
    why = (
        "new workers avoid these nodes if others have room: n7 (3 incidents of 2 runs: AppError, "
        "NodeLost; the last on 2026-01-01 at 12:31 UTC), n8.example (1 incident of 1 run: AppError)"
    )
    one, two, three = rows(3)
    namesake = replace(two, name=one.name, namespace="other", avoided=why)
    shown = nodes_view([replace(one, avoided=why), namesake, replace(three, sweep=True)], ()).whole
    assert "2 nodes avoided now; 0 incidents on 2 nodes, of 2 runs." in shown
    assert shown.count("<td>run-0000 (team), run-0000 (other)</td>") == 2
    assert ">n8.example<" in shown
    check(shown)


def test_sweeps_are_not_counted_as_runs() -> None:
    one, two = rows(2)
    some = [one, replace(two, sweep=True)]
    shown = list_view(some, some, ListAsked(), sparks={}, troubles=(), now=now_utc()).whole
    assert '<p id="summary">1 run, 1 sweep.' in shown


def test_active_runs_come_first_then_the_newest_unless_an_order_is_asked_for() -> None:
    some = rows(9)
    assert [row.at_step for row in sorted_rows(some, "")] == [6, 3, 0, 8, 7, 5, 4, 2, 1]
    assert [row.at_step for row in sorted_rows(some, "-step")][:2] == [8, 7]
    assert [row.at_step for row in sorted_rows(some, "step")][:2] == [0, 1]
    assert [row.name for row in matching(rows(1000), "TEAM nodelost", "")] == ["run-0500"]
    assert matching(some, "", "Restarting") == []


def test_a_local_run_serves_a_page_about_itself_while_it_is_led(tmp_path: Path) -> None:
    file, runs = tmp_path / "run.yaml", tmp_path / "runs"
    runs.mkdir()
    worker = {"name": "worker", "image": "x", "command": ["true"]}
    spec = {
        "workers": {"replicas": 1, "template": {"spec": {"containers": [worker]}}},
        "storage": {"uri": runs.as_uri()},
    }
    head = {"apiVersion": "trainrun.dev/v1alpha1", "kind": "TrainRun"}
    file.write_text(json.dumps({**head, "metadata": {"name": "mine"}, "spec": spec}))
    prepared = prepare(RunOptions(file=file))
    open_run(prepared)
    with page_beside(prepared) as address:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        eventually(lambda: "Run mine" in found(browser, address), timeout=60, what="its page")
    with pytest.raises(urllib.error.URLError):
        browser.open(address)


def found(opener: urllib.request.OpenerDirector, address: str) -> str:
    """The page, or nothing as long as there is none."""
    try:
        return str(opener.open(address).read().decode())
    except urllib.error.HTTPError:
        return ""
