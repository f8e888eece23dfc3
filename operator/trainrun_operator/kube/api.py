"""The client of the Kubernetes API: JSON objects in, JSON objects out.

Layer: kube. Invariants: every call ends within its timeout; every failure is one of
`errors`; at most WRITES_IN_FLIGHT writes are in flight, so that a gang of a thousand pods does not
look like an attack; 429 is obeyed, within bounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import aiohttp

from trainrun_operator.kube.connection import (
    Transport,
    bearer,
    load_configuration,
    reload_token,
)
from trainrun_operator.kube.errors import Unavailable, error_of
from trainrun_operator.kube.json_text import Items, decoded, json_lines, text_lines

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

Object = dict[str, Any]
"""A JSON object of the API, unchanged."""

CONNECT_TIMEOUT = 10.0
"""Seconds."""

REQUEST_TIMEOUT = 30.0
"""Seconds for a whole call, without the wait for other writes."""

SILENCE_TIMEOUT = 70.0
"""Seconds without a byte after which a watch is dead: bookmarks come about once a minute."""

CLOSE_PAUSE = 0.05

WRITES_IN_FLIGHT = 32

PAGE = 20
"""Objects per page of a list: the API server, too, holds a whole page in memory."""

RETRIES = 4
"""How often a call is retried after a 429."""
USUAL_PAUSE = 1.0
LONGEST_PAUSE = 5.0
"""Seconds before such a retry: the default without Retry-After, and the maximum."""

OUTAGE = 5.0
"""Seconds without a good answer that make an outage of the API server."""

UNREACHABLE = "unreachable"
"""The code of a call that got no answer, for `observe_call`."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

MANAGER = "trainrun-operator"
"""Our name in managedFields and in the API server's audit log."""


def no_guard() -> None:
    """The default of `guard`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request; it may be sent several times."""

    verb: str
    """get, watch, post, put, patch or delete."""
    path: str
    """Of the resource."""
    params: Mapping[str, str]
    """The query."""
    limits: aiohttp.ClientTimeout
    """How long it may take."""
    body: object = None
    """Sent as JSON; None: no body."""
    guard: Callable[[], None] = no_guard
    """Called before each send; raises if the request must no longer be sent."""
    content: str = JSON
    """Media type of the body."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "get" if self.verb == "watch" else self.verb

    @property
    def target(self) -> str:
        """Path and query."""
        query = urlencode(self.params, quote_via=quote)
        return f"{self.path}?{query}" if query else self.path


def within(seconds: float) -> aiohttp.ClientTimeout:
    """The timeouts of a call that may take this many seconds in all."""
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_TIMEOUT, seconds))


class KubeApi:
    """A connection to one cluster. Use it only in the event loop that made it."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._rest = Transport(configuration)
        self.observe_call: Callable[[str, str], None] = lambda _verb, _code: None
        """Called with the verb and the HTTP code of each call."""
        self._writes = asyncio.Semaphore(WRITES_IN_FLIGHT)
        self._reloading = asyncio.Lock()
        self._down_since: float | None = None
        self._up_again_at = -inf

    @classmethod
    async def connect(cls) -> KubeApi:
        """Read the cluster's configuration; sends nothing yet. Raises NoCluster."""
        return cls(await load_configuration())

    @classmethod
    @asynccontextmanager
    async def connected(cls) -> AsyncGenerator[KubeApi]:
        """A connection, closed at the end. Raises NoCluster."""
        api = await cls.connect()
        try:
            yield api
        finally:
            await api.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()
        # Connections cut in the middle of a call still shut down; aiohttp does not wait for that.
        await asyncio.sleep(CLOSE_PAUSE)

    @property
    def since_outage(self) -> float:
        """Seconds since the last outage of the API server ended; 0 during one, inf if none yet."""
        now = time.monotonic()
        if self._down_since is not None and now - self._down_since >= OUTAGE:
            return 0.0
        return now - self._up_again_at

    # ------------------------------------------------------------------------------- calls

    async def get(
        self, path: str, *, params: Mapping[str, str] = {}, timeout: float = REQUEST_TIMEOUT
    ) -> Object:
        """Read an object or a list."""
        return await self._call(
            ApiRequest(verb="get", path=path, params=params, limits=within(timeout))
        )

    async def each(
        self, path: str, take: Callable[[Object], None], *, params: Mapping[str, str] = {}
    ) -> int:
        """Call `take` with each object of a list, a snapshot of one moment; the next object is
        parsed when `take` returns. Returns the list's resourceVersion. Raises Gone if it took too
        long.

        The objects of a list lack apiVersion and kind.
        """
        following = {**params, "limit": str(PAGE)}
        while True:
            items = Items()
            request = ApiRequest(
                verb="get", path=path, params=following, limits=within(REQUEST_TIMEOUT)
            )
            async with aclosing(self._chunks(request)) as chunks:
                async for chunk in chunks:
                    for text in items.feed(chunk):
                        take(_json(request, text))
                    await asyncio.sleep(0)  # a long list must not block the event loop
            with _as_unavailable(request):
                metadata = items.rest()["metadata"]
            if not (token := metadata.get("continue")):
                return int(metadata["resourceVersion"])
            following["continue"] = token

    async def list_all(self, path: str, *, params: Mapping[str, str] = {}) -> list[Object]:
        """All objects of a small list."""
        found: list[Object] = []
        await self.each(path, found.append, params=params)
        return found

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_TIMEOUT,
        urgent: bool = False,
        guard: Callable[[], None] = no_guard,
    ) -> Object:
        """Create an object. `urgent`: do not wait for other writes. `guard` is called before each
        send and raises if the request must no longer be sent."""
        request = _write("post", path, body, timeout=timeout, guard=guard, manager=MANAGER)
        return await self._written(request, urgent=urgent)

    async def put(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_TIMEOUT,
        urgent: bool = False,
        guard: Callable[[], None] = no_guard,
    ) -> Object:
        """Replace an object; with a resourceVersion in the body, only that version. `urgent` and
        `guard` as in `post`."""
        request = _write("put", path, body, timeout=timeout, guard=guard, manager=MANAGER)
        return await self._written(request, urgent=urgent)

    async def patch(self, path: str, body: Mapping[str, Any], *, manager: str) -> Object:
        """Merge into an object (RFC 7386: lists are replaced, null deletes) as this field manager;
        with a resourceVersion in the body, only into that version. For users' commands: the
        operator itself writes whole objects."""
        return await self._written(_write("patch", path, body, manager=manager))

    async def delete(
        self,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        guard: Callable[[], None] = no_guard,
    ) -> Object:
        """Delete an object; returns the object as it is being deleted, or a Status once it is
        gone. `guard` as in `post`."""
        return await self._written(_write("delete", path, body, guard=guard))

    async def stream(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[Object]:
        """The events of a watch until the server ends it. Close it with `contextlib.aclosing`.

        Raises Unavailable when the connection breaks or is silent for SILENCE_TIMEOUT.
        """
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT, sock_read=SILENCE_TIMEOUT
        )
        request = ApiRequest(
            verb="watch", path=path, params={**params, "watch": "1"}, limits=limits
        )
        async with aclosing(self._chunks(request)) as chunks:
            with _as_unavailable(request):
                async for event in json_lines(chunks):
                    yield event

    async def text_lines(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[str]:
        """The lines of an answer such as a container's log, as they arrive, without line ends,
        until the server ends it. Close it with `contextlib.aclosing`.

        It may be silent for hours; TCP keepalives notice a dead server. Raises Unavailable when the
        connection breaks.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=None)
        request = ApiRequest(verb="get", path=path, params=params, limits=limits)
        async with aclosing(self._chunks(request)) as chunks:
            async for line in text_lines(chunks):
                yield line

    # ------------------------------------------------------------------------------ sending

    async def _written(self, request: ApiRequest, *, urgent: bool = False) -> Object:
        async with nullcontext() if urgent else self._writes:
            return await self._call(request)

    async def _call(self, request: ApiRequest) -> Object:
        response = await self._answer(request)
        try:
            with _as_unavailable(request):
                answer: Object = decoded(await response.read())
        finally:
            _drop(response)
        return answer

    async def _chunks(self, request: ApiRequest) -> AsyncGenerator[bytes]:
        """An answer's body, chunk by chunk. Raises KubeError."""
        response = await self._answer(request)
        try:
            with _as_unavailable(request):
                async for chunk in response.content.iter_any():
                    yield chunk
        finally:
            _drop(response)

    async def _answer(self, request: ApiRequest) -> aiohttp.ClientResponse:
        """An answer with a status below 400, its body not yet read. Raises KubeError."""
        for tries_left in reversed(range(RETRIES + 1)):
            with _as_unavailable(request):
                token = await bearer(self._configuration)
                request.guard()
                response = await self._send(request, token)
                if response.status < 400:
                    return response
                error = error_of(response.status, await response.read())
            if tries_left and response.status == 429:
                await asyncio.sleep(_pause(response.headers.get("Retry-After", "")))
            elif not (tries_left and response.status == 401 and await self._other_token(token)):
                raise error
        raise AssertionError("the last try returns or raises")

    async def _send(self, request: ApiRequest, token: str | None) -> aiohttp.ClientResponse:
        headers = {"Content-Type": request.content, "Accept": JSON, "User-Agent": MANAGER}
        if token:
            headers["Authorization"] = token
        code = UNREACHABLE
        try:
            answer = await self._rest.request(
                request.method,
                f"{self._configuration.host}{request.target}",
                headers=headers,
                body=request.body,
                _request_timeout=request.limits,
            )
            response: aiohttp.ClientResponse = answer.response
            code = str(response.status)
        finally:
            self.observe_call(request.verb, code)
            self._note(good=code != UNREACHABLE and not code.startswith("5"))
        return response

    def _note(self, *, good: bool) -> None:
        now = time.monotonic()
        if not good:
            self._down_since = now if self._down_since is None else self._down_since
        elif self._down_since is not None:
            if now - self._down_since >= OUTAGE:
                self._up_again_at = now
            self._down_since = None

    async def _other_token(self, refused: str | None) -> bool:
        """Whether we now have another token than the refused one."""
        async with self._reloading:  # a plugin that makes tokens is started once, not per call
            try:
                if await bearer(self._configuration) != refused:
                    return True
                return await reload_token(self._configuration)
            except OSError:
                return False


def _write(
    verb: str,
    path: str,
    body: Mapping[str, Any] | None,
    *,
    manager: str = "",
    timeout: float = REQUEST_TIMEOUT,
    guard: Callable[[], None] = no_guard,
) -> ApiRequest:
    return ApiRequest(
        verb=verb,
        path=path,
        params={"fieldManager": manager} if manager else {},
        limits=within(timeout),
        body=body,
        guard=guard,
        content=MERGE_PATCH if verb == "patch" else JSON,
    )


def _drop(response: aiohttp.ClientResponse) -> None:
    """Finish with an answer. If it was read to its end, its connection is back in the pool;
    otherwise cut it, since a TLS shutdown would wait for a server that may be gone."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


@contextmanager
def _as_unavailable(request: ApiRequest) -> Iterator[None]:
    """Raise Unavailable for no answer, half an answer, or one that is not the API server's."""
    try:
        yield
    except (aiohttp.ClientError, OSError, ValueError) as error:
        text = str(error) or type(error).__name__
        raise Unavailable(f"{request.verb} {request.path}: {text}") from error


def _json(request: ApiRequest, text: bytes) -> Object:
    with _as_unavailable(request):
        value: Object = decoded(text)
        return value


def _pause(retry_after: str) -> float:
    """Seconds; with jitter, so that many callers do not retry at once."""
    asked = float(retry_after) if retry_after.isdigit() else USUAL_PAUSE
    return min(asked, LONGEST_PAUSE) * random.uniform(1.0, 1.2)
