"""Serves the page: what browsers may do with it, and news.

Layer: cli. Only GET; nothing is ever written. Who may see what, `access` says, again for each news.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from trainrun_operator.cli.report.page import STYLE, safe
from trainrun_operator.cli.viewing.access import ALL, Access, DataKind, VisibleNamespaces, told
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.comparison import MOST_RUNS, compare_view
from trainrun_operator.cli.viewing.nodes import nodes_view
from trainrun_operator.cli.viewing.rows import RunRow, matching, sorted_rows
from trainrun_operator.cli.viewing.run_details import RunDetails
from trainrun_operator.cli.viewing.style import LIST_STYLE
from trainrun_operator.cli.viewing.sweep_details import SweepDetails, sweep_view
from trainrun_operator.cli.viewing.views import (
    MOST_ROWS,
    ListAsked,
    PageView,
    list_view,
    now_utc,
    run_view,
    safe_url,
)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: a form would no longer say that it is this page's own.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGES = ("", "run", "compare", "nodes", "sweep")
"""Paths of the list and of the other pages."""
MOST_SENT = 16_384
"""Bytes of a form."""
TICK = 0.5
"""Seconds between two looks for news."""
REDRAW = 5.0
"""Seconds after which a page is drawn again though nothing has changed: ages have."""
BEAT = 5.0
"""Seconds without news after which a sign of life is sent."""
FIRST_READ = 3.0
"""Seconds that a view of a run waits for the first read of its storage."""
MOST_STREAMS = 50
"""Pages that one reader may have open: each is drawn again every few seconds."""
MOST_DETAILS = 200
"""Runs, and ranks of one run, kept up to date at once: each is read again every few seconds. One
more takes the place of the one that nobody has asked for the longest, in the namespace with the
most: whoever opens many pages shuts out nobody else. Open pages ask twice a second."""
SCRIPT = Path(__file__).with_name("page.js")

Key = tuple[str, str, int | None]
"""Id and uid of a row, and a rank."""
D = TypeVar("D", RunDetails, SweepDetails)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True, kw_only=True)
class PageServer:
    """The page of one catalog."""

    catalog: RunCatalog
    access: Access
    port: int = 0
    _runs: dict[Key, RunDetails] = field(default_factory=dict)
    _sweeps: dict[Key, SweepDetails] = field(default_factory=dict)
    _streams: Counter[str] = field(default_factory=Counter)
    """Open ones, by reader."""
    _tasks: dict[asyncio.Task[None], RunDetails | SweepDetails] = field(default_factory=dict)
    """They keep these up to date."""
    _runner: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        """Listen on this port, 0: any. Raises OSError."""
        app = web.Application(middlewares=[self._guard], client_max_size=MOST_SENT)
        base = self.access.base
        for page in PAGES:
            app.router.add_get(f"{base}/{page}", self._page)
            app.router.add_get(f"{base}/events/{page}", self._events)
        app.router.add_get(f"{base}/page.css", self._style)
        app.router.add_get(f"{base}/page.js", self._script)
        app.router.add_get(f"{base}/favicon.ico", self._nothing)
        self.access.add_routes(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.access.host, port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    def address(self, path: str = "") -> str:
        """The address for the user's browser."""
        return self.access.address(self.port, path)

    # ------------------------------------------------------------------------------- answers

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await self.access.refusal(request) or await handler(request)
        except web.HTTPException as error:
            response = told(error.status, error.reason)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _style(self, _: web.Request) -> web.Response:
        return web.Response(text=STYLE + LIST_STYLE, content_type="text/css")

    async def _script(self, _: web.Request) -> web.Response:
        return web.Response(text=SCRIPT.read_text(), content_type="text/javascript")

    async def _nothing(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _page(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        response = web.Response(text=_framed(view, request, self.access), content_type="text/html")
        response.enable_compression()
        return response

    async def _view(self, request: web.Request) -> PageView:
        page, seen = _page_of(request), await self._seen(request)
        troubles = self.catalog.troubles(seen)
        if page in ("run", "compare"):
            runs = self._of_runs(request, seen)
            await _read(*runs)
            if page == "run":
                hidden = await self._hidden(request, runs[0].row.namespace)
                return run_view(runs[0].without(hidden), troubles)
            return compare_view(runs, troubles)
        rows = self.catalog.shown(seen)
        if page == "sweep":
            sweep = self._of_sweep(request, seen)
            await _read(sweep)
            ids = {row.uri: row.id for row in rows if not row.sweep}
            listed = await self.access.allowed(request, "trainruns", [sweep.row.namespace])
            return sweep_view(sweep if listed else sweep.without_runs(), troubles, ids=ids)
        if page == "nodes":
            return nodes_view(rows, troubles)
        asked = _asked(request)
        found = sorted_rows(matching(rows, asked.words, asked.phase), asked.sort)
        sparks = {row.id: self.catalog.spark(row) for row in found[asked.start :][:MOST_ROWS]}
        return list_view(
            rows,
            found,
            asked,
            sparks=sparks,
            troubles=troubles,
            now=now_utc(),
            loading=self.catalog.loading,
        )

    async def _seen(self, request: web.Request) -> VisibleNamespaces:
        """The namespaces whose runs and sweeps the request may see now. It asks before anything is
        looked up: no answer, and no pause, tells of what is hidden."""
        names = self.catalog.namespaces()
        runs = await self.access.allowed(request, "trainruns", names)
        return VisibleNamespaces(
            runs=runs, sweeps=await self.access.allowed(request, "trainsweeps", names)
        )

    async def _hidden(self, request: web.Request, namespace: str) -> list[DataKind]:
        """Kinds of data in this namespace that the request may not see."""
        kinds: tuple[DataKind, ...] = ("pods", "pods/log")
        return [k for k in kinds if not await self.access.allowed(request, k, [namespace])]

    def _changes(self, request: web.Request) -> tuple[int, ...]:
        """Differs whenever something on the page may have changed."""
        match _page_of(request):
            case "run" | "compare":
                return tuple(details.changes for details in self._of_runs(request, ALL))
            case "sweep":
                return (self._of_sweep(request, ALL).changes,)
            case _:
                return (self.catalog.changes,)

    def _of_runs(self, request: web.Request, seen: VisibleNamespaces) -> list[RunDetails]:
        """What is known of the runs that the request names. Raises HTTPNotFound, HTTPBadRequest."""
        if _page_of(request) == "run":
            return [self._of_run(request.query.get("id", ""), seen, _number(request, "rank"))]
        names = [*dict.fromkeys(request.query.getall("run", []))]
        if not 1 < len(names) <= MOST_RUNS:
            raise web.HTTPBadRequest(reason=f"choose 2 to {MOST_RUNS} runs in the list")
        return [self._of_run(name, seen, None) for name in names]

    def _of_run(self, name: str, seen: VisibleNamespaces, rank: int | None) -> RunDetails:
        """What is known of the run with this id; `rank` as in RunDetails. Raises HTTPNotFound."""
        row = self._row(name, seen, sweep=False)
        if rank and row.ranks and rank >= row.ranks:
            raise web.HTTPNotFound(reason=f"this run has ranks from 0 to {row.ranks - 1}")
        make = partial(RunDetails, catalog=self.catalog, row=row, rank=rank)
        return self._kept(self._runs, (row.id, row.uid, rank), make)

    def _of_sweep(self, request: web.Request, seen: VisibleNamespaces) -> SweepDetails:
        """What is known of the sweep that the request names. Raises HTTPNotFound."""
        row = self._row(request.query.get("id", ""), seen, sweep=True)
        make = partial(SweepDetails, catalog=self.catalog, row=row)
        return self._kept(self._sweeps, (row.id, row.uid, None), make)

    def _row(self, name: str, seen: VisibleNamespaces, *, sweep: bool) -> RunRow:
        row = self.catalog.find(name, seen)
        if row is None or row.sweep != sweep:
            raise web.HTTPNotFound(reason="there is no such run here: look for it among all runs")
        return row

    def _kept(self, kept: dict[Key, D], key: Key, make: Callable[[], D]) -> D:
        """The details with this key, which are kept up to date as long as somebody asks."""
        details = kept.get(key)
        if details is None:
            if len(self._tasks) >= MOST_DETAILS:
                held = Counter(each.row.namespace for each in self._tasks.values())
                oldest, _ = min(
                    self._tasks.items(), key=lambda it: (-held[it[1].row.namespace], it[1].asked)
                )
                del self._tasks[oldest]
                oldest.cancel()
            details = made = kept[key] = make()
            task = asyncio.create_task(details.run())
            self._tasks[task] = details

            def over(task: asyncio.Task[None]) -> None:
                self._tasks.pop(task, None)
                if kept.get(key) is made:
                    del kept[key]

            task.add_done_callback(over)
        details.asked = time.monotonic()
        return details

    async def _events(self, request: web.Request) -> web.StreamResponse:
        reader = await self.access.reader(request)
        if self._streams[reader] >= MOST_STREAMS:
            raise web.HTTPTooManyRequests(
                reason=f"you have {MOST_STREAMS} pages open; close some, and reload this one"
            )
        self._streams[reader] += 1
        try:
            return await self._follow(request)
        finally:
            self._streams -= Counter([reader])

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        # Of no run: an answer that ends the stream.
        view: PageView | None = await self._view(request)
        more = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}  # nginx would wait
        response = web.StreamResponse(headers={**HEADERS, **more})
        await response.prepare(request)
        sent: dict[str, str] = {}
        said = 0.0
        with contextlib.suppress(ConnectionError, web.HTTPException):  # the browser left; no run
            while True:
                now = time.monotonic()
                if view is None:  # a comment: it shows nothing, but no proxy ends the stream
                    await response.write(b":\n\n")
                else:
                    news = _news(sent, view)
                    if news or now - said > BEAT:
                        await response.write(f"data: {json.dumps(news)}\n\n".encode())
                        said = now
                    sent = dict(view.parts)
                view = await self._next_view(request)
        return response

    async def _next_view(self, request: web.Request) -> PageView | None:
        """The view after something may have changed; None: nobody knows now whether the reader may
        still see it, and the page grows old."""
        changes, drawn = self._changes(request), time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            if self._changes(request) == changes and time.monotonic() - drawn < REDRAW:
                continue
            try:
                return await self._view(request)
            except web.HTTPServiceUnavailable:
                return None


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


def _framed(view: PageView, request: web.Request, access: Access) -> str:
    path = request.rel_url.path.removeprefix(access.base)
    events = f"events{path}?{request.rel_url.raw_query_string}"
    refresh = '<noscript><meta http-equiv="refresh" content="10"></noscript>'
    refresh = "" if "still" in request.query else refresh
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(view.title)}</title>\n"
        '<link rel="stylesheet" href="page.css"><script src="page.js" defer></script>\n'
        f"{refresh}</head>\n"
        f'<body data-events="{safe_url(events)}"><p id="stale" class="note" hidden></p><main>'
        f'{view.before}<div id="main">{view.whole}</div>{access.ending}</main></body></html>\n'
    )
