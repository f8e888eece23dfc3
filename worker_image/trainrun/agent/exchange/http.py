"""HTTP/1.1 over asyncio streams: a small client, and the heads for the agent's own small servers.

Layer: agent. One kept connection, one request at a time, JSON bodies: a long poll must not hold a
thread, and the standard library has no asynchronous client. Every error closes the connection, so
that the next request resolves the name again: it may lead to another leader by then.

The operator's certificate must be signed by the CA in the configuration, whatever else the image
trusts. Tokens are renewed while the agent runs, so each request reads the token file again.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from trainrun.contract.agent_config import AgentConfig, BadConfig

T = TypeVar("T")

LONGEST_BODY = 16 << 20
"""Bytes of an answer; an operator never sends more."""
HELD_BACK = "HTTP/1.1 102 "
"""Sent by a server that holds an answer back; an empty line then requests it at once."""
CONNECT_TIMEOUT = 5.0
"""Seconds to establish a connection: a dead address must not use up the time of a whole exchange,
since the next look-up may return another one."""
ADDRESS_TIMEOUT = 3.0
"""The same if the address is given and there are others."""
REACH_TIMEOUT = 1.0
"""Seconds for the TCP handshake before that, which the kernel completes at once, however busy the
operator is. Addresses of dead operators stay listed for a while, and the agent tries each."""


class HttpError(OSError):
    """The exchange failed: not connected, cut off, timed out, or not HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Status, body and headers of an answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By their names in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Ends the wait for an answer that the server holds back."""

    event: asyncio.Event
    """Once it is set, the client asks the server to answer at once."""
    patience: float
    """Seconds that the server may take then."""


class HttpClient:
    """Talks to one base address."""

    def __init__(
        self,
        base_url: str,
        *,
        address: str = "",
        token: Callable[[], str] = lambda: "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`address` (`host:port`) is dialled instead of the host in `base_url`, for which the
        server's certificate must still be valid; `token` is called before each request, since it
        may be renewed; empty: none."""
        parts = urlsplit(base_url)
        secure = parts.scheme == "https"
        self._name = parts.hostname or ""
        self._netloc = parts.netloc
        self._dialled = address or parts.netloc
        dialled = urlsplit(f"//{self._dialled}")
        self._host = dialled.hostname or ""
        self._port = dialled.port or (443 if secure else 80)
        self._is_address = bool(address)
        self._path = parts.path.rstrip("/")
        self._token = token
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(
        self, path: str, body: bytes, timeout: float, *, interrupt: Interrupt | None = None
    ) -> Response:
        """Send `body` and return the answer. Raises HttpError.

        `interrupt` ends the wait for an answer that the server holds back.
        """
        try:
            return await asyncio.wait_for(self._post(path, body, interrupt), timeout)
        except asyncio.TimeoutError as error:
            raise HttpError(f"{self._dialled}: no answer within {timeout:.0f} s") from error
        except HttpError:
            raise
        except OSError as error:
            raise HttpError(f"{self._dialled}: {explain_connection(error)}") from error
        except (EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise HttpError(f"{self._dialled}: {error!r}") from error

    @property
    def connected(self) -> bool:
        """There is a connection, as far as the client knows."""
        return self._streams is not None

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _post(self, path: str, body: bytes, interrupt: Interrupt | None) -> Response:
        reusable = False
        try:
            reader, writer = self._streams or await self._connect()
            writer.write(self._head(path, len(body)) + body)
            head = await self._head_of_answer(reader, writer, interrupt)
            response, reusable = await self._read(reader, head)
            return response
        finally:
            # Also when cancelled: the next request must not read a late answer to this one.
            if not reusable:
                self.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where: dict[str, Any] = {"host": self._host, "port": self._port}
        if self._is_address:
            where = {"sock": await self._in_time(self._reach(), REACH_TIMEOUT)}
        connecting = asyncio.open_connection(
            **where, ssl=self._tls, server_hostname=self._name if self._tls is not None else None
        )
        timeout = ADDRESS_TIMEOUT if self._is_address else CONNECT_TIMEOUT
        self._streams = await self._in_time(connecting, timeout)
        return self._streams

    async def _reach(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # IPPROTO_TCP lets asyncio set TCP_NODELAY, as on connections that it opens itself.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.settimeout(0)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (self._host, self._port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _in_time(self, connecting: Coroutine[Any, Any, T], timeout: float) -> T:
        try:
            return await asyncio.wait_for(connecting, timeout)
        except asyncio.TimeoutError as error:
            message = f"{self._dialled}: no connection within {timeout:.0f} s"
            raise HttpError(message) from error

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

    async def _head_of_answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        interrupt: Interrupt | None,
    ) -> str:
        head = await _head_text(reader)
        if not head.startswith(HELD_BACK) or interrupt is None:
            return head
        reading = asyncio.ensure_future(_head_text(reader))
        news = asyncio.ensure_future(interrupt.event.wait())
        try:
            await asyncio.wait([reading, news], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                writer.write(b"\r\n")
                await asyncio.wait([reading], timeout=interrupt.patience)
            if not reading.done():
                raise HttpError(f"no answer within {interrupt.patience:.0f} s of an interrupt")
            return reading.result()
        finally:
            news.cancel()
            reading.cancel()

    async def _read(self, reader: asyncio.StreamReader, head: str) -> tuple[Response, bool]:
        status_line, *lines = head.rstrip("\r\n").split("\r\n")
        version, _, rest = status_line.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"not HTTP: {status_line!r:.80}")
        headers = _fields(lines)
        status = int(rest.split(" ", 1)[0])
        body = b"" if status == 204 else await _read_body(reader, headers)
        reusable = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return Response(status=status, body=body, headers=headers), reusable


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
        raise ValueError(f"the answer has {size} bytes, more than {LONGEST_BODY}")
    return await reader.readexactly(size)


class NoToken(OSError):
    """The token's file cannot be read now."""


def tls_context(config: AgentConfig) -> ssl.SSLContext | None:
    """Return the context that verifies `operator_url`; None for plain HTTP.

    Raises BadConfig if `ca` holds no certificate.
    """
    if urlsplit(config.operator_url).scheme != "https":
        return None
    try:
        # Given certificates replace those of the system.
        return ssl.create_default_context(cadata=config.ca or None)
    except (ssl.SSLError, ValueError) as error:
        raise BadConfig(f"the field ca holds no certificate in PEM form: {error}") from error


def token_source(config: AgentConfig) -> Callable[[], str]:
    """Return a function that reads the token for a request; it raises NoToken."""
    if not config.token_file:
        return lambda: config.token
    file = Path(config.token_file)

    def read() -> str:
        try:
            return file.read_text().strip()
        except OSError as error:
            raise NoToken(f"the token cannot be read from {file}: {error.strerror}") from error

    return read


def explain_connection(error: OSError) -> str:
    """Describe a connection error, and what to check if that is not obvious."""
    if isinstance(error, NoToken):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); either it is not the "
            "operator, or the operator's CA was replaced after this worker was created"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or error}"
    return repr(error)


END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request, before any body."""

    method: str
    path: str
    """As it was sent, not decoded."""
    fields: Mapping[str, str]
    """By their names in lower case."""

    def has_token(self, token: str) -> bool:
        """Whether its bearer token is this one."""
        sent = self.fields.get("authorization", "").encode()
        return hmac.compare_digest(sent, f"Bearer {token}".encode())


async def read_head(reader: asyncio.StreamReader) -> RequestHead:
    """Read the next request's head. Raises EOFError, LimitOverrunError, OSError."""
    request, *lines = (await _head_text(reader)).rstrip("\r\n").split("\r\n")
    method, _, rest = request.partition(" ")
    return RequestHead(method=method, path=rest.partition(" ")[0], fields=_fields(lines))


async def _head_text(reader: asyncio.StreamReader) -> str:
    """The first lines of a request or an answer, up to the empty one."""
    return (await reader.readuntil(END_OF_HEAD)).decode("latin-1")


def _fields(lines: Iterable[str]) -> dict[str, str]:
    """By their names in lower case."""
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def answer_head(status: int, length: int) -> bytes:
    """The head of an answer with a body of `length` bytes."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return f"{line}\r\nContent-Length: {length}\r\n\r\n".encode()
