"""The page in a cluster: a real API server, two tenants, and what each of them gets to see."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.cli.stories import a_folder, a_life
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.viewing.tenants import ALL, a_tenant, cluster_page, reading
from tests.cli.viewing.test_sweep_on_the_page import errored, trials
from tests.kube.fake_api import Answer
from tests.kube.fake_api import status as refusal
from trainrun.checkpoint.logs import LogLine, RankLog, WorkerLog, write_log
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.cli.viewing import server as page_server
from trainrun_operator.cli.viewing.storages import BoundStorage
from trainrun_operator.cli.viewing.token_access import RIGHTS
from trainrun_operator.worlds.kubernetes import access_reviews
from trainrun_operator.worlds.kubernetes.access_reviews import TokenReaders

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.viewing.browser import Browser
    from tests.cli.viewing.tenants import Tenant
    from tests.kube.fake_api import FakeApi
    from tests.support.s3_server import S3Server
    from trainrun_operator.cli.viewing.access import DataKind
    from trainrun_operator.kube.api import KubeApi

pytestmark = pytest.mark.usefixtures("trainruns")
UNKNOWN = "there is no such run here: look for it among all runs\n"


async def answer(browser: Browser, path: str, **options: object) -> tuple[int, str]:
    method = str(options.pop("method", "GET"))
    url = browser.root + path
    async with browser.session.request(method, url, allow_redirects=False, **options) as got:  # type: ignore[arg-type]
        return got.status, await got.text()


async def test_two_tenants_see_their_own_runs_and_no_name_of_the_other(api: KubeApi) -> None:
    ours, theirs = await a_tenant(api), await a_tenant(api)
    await ours.create_run("falcon")
    await theirs.create_run("walrus")
    async with cluster_page() as server:
        async with reading(server, ours.token) as us, reading(server, theirs.token) as them:
            page = await them.link_to("walrus")
            link = await us.link_to("falcon")
            assert "Run falcon" in await us.shows("Run falcon", link)
            for path in ("", "?q=walr", "?sort=name", "?phase=Pending", "?from=1", "nodes"):
                text = await us.text(path)
                assert "walrus" not in text, path
                assert theirs.namespace not in text, path
            both = f"compare?run={link.partition('=')[2]}&run={page.partition('=')[2]}"
            # Whether it exists is not told either.
            for wrong in (page, page.replace("walrus", "no-such"), f"events/{page}", both):
                assert await answer(us, wrong) == (404, UNKNOWN)
            async with aclosing(us.news("")) as news:
                first = await anext(news)
            assert "falcon" in first["whole"]
            assert "walrus" not in first["whole"]
            resumed = {"Last-Event-ID": "1", "X-Forwarded-User": "walrus", "X-Remote-User": "admin"}
            _, text = await answer(us, "", headers=resumed)
            assert "walrus" not in text


async def test_the_owner_of_a_cluster_wide_right_sees_all(api: KubeApi) -> None:
    tenant = await a_tenant(api)
    await tenant.create_run("falcon")
    async with cluster_page() as server, reading(server, "admin-token") as admin:
        assert f"<small>{tenant.namespace}</small>" in await admin.shows(">falcon</a>")


async def test_without_a_token_of_the_cluster_a_reader_gets_a_form_and_no_run(
    api: KubeApi,
) -> None:
    tenant = await a_tenant(api)
    await tenant.create_run("falcon")
    async with cluster_page(hosts=("runs.example",)) as server:
        for wrong in ("", "wrong", "powerless-token x", "a" * 5000, "Ä"):
            async with reading(server, wrong) as stranger:
                for path in ("", "run?id=x", f"?token={tenant.token}"):
                    status, text = await answer(stranger, path)
                    assert (status, "I am signed in already" in text) == (401, True), path
                    assert "falcon" not in text
                assert await answer(stranger, "events/") == (401, "sign in again\n")
        async with reading(server, tenant.token) as browser:
            await browser.shows("falcon")
        # It may have rights in namespaces of other tests.
        async with reading(server, "powerless-token") as nobody:
            assert "falcon" not in await nobody.shows('id="summary"')
        async with reading(server, tenant.token) as browser:
            status, text = await answer(browser, "", headers={"Host": "evil.example"})
            assert (status, "page.hosts" in text) == (421, True)
            assert (await answer(browser, "", headers={"Host": "[x"}))[0] in (400, 421)
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                for path in ("", "run?id=x", "events/", "page.js"):
                    assert (await answer(browser, path, method=method))[0] == 405


async def test_the_form_keeps_the_token_in_a_cookie_that_only_this_page_gets(api: KubeApi) -> None:
    tenant = await a_tenant(api)
    await tenant.create_run("falcon")
    async with cluster_page(hosts=("runs.example",), base="/ml/runs") as server:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            root = f"http://127.0.0.1:{server.port}/ml/runs/"
            async with session.get(f"{root}run?id=cluster:x/y") as got:
                assert got.status == 401
                assert 'action="sign-in?to=run%3Fid%3Dcluster%3Ax%2Fy"' in await got.text()
            form = f"{root}sign-in?to=run?id=cluster:{tenant.namespace}/falcon"
            async with session.post(form, data={"token": "wrong"}) as got:
                assert got.status == 401
                assert "The cluster does not accept this token." in await got.text()
            for headers, told in (
                ({"Origin": "https://evil.example"}, "sign in on this page itself\n"),
                ({"Origin": "null"}, "sign in on this page itself\n"),
                ({"Sec-Fetch-Site": "cross-site"}, "sign in on this page itself\n"),
                (
                    {"Host": "runs.example", "X-Forwarded-Proto": "http"},
                    "open this page by https: your token would be sent in the clear\n",
                ),
            ):
                async with session.post(form, data={"token": tenant.token}, headers=headers) as got:
                    assert (got.status, await got.text()) == (403, told)
            named = {"Host": "runs.example"}
            sent = {"data": {"token": tenant.token}, "allow_redirects": False}
            async with session.post(form, headers=named, **sent) as got:  # type: ignore[arg-type]
                told = got.headers["Set-Cookie"]
                assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/ml/runs/"} <= {
                    *told.split("; ")
                }
            for to in ("//evil.example", "https://evil.example", "\r\nX: y", "../x"):
                async with session.post(f"{root}sign-in", params={"to": to}, **sent) as got:  # type: ignore[arg-type]
                    assert got.headers["Location"] == "./"
            async with session.post(form, data={"token": tenant.token}) as got:
                assert got.status == 200
                assert "Run falcon" in await got.text()
                assert tenant.token not in f"{got.url} {await got.text()}"
            async with session.get(root.rstrip("/")) as got:
                text = await got.text()
                assert ">sign out</button>" in text
                assert 'data-events="events/?"' in text
            async with session.post(f"{root}sign-in") as got:  # signs out
                assert got.status == 401


async def test_the_stream_of_a_revoked_token_ends(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert access_reviews.FRESH + 10 < 60, "the API server remembers a token for ten seconds"
    monkeypatch.setattr(access_reviews, "FRESH", 0.5)
    tenant = await a_tenant(api)
    async with cluster_page() as server, reading(server, tenant.token) as browser:
        async with aclosing(browser.news("")) as news:
            await anext(news)
            await tenant.leave()
            async with asyncio.timeout(60):
                async for _ in news:
                    pass
        assert (await answer(browser, ""))[0] == 401


async def test_stored_lines_are_shown_only_to_who_may_read_those_of_pods(
    api: KubeApi, tmp_path: Path
) -> None:
    for kinds in (ALL, ("trainruns", "trainsweeps", "pods")):
        tenant = await a_tenant(api, kinds)
        root = tmp_path / tenant.namespace
        a_folder(root, *a_life())
        lines = (LogLine(at=1.0, text="ValueError: row 7"),)
        log = WorkerLog(attempt=2, slot=0, ranks=(RankLog(rank=0, lines=lines),))
        write_log(RunStore(open_store(root.as_uri()), "llama"), log)
        write_log(RunStore(open_store(root.as_uri()), "llama"), replace(log, attempt=3))
        async with cluster_page(bound_to(tenant, root)) as server:
            async with reading(server, tenant.token) as browser:
                link = await browser.link_to("llama")
                text = await browser.shows("3 attempts, step 3000", link)
                assert ("ValueError: row 7" in text) is (kinds == ALL)
                assert ("Output of rank 0" in text) is (kinds == ALL)


@pytest.mark.parametrize("kinds", [ALL, ("trainsweeps",)])
async def test_incidents_of_trials_are_shown_only_to_who_may_list_trainruns(
    api: KubeApi, tmp_path: Path, kinds: tuple[DataKind, ...]
) -> None:
    tenant = await a_tenant(api, kinds)
    sweeps = Sweeps(tmp_path)
    sweeps.write(*trials(0, 3), *errored(3, "gone"))
    a_folder(sweeps.storage / "lr" / "trials", *a_life(), name="00003")
    async with cluster_page(bound_to(tenant, sweeps.storage)) as server:
        async with reading(server, tenant.token) as us:
            text = await us.shows("Trials, the best first", await us.link_to("lr"))
            assert ("of worker time" in text) is (kinds == ALL)


async def test_past_runs_are_those_of_the_namespace_that_their_storage_is_bound_to(
    api: KubeApi, tmp_path: Path
) -> None:
    ours, theirs = await a_tenant(api), await a_tenant(api)
    a_folder(tmp_path, *a_life())
    storage = {"uri": tmp_path.as_uri(), "runName": "llama"}
    async with cluster_page(bound_to(theirs, tmp_path)) as server:
        async with reading(server, ours.token) as us, reading(server, theirs.token) as them:
            link = await them.link_to("llama")
            assert "3 attempts, step 3000" in await them.shows("3 attempts", link)
            await ours.create_run("thief", storage=storage)
            page = await us.link_to("thief")
            text = await us.shows("value page.stores has no", page)
            assert f"no {tmp_path.as_uri()} for namespace {ours.namespace}" in text
            assert "step 3000" not in text
            assert (await answer(us, link)) == (404, UNKNOWN)
            assert "thief" not in await them.shows(">llama</a>"), "and nothing of theirs is hidden"
            async with aclosing(us.news(page)) as news:
                await anext(news)
                await api.delete(TRAINRUN.path(ours.namespace, "thief"))
                await us.shows("There are none yet.")
                async for sent in news:  # until it ends
                    assert "step 3000" not in str(sent)
            assert "3 attempts, step 3000" in await them.shows("3 attempts", link)


async def test_a_run_that_was_deleted_stays_with_its_namespace(
    api: KubeApi, tmp_path: Path
) -> None:
    ours, theirs = await a_tenant(api), await a_tenant(api)
    a_folder(tmp_path, *a_life())
    await ours.create_run("mine", storage={"uri": f"{tmp_path.as_uri()}/", "runName": "llama"})
    async with cluster_page(bound_to(ours, tmp_path)) as server:
        async with reading(server, ours.token) as us, reading(server, theirs.token) as them:
            link = await us.link_to("mine")
            await api.delete(TRAINRUN.path(ours.namespace, "mine"))
            text = await us.shows(f"<small>storage, {ours.namespace}</small>")
            assert ">mine</a>" in text
            assert ">llama</a>" not in text, "each run once"
            assert "3 attempts, step 3000" in await us.shows("3 attempts", link)
            assert (await answer(them, link)) == (404, UNKNOWN)
            assert "There are none yet." in await them.text()


async def test_a_storage_that_cannot_be_read_is_told_to_its_namespace_alone(
    api: KubeApi, tmp_path: Path
) -> None:
    ours, theirs = await a_tenant(api), await a_tenant(api)
    gone = tmp_path / "gone"
    async with cluster_page(bound_to(theirs, gone)) as server:
        async with reading(server, ours.token) as us, reading(server, theirs.token) as them:
            await them.shows(f"{gone.as_uri()} cannot be read: its data is ")
            assert "cannot be read" not in await us.text()


async def test_an_object_that_is_too_large_is_the_trouble_of_its_run_alone(
    api: KubeApi, tmp_path: Path, own_s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    ours = await a_tenant(api)
    folder = a_folder(tmp_path, *a_life())
    store = open_store("s3://bucket/runs", largest=100_000)
    for path in folder.rglob("*.json"):
        for name in ("llama", "large"):
            store.put(f"{name}/{path.relative_to(folder)}", path.read_bytes())
    (first, *_) = store.list("large/story/")
    store.put(first.key, b"x" * 100_001)
    async with cluster_page({store.uri: BoundStorage(ours.namespace, store)}) as server:
        async with reading(server, ours.token) as us:
            text = await us.shows(">llama</a>")
            text = await us.shows("has 100001 bytes, and at most 100000 are read here")
            assert "its data is" not in text, "the storage works"
            page = await us.link_to("large")
            await us.shows("has 100001 bytes, and at most 100000 are read here", page)


async def test_while_the_cluster_cannot_say_who_somebody_is_nothing_is_shown(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Answer(code=503, body=refusal(503, "ServiceUnavailable", "the server is starting"))
    fake.answers = [away for _ in range(10_000)]
    async with cluster_page() as server, reading(server, "some-token") as browser:
        told = "the cluster cannot say now who you are, so nothing is shown; try again\n"
        assert await answer(browser, "") == (503, told)
        assert await answer(browser, "events/") == (503, told)
        async with browser.session.get(browser.root) as got:
            assert got.headers["Refresh"] == "10", "a text has no script that asks again"


async def test_whoever_makes_up_tokens_delays_no_reader_and_is_refused(fake: FakeApi) -> None:
    status = {"authenticated": True, "allowed": True, "user": {"username": "ada"}}
    async with TokenReaders.connected() as readers:
        fake.answers = [Answer(code=200, body={"status": status})]
        ada = await readers.of("token-of-ada")
        fake.finish_writes.clear()  # reviews take long now
        many = [asyncio.create_task(readers.of(f"junk-{n}")) for n in range(3000)]
        async with asyncio.timeout(60):
            while fake.writing < access_reviews.STRANGERS:
                await asyncio.sleep(0.01)
        assert await readers.of("token-of-ada") is ada
        assert ada is not None
        right = asyncio.create_task(readers.allowed(ada, RIGHTS["pods"], ["team-a"]))
        async with asyncio.timeout(60):
            while fake.writing < access_reviews.STRANGERS + 1:  # hers is not behind theirs
                await asyncio.sleep(0.01)
        fake.finish_writes.set()
        await right
        told = await asyncio.gather(*many, return_exceptions=True)
    assert fake.most_writing == access_reviews.STRANGERS + 1
    assert told.count(None) == access_reviews.MOST_STRANGERS
    refused = {str(each) for each in told if each is not None}
    assert refused == {"too many unknown tokens are being looked at; try again"}


async def test_two_forwarded_ports_have_cookies_of_their_own(api: KubeApi) -> None:
    tenant = await a_tenant(api)
    async with cluster_page() as server, aiohttp.ClientSession() as session:
        form = f"http://127.0.0.1:{server.port}/sign-in"
        sent = {"data": {"token": tenant.token}, "allow_redirects": False}
        names = set()
        for port in (8642, 8643):
            headers = {"Host": f"localhost:{port}"}
            async with session.post(form, headers=headers, **sent) as got:  # type: ignore[arg-type]
                names |= {*got.cookies}
        assert names == {"trainrun-page-8642", "trainrun-page-8643"}


async def test_a_stream_outlives_an_api_server_that_is_away_for_a_while(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_reviews, "FRESH", 0.5)
    monkeypatch.setattr(page_server, "REDRAW", 0.1)
    monkeypatch.setattr(page_server, "BEAT", 0.0)
    status = {"authenticated": True, "allowed": True, "user": {"username": "ada"}}
    here = [Answer(code=200, body={"status": status}) for _ in range(10_000)]
    away = Answer(code=503, body=refusal(503, "ServiceUnavailable", "the server is starting"))
    fake.answers = [*here]
    async with cluster_page() as server, reading(server, "some-token") as browser:
        async with browser.session.get(f"{browser.root}events/") as stream, asyncio.timeout(60):
            assert (await stream.content.readline()).startswith(b"data: ")
            fake.answers = [away for _ in range(10_000)]
            while await stream.content.readline() != b":\n":  # no news, and a sign of life
                pass
            fake.answers = [*here]
            while not (await stream.content.readline()).startswith(b"data: "):
                pass


def bound_to(tenant: Tenant, root: Path) -> dict[str, BoundStorage]:
    """The storage in this folder, bound to the tenant's namespace."""
    return {root.as_uri(): BoundStorage(tenant.namespace, open_store(root.as_uri()))}
