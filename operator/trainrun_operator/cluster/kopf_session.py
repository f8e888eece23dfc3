"""kopf's connection to the API server: of lists, kopf gets to see which objects there are.

Layer: cluster. kopf parses a page as a whole, and puts each object into a queue of its own; what
they hold is no business of its, since the runs' own lists have it.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import kopf

from trainrun_operator.kube.decoding import decoded
from trainrun_operator.kube.items import Items
from trainrun_operator.kube.raw import named


class _Answer(aiohttp.ClientResponse):
    async def json(self, **_: object) -> Any:
        """The answer; if it is a list, without what is in its objects."""
        items, found = Items(), list[dict[str, Any]]()
        async for part in self.content.iter_any():
            found += [named(decoded(text)) for text in items.feed(part)]
        rest = items.rest()
        return {**rest, "items": found} if found else rest


def session_of(info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """A connection with these credentials, for the loop that runs now."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=_Answer,
    )
    return kopf.AiohttpSession(
        server=info.server,
        default_namespace=info.default_namespace,
        expiration=info.expiration,
        aiohttp_session=session,
    )
