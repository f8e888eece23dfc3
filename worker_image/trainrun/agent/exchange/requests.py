"""The heads of requests and answers, for the agent's own small servers of HTTP/1.1.

Layer: agent, leaf. Over asyncio streams, as the client in `http`.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

END_OF_HEAD = b"\r\n\r\n"

_REASONS = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    413: "Content Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """What is asked for, before any body."""

    method: str
    path: str
    """As it was sent, percent signs and all."""
    fields: Mapping[str, str]
    """By their names in lower case."""

    def shows(self, token: str) -> bool:
        """It bears this token."""
        shown = self.fields.get("authorization", "").encode()
        return hmac.compare_digest(shown, f"Bearer {token}".encode())


async def read_head(reader: asyncio.StreamReader) -> RequestHead:
    """The next request's. Raises what the stream raises: EOFError, LimitOverrunError, OSError."""
    text = (await reader.readuntil(END_OF_HEAD)).decode("latin-1")
    request, *lines = text.rstrip("\r\n").split("\r\n")
    method, _, rest = request.partition(" ")
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return RequestHead(method=method, path=rest.partition(" ")[0], fields=fields)


def answer_head(status: int, length: int) -> bytes:
    """The head of an answer with a body of `length` bytes."""
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: {length}\r\n\r\n".encode()
