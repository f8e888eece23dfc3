"""Who may see the page of this machine: a browser with the token that was printed.

Layer: cli. The token comes in the address once, as in Jupyter, and stays in a cookie. Pages of
other names are refused, so that no other site can read this one by naming our address (DNS
rebinding).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from trainrun_operator.cli.viewing.rows import RunRow

DataKind = Literal["trainruns", "trainsweeps", "pods", "pods/log"]
"""Kinds of data that somebody may see in one namespace, and not in another."""
NAMES = ("127.0.0.1", "localhost", "::1")
"""What a browser may call this machine; a forwarded port may be any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleNamespaces:
    """The namespaces that somebody may see rows of."""

    runs: frozenset[str]
    sweeps: frozenset[str]
    all: bool = False

    def has(self, row: RunRow) -> bool:
        """This row may be seen."""
        return self.all or row.namespace in (self.sweeps if row.sweep else self.runs)


ALL = VisibleNamespaces(runs=frozenset(), sweeps=frozenset(), all=True)
"""For what is looked up, but shown to nobody."""


class Access(Protocol):
    """Decides who may see what. Raises HTTPException, in words for the reader."""

    @property
    def host(self) -> str | None:
        """The address to listen on; None: all."""
        ...

    @property
    def base(self) -> str:
        """The path that stands before all others, such as `/runs`; empty: none."""
        ...

    @property
    def ending(self) -> str:
        """Markup at the end of each page."""
        ...

    def add_routes(self, app: web.Application) -> None:
        """Add the addresses that only this access has."""
        ...

    def address(self, port: int, path: str) -> str:
        """The address of a page."""
        ...

    async def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that may not see anything; None: it may."""
        ...

    async def reader(self, request: web.Request, /) -> str:
        """Who asks, by whatever browser or token."""
        ...

    async def allowed(
        self, request: web.Request, kind: DataKind, namespaces: Collection[str], /
    ) -> frozenset[str]:
        """Those of the namespaces whose data of this kind the request may see now."""
        ...


def named_host(request: web.Request) -> str:
    """The name by which the browser calls this server."""
    try:
        return urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        return ""


def cookie_of(request: web.Request) -> str:
    """The name of our cookie: browsers send cookies to all ports of a machine, so each has its own,
    or one page would take another's token."""
    return f"trainrun-page-{request.url.port}"


def told(status: int, text: str) -> web.Response:
    """An answer in words; of a problem that passes, the browser asks again in 10 s."""
    headers = {"Refresh": "10"} if status in (429, 503) else {}
    return web.Response(status=status, text=f"{text}\n", headers=headers)


@dataclass(frozen=True, slots=True)
class PrintedToken:
    """Whoever has the token sees all that the user's own credentials can read."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    host: str | None = "127.0.0.1"
    base: str = ""
    ending: str = ""

    def add_routes(self, app: web.Application) -> None:
        """See Access: none."""

    def address(self, port: int, path: str) -> str:
        """See Access; with the token."""
        mark = "&" if "?" in path else "?"
        return f"http://127.0.0.1:{port}/{path}{mark}token={self.token}"

    async def refusal(self, request: web.Request) -> web.Response | None:
        """See Access."""
        if named_host(request) not in NAMES:
            return told(421, "open this page as http://127.0.0.1 or http://localhost")
        cookie = cookie_of(request)
        if self._is_token(request.query.get("token", "")):
            response = web.Response(status=303)
            response.headers["Location"] = f".{request.rel_url.without_query_params('token')}"
            response.set_cookie(cookie, self.token, httponly=True, samesite="Strict", path="/")
            return response
        if self._is_token(request.cookies.get(cookie, "")):
            return None
        return told(403, "open the address that `trainrun page` has printed: it has a token")

    async def reader(self, _request: web.Request, /) -> str:
        """See Access: the user."""
        return ""

    async def allowed(
        self, _request: web.Request, _kind: DataKind, namespaces: Collection[str], /
    ) -> frozenset[str]:
        """See Access: all."""
        return frozenset(namespaces)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())
