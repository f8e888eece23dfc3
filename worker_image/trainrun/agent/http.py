"""A small HTTP/1.1 client: one kept connection, one request at a time, JSON bodies.

Layer: agent. Over asyncio streams, because a long poll must not hold a thread and the standard
library has no asynchronous client. Every error closes the connection, so that the next request
looks the address up again: behind a name may be another leader by then.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainrun.agent.trust import explain

LONGEST_BODY = 16 << 20
"""Bytes of an answer; more is no answer of ours."""
CONNECT_TIMEOUT = 5.0
"""Seconds until a connection stands: an address that leads nowhere must not use up the time of a
whole exchange, since the next look-up may find another."""


class HttpError(OSError):
    """The exchange failed: not connected, cut off, timed out, or no HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Status and body of an answer."""

    status: int
    body: bytes


class HttpClient:
    """Talks to one base address."""

    def __init__(
        self,
        base_url: str,
        *,
        token: Callable[[], str] = lambda: "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`token` is asked before each request, since it may be renewed; empty: none."""
        parts = urlsplit(base_url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._netloc = parts.netloc
        self._path = parts.path.rstrip("/")
        self._token = token
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, timeout: float) -> Response:
        """Send `body` and return the answer. Raises HttpError."""
        try:
            return await asyncio.wait_for(self._post(path, body), timeout)
        except asyncio.TimeoutError as error:
            raise HttpError(f"{self._netloc}: no answer within {timeout:.0f} s") from error
        except HttpError:
            raise
        except OSError as error:
            raise HttpError(f"{self._netloc}: {explain(error)}") from error
        except (EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise HttpError(f"{self._netloc}: {error!r}") from error

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _post(self, path: str, body: bytes) -> Response:
        kept = False
        try:
            reader, writer = self._streams or await self._connect()
            writer.write(self._head(path, len(body)) + body)
            response, kept = await self._read(reader)
            return response
        finally:
            # Also when cancelled: an answer still to come must not meet the next request.
            if not kept:
                self.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connecting = asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            self._streams = await asyncio.wait_for(connecting, CONNECT_TIMEOUT)
        except asyncio.TimeoutError as error:
            raise HttpError(
                f"{self._netloc}: no connection within {CONNECT_TIMEOUT:.0f} s"
            ) from error
        return self._streams

    def _head(self, path: str, length: int) -> bytes:
        lines = [
            f"POST {self._path}{path} HTTP/1.1",
            f"Host: {self._netloc}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
        ]
        if token := self._token():
            lines.append(f"Authorization: Bearer {token}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[Response, bool]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.split("\r\n")
        version, _, rest = status_line.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"not HTTP: {status_line!r:.80}")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        status = int(rest.split(" ", 1)[0])
        body = b"" if status == 204 else await _read_body(reader, headers)
        kept = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return Response(status=status, body=body), kept


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await _exactly(reader, int(headers.get("content-length", "0")))
    chunks = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await _exactly(reader, size))
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return b"".join(chunks)


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    if size > LONGEST_BODY:
        raise ValueError(f"an answer of {size} bytes")
    return await reader.readexactly(size)
