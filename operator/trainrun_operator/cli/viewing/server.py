"""Serves the page on this machine: who may see it, what browsers may do with it, and news.

Layer: cli. Only GET; nothing is ever written. A browser needs the token that was printed: it comes
in the address once, as in Jupyter, and stays in a cookie. Pages of other names are refused, so that
no other site can read this one by naming our address (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web

from trainrun_operator.cli.report.page import STYLE, safe
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.comparison import MOST_RUNS, compare_view
from trainrun_operator.cli.viewing.nodes import nodes_view
from trainrun_operator.cli.viewing.rows import RunRow, matching, sorted_rows
from trainrun_operator.cli.viewing.run_details import RunDetails
from trainrun_operator.cli.viewing.style import LIST_STYLE
from trainrun_operator.cli.viewing.sweep_details import SweepDetails
from trainrun_operator.cli.viewing.sweep_view import sweep_view
from trainrun_operator.cli.viewing.views import (
    MOST_ROWS,
    ListAsked,
    PageView,
    list_view,
    now_utc,
    run_view,
)

NAMES = ("127.0.0.1", "localhost", "::1")
"""What a browser may call this machine; a forwarded port may be any."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGES = ("", "run", "compare", "nodes", "sweep")
"""Paths of the list and of the other pages."""
TICK = 0.5
"""Seconds between two looks for news."""
REDRAW = 5.0
"""Seconds after which a page is drawn again though nothing has changed: ages have."""
BEAT = 5.0
"""Seconds without news after which a sign of life is sent."""
FIRST_READ = 3.0
"""Seconds that a view of a run waits for the first read of its storage."""
SCRIPT = Path(__file__).with_name("page.js")

Key = tuple[str, str, int | None]
"""Id and uid of a row, and a rank."""
D = TypeVar("D", RunDetails, SweepDetails)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True, kw_only=True)
class PageServer:
    """The page of one catalog."""

    catalog: RunCatalog
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    port: int = 0
    _runs: dict[Key, RunDetails] = field(default_factory=dict)
    _sweeps: dict[Key, SweepDetails] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _runner: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        """Listen on this port of this machine, 0: any. Raises OSError."""
        app = web.Application(middlewares=[self._guard])
        for page in PAGES:
            app.router.add_get(f"/{page}", self._page)
            app.router.add_get(f"/events/{page}", self._events)
        app.router.add_get("/page.css", self._style)
        app.router.add_get("/page.js", self._script)
        app.router.add_get("/favicon.ico", self._nothing)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    def address(self, path: str = "") -> str:
        """The address for the user's browser, with the token."""
        mark = "&" if "?" in path else "?"
        return f"http://127.0.0.1:{self.port}/{path}{mark}token={self.token}"

    # ------------------------------------------------------------------------------- access

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = self._refusal(request) or await handler(request)
        except web.HTTPException as error:
            response = _text(error.status, error.reason)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that may not see anything, or that brings the token."""
        if urlsplit(f"//{request.host}").hostname not in NAMES:
            return _text(421, "open this page as http://127.0.0.1 or http://localhost")
        given = request.query.get("token", "")
        if given and hmac.compare_digest(given.encode(), self.token.encode()):
            response = web.Response(status=303)
            rest = request.rel_url.without_query_params("token")
            response.headers["Location"] = f".{rest}"  # from wherever an ingress serves it
            response.set_cookie(
                self._cookie, self.token, httponly=True, samesite="Strict", path="/"
            )
            return response
        if hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self.token.encode()):
            return None
        return _text(403, "open the address that `trainrun page` has printed: it has a token")

    @property
    def _cookie(self) -> str:
        # Browsers share cookies among all ports of a machine.
        return f"trainrun-page-{self.port}"

    # ------------------------------------------------------------------------------- answers

    async def _style(self, _: web.Request) -> web.Response:
        return web.Response(text=STYLE + LIST_STYLE, content_type="text/css")

    async def _script(self, _: web.Request) -> web.Response:
        return web.Response(text=SCRIPT.read_text(), content_type="text/javascript")

    async def _nothing(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _page(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        response = web.Response(text=_framed(view, request), content_type="text/html")
        response.enable_compression()
        return response

    async def _view(self, request: web.Request) -> PageView:
        page = _page_of(request)
        if page in ("run", "compare"):
            runs = self._of_runs(request)
            await _read(*runs)
            if page == "run":
                return run_view(runs[0], self.catalog.troubles())
            return compare_view(runs, self.catalog.troubles())
        rows = self.catalog.shown()
        if page == "sweep":
            sweep = self._of_sweep(request)
            await _read(sweep)
            ids = {row.uri: row.id for row in rows if not row.sweep}
            return sweep_view(sweep, self.catalog.troubles(), ids=ids)
        if page == "nodes":
            return nodes_view(rows, self.catalog.troubles())
        asked = _asked(request)
        found = sorted_rows(matching(rows, asked.words, asked.phase), asked.sort)
        sparks = {row.id: self.catalog.spark(row) for row in found[asked.start :][:MOST_ROWS]}
        return list_view(
            rows,
            found,
            asked,
            sparks=sparks,
            troubles=self.catalog.troubles(),
            now=now_utc(),
            loading=self.catalog.loading,
        )

    def _changes(self, request: web.Request) -> tuple[int, ...]:
        """Differs whenever something on the page may have changed."""
        match _page_of(request):
            case "run" | "compare":
                return tuple(details.changes for details in self._of_runs(request))
            case "sweep":
                return (self._of_sweep(request).changes,)
            case _:
                return (self.catalog.changes,)

    def _of_runs(self, request: web.Request) -> list[RunDetails]:
        """What is known of the runs that the request names. Raises HTTPNotFound, HTTPBadRequest."""
        if _page_of(request) == "run":
            return [self._of_run(request.query.get("id", ""), _number(request, "rank"))]
        names = [*dict.fromkeys(request.query.getall("run", []))]
        if not 1 < len(names) <= MOST_RUNS:
            raise web.HTTPBadRequest(reason=f"choose 2 to {MOST_RUNS} runs in the list")
        return [self._of_run(name, None) for name in names]

    def _of_run(self, name: str, rank: int | None) -> RunDetails:
        """What is known of the run with this id; `rank` as in RunDetails. Raises HTTPNotFound."""
        row = self._row(name, sweep=False)
        make = partial(RunDetails, catalog=self.catalog, row=row, rank=rank)
        return self._kept(self._runs, (row.id, row.uid, rank), make)

    def _of_sweep(self, request: web.Request) -> SweepDetails:
        """What is known of the sweep that the request names. Raises HTTPNotFound."""
        row = self._row(request.query.get("id", ""), sweep=True)
        make = partial(SweepDetails, catalog=self.catalog, row=row)
        return self._kept(self._sweeps, (row.id, row.uid, None), make)

    def _row(self, name: str, *, sweep: bool) -> RunRow:
        find = self.catalog
        row = find.rows.get(name) or find.deleted(name) or find.trial(name)
        if row is None or row.sweep != sweep:
            raise web.HTTPNotFound(reason="there is no such run here: look for it among all runs")
        return row

    def _kept(self, kept: dict[Key, D], key: Key, make: Callable[[], D]) -> D:
        """The details with this key, which are kept up to date as long as somebody asks."""
        details = kept.get(key)
        if details is None:
            details = kept[key] = make()
            task = asyncio.create_task(details.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: kept.pop(key, None))
        details.asked = time.monotonic()
        return details

    async def _events(self, request: web.Request) -> web.StreamResponse:
        view = await self._view(request)  # of no run: an answer that ends the stream
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        sent: dict[str, str] = {}
        said = 0.0
        with contextlib.suppress(ConnectionError, web.HTTPException):  # the browser left; no run
            while True:
                news = _news(sent, view)
                now = time.monotonic()
                if news or now - said > BEAT:
                    await response.write(f"data: {json.dumps(news)}\n\n".encode())
                    said = now
                sent = dict(view.parts)
                seen, drawn = self._changes(request), now
                await asyncio.sleep(TICK)
                while self._changes(request) == seen and time.monotonic() - drawn < REDRAW:
                    await asyncio.sleep(TICK)
                view = await self._view(request)
        return response


async def _read(*details: RunDetails | SweepDetails) -> None:
    """Wait a moment for the first read of each."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_READ):
            for each in details:
                await each.ready.wait()


def _page_of(request: web.Request) -> str:
    """One of PAGES."""
    return request.path.rpartition("/")[2]


def _news(sent: dict[str, str], view: PageView) -> dict[str, object]:
    """What a browser that has these parts needs to show the view."""
    if [*sent] != [*view.parts]:
        return {"whole": view.whole}
    parts = {key: part for key, part in view.parts.items() if sent[key] != part}
    return {"parts": parts} if parts else {}


def _asked(request: web.Request) -> ListAsked:
    query = request.query
    return ListAsked(
        words=query.get("q", "")[:200],
        phase=query.get("phase", "")[:64],
        sort=query.get("sort", "")[:32],
        start=_number(request, "from"),
        still="still" in query,
    )


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _framed(view: PageView, request: web.Request) -> str:
    events = f"events{request.rel_url.path}?{request.rel_url.raw_query_string}"
    refresh = '<noscript><meta http-equiv="refresh" content="10"></noscript>'
    refresh = "" if "still" in request.query else refresh
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(view.title)}</title>\n"
        '<link rel="stylesheet" href="page.css"><script src="page.js" defer></script>\n'
        f"{refresh}</head>\n"
        f'<body data-events="{safe(events)}"><p id="stale" class="note" hidden></p><main>'
        f'{view.before}<div id="main">{view.whole}</div></main></body></html>\n'
    )
