"""Who may see the page in a cluster: whoever has a token of it sees what they may read there.

Layer: cli. The token comes in the Authorization header, or in a cookie that a form has set. What
its owner may read, the API server says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from trainrun.errors import TrainRunError
from trainrun_operator.api.base import GROUP
from trainrun_operator.cli.report.page import safe
from trainrun_operator.cli.viewing.access import NAMES, DataKind, cookie_of, named_host, told
from trainrun_operator.cli.viewing.views import link, safe_url
from trainrun_operator.worlds.kubernetes.access_reviews import (
    Right,
    TokenReader,
    TokenReaders,
    TooManyTokens,
)

RIGHTS: dict[DataKind, Right] = {
    "trainruns": Right(verb="list", group=GROUP, resource="trainruns"),
    "trainsweeps": Right(verb="list", group=GROUP, resource="trainsweeps"),
    "pods": Right(verb="list", resource="pods"),
    "pods/log": Right(verb="get", resource="pods", subresource="log"),
}
"""What a reader needs in a namespace to see its data of this kind."""
OPEN = ("page.css", "page.js", "favicon.ico", "sign-in")
"""Paths that tell nothing of any run."""
HEALTH = "/healthz"

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,3800}")
"""A browser keeps no cookie of more than 4,096 characters."""
_TO = re.compile(r"[a-z]*(\?[!-~]*)?")
"""A page of ours, to come back to."""
_NOT_NOW = "the cluster cannot say now who you are, so nothing is shown; try again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterToken:
    """Access with tokens of the cluster."""

    readers: TokenReaders
    hosts: tuple[str, ...] = ()
    """What browsers call this server, besides NAMES."""
    base: str = ""
    host: str | None = None
    ending: str = (
        '<form method="post" action="sign-in" class="out"><button>sign out</button></form>'
    )

    def add_routes(self, app: web.Application) -> None:
        """See Access."""
        app.router.add_get(HEALTH, self._healthy)
        app.router.add_post(f"{self.base}/sign-in", self._sign_in)
        if self.base:
            app.router.add_get(self.base, self._to_the_list)

    def address(self, port: int, path: str) -> str:
        """See Access."""
        return f"http://127.0.0.1:{port}{self.base}/{path}"

    async def refusal(self, request: web.Request) -> web.Response | None:
        """See Access."""
        if request.path == HEALTH:  # kubelets call a pod by its address
            return None
        if named_host(request) not in (*NAMES, *self.hosts):
            return told(421, "this name is not in the chart's value page.hosts; open another one")
        is_open = self._page_of(request) in OPEN or request.path == self.base
        if is_open or await self._reader(request) is not None:
            return None
        return self._form(request, "")

    async def reader(self, request: web.Request) -> str:
        """See Access."""
        return str((await self._known_reader(request)).user["user"])

    async def allowed(
        self, request: web.Request, kind: DataKind, namespaces: Collection[str], /
    ) -> frozenset[str]:
        """See Access."""
        reader = await self._known_reader(request)
        with _or_silent():
            return await self.readers.allowed(reader, RIGHTS[kind], namespaces)

    async def _known_reader(self, request: web.Request) -> TokenReader:
        reader = await self._reader(request)
        if reader is None:
            raise web.HTTPUnauthorized(reason="the cluster no longer accepts this token")
        return reader

    async def _reader(self, request: web.Request) -> TokenReader | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = request.cookies.get(cookie_of(request), "")
        if not _TOKEN.fullmatch(token):
            return None
        with _or_silent():
            return await self.readers.of(token)

    def _page_of(self, request: web.Request) -> str:
        return request.path.removeprefix(f"{self.base}/")

    def _form(self, request: web.Request, problem: str) -> web.Response:
        """A form for the token, in place of what was asked for."""
        headers = {"WWW-Authenticate": "Bearer"}
        page = self._page_of(request)
        if request.method == "GET" and page.startswith("events"):
            return web.Response(status=401, text="sign in again\n", headers=headers)
        to = request.query.get("to", "") if page == "sign-in" else _here(request, page)
        text = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Sign in</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<link rel="stylesheet" href="page.css"></head><body><main><h1>Runs</h1>\n'
            f'<form method="post" action="{link("sign-in", to=to)}">'
            '<input type="password" name="token" required aria-label="token" autofocus '
            'autocomplete="off" placeholder="a token of this cluster">'
            "<button>sign in</button></form>\n"
            f'<p class="bad" role="alert">{safe(problem)}</p>'
            "<p>Your administrator gives you a token, or <code>kubectl create token NAME "
            "--namespace NAMESPACE</code> does. You see what it may read.</p>\n"
            # The cookie does not come with a link from elsewhere, but with this one.
            f'<p><a href="{safe_url(f"./{to}")}">I am signed in already</a></p>'
            "</main></body></html>\n"
        )
        return web.Response(status=401, text=text, content_type="text/html", headers=headers)

    async def _sign_in(self, request: web.Request) -> web.Response:
        """Keep the token in a cookie; without one, forget it."""
        if not _is_from_here(request):
            return told(403, "sign in on this page itself")
        # Never over an open line, but for a port that was forwarded to the reader's own machine.
        secure = named_host(request) not in NAMES
        if secure and request.headers.get("X-Forwarded-Proto") == "http":
            return told(403, "open this page by https: your token would be sent in the clear")
        token = str((await request.post()).get("token", "")).strip()
        to = request.query.get("to", "")
        response = web.Response(
            status=303, headers={"Location": f"./{to}" if _TO.fullmatch(to) else "./"}
        )
        path = f"{self.base}/"
        if not token:
            response.del_cookie(cookie_of(request), path=path)
            return response
        with _or_silent():
            if not _TOKEN.fullmatch(token) or await self.readers.of(token) is None:
                return self._form(request, "The cluster does not accept this token.")
        response.set_cookie(
            cookie_of(request), token, httponly=True, samesite="Strict", secure=secure, path=path
        )
        return response

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _to_the_list(self, _: web.Request) -> web.Response:
        return web.Response(status=303, headers={"Location": f"{self.base}/"})


def _here(request: web.Request, page: str) -> str:
    query = request.rel_url.raw_query_string
    return f"{page}?{query}" if query else page


def _is_from_here(request: web.Request) -> bool:
    """No other site has sent this form. Old browsers do not say which one did."""
    origin = request.headers.get("Origin", "")
    same = not origin or urlsplit(origin).netloc == request.host
    return same and request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"


@contextmanager
def _or_silent() -> Iterator[None]:
    """Raises HTTPServiceUnavailable for an API server that does not answer, and
    HTTPTooManyRequests."""
    try:
        yield
    except TooManyTokens as error:
        raise web.HTTPTooManyRequests(reason=str(error)) from error
    except TrainRunError as error:
        raise web.HTTPServiceUnavailable(reason=_NOT_NOW) from error
