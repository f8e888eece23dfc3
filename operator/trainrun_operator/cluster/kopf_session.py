"""kopf's connection to the API server: its lists are empty, and we hear when it begins to watch.

Layer: cluster. kopf lists to know from where in the history to watch. What there is then, the
operator lists itself, one object at a time: kopf would parse a page as a whole, and put each
object into a queue of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
import kopf

from trainrun_operator.kube.json_text import decoded

if TYPE_CHECKING:
    from aiohttp.connector import Connection


class _Answer(aiohttp.ClientResponse):
    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Where the kind is missing kopf would end; what looks like a broken connection it tries
        again, until the CRD is there once more."""
        answer = await super().start(connection)
        if self.status == HTTPStatus.NOT_FOUND:
            raise aiohttp.ClientConnectionError(f"{self.url}: {self.status} {self.reason}")
        return answer

    async def json(self, **_: object) -> Any:
        """The answer; a list as if it had nothing to show, and no other page."""
        answer = decoded(await self.read())
        if isinstance(answer, dict) and "items" in answer:
            version = answer["metadata"]["resourceVersion"]
            return {**answer, "metadata": {"resourceVersion": version}, "items": []}
        return answer


def session_of(
    info: kopf.ConnectionInfo, *, on_watch: Callable[[str, bool], None]
) -> kopf.AiohttpSession:
    """A connection with these credentials, for the loop that runs now; `on_watch` gets the path of
    each watch that is asked for, and whether it has begun."""

    async def over(
        _session: object,
        _context: object,
        asked: aiohttp.TraceRequestEndParams | aiohttp.TraceRequestExceptionParams,
    ) -> None:
        if "watch" in asked.url.query:
            good = isinstance(asked, aiohttp.TraceRequestEndParams) and asked.response.status < 400
            on_watch(asked.url.path, good)

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(over)
    trace.on_request_exception.append(over)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=_Answer,
        trace_configs=[trace],
    )
    return kopf.AiohttpSession(
        server=info.server,
        default_namespace=info.default_namespace,
        expiration=info.expiration,
        aiohttp_session=session,
    )
