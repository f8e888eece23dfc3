"""One request to the API server.

Layer: kube, leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import aiohttp

JSON = "application/json"

CONNECT_TIMEOUT = 10.0
"""Seconds."""


def nobody_minds() -> None:
    """The default of `guard`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What is sent, as often as it takes."""

    verb: str
    """get, watch, post, put, patch or delete."""
    path: str
    """Of the resource."""
    params: Mapping[str, str]
    """The query."""
    limits: aiohttp.ClientTimeout
    """How long it may take."""
    body: object = None
    """As JSON; None: there is none."""
    guard: Callable[[], None] = nobody_minds
    """Called whenever it is about to be sent; raises if it must not be any more."""
    content: str = JSON
    """Media type of the body."""

    @property
    def method(self) -> str:
        """Of HTTP."""
        return "get" if self.verb == "watch" else self.verb

    @property
    def target(self) -> str:
        """Path and query."""
        query = urlencode(self.params, quote_via=quote)
        return f"{self.path}?{query}" if query else self.path


def within(seconds: float) -> aiohttp.ClientTimeout:
    """So long for the whole call."""
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_TIMEOUT, seconds))
