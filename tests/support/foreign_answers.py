"""An HTTP proxy before an S3 server that changes requests and answers, as bad ones do."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Exchange:
    """One request and what is answered to it; to be changed at will."""

    method: str
    path: str
    headers: dict[str, str]
    """Of the request, as they are passed on."""
    status: int = 0
    answer: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Meddle = Callable[[Exchange], None]

HOP_BY_HOP = ("connection", "expect", "keep-alive", "transfer-encoding")
"""Headers between two neighbours, not passed on (RFC 9110, 7.6.1; Expect is answered here)."""


class ForeignAnswers(ThreadingHTTPServer):
    """`before` sees each request before it is passed on, `after` its answer.

    A request that `before` gives a status is answered so, and not passed on.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = port
        self.before: Meddle = lambda _: None
        self.after: Meddle = lambda _: None
        self.seen: list[tuple[str, str]] = []
        self.connections = 0
        self.idle: float | None = None
        """Seconds after which it hangs up on a client that asks nothing; None: never."""
        self.hung_up = threading.Event()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def process_request(self, *args: Any) -> None:
        self.connections += 1
        super().process_request(*args)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.hung_up.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients are killed in the middle of a request: nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ForeignAnswers

    def setup(self) -> None:
        self.timeout = self.server.idle
        super().setup()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        exchange = Exchange(self.command, self.path, _passed_on(self.headers.items()))
        self.server.seen.append((self.command, self.path))
        self.server.before(exchange)
        if not exchange.status:
            self._ask_the_server(exchange, body)
        self.server.after(exchange)
        self.send_response_only(exchange.status)
        length = exchange.answer.pop("Content-Length", "0")
        if self.command != "HEAD":
            length = str(len(exchange.body))
        for name, value in exchange.answer.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(exchange.body)

    def _ask_the_server(self, exchange: Exchange, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream)
        with contextlib.closing(connection):
            # The signature covers the address that the client spoke to.
            connection.request(exchange.method, exchange.path, body, exchange.headers)
            answer = connection.getresponse()
            exchange.status, exchange.body = answer.status, answer.read()
            exchange.answer = _passed_on(answer.getheaders())

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on


def _passed_on(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in HOP_BY_HOP}


@contextlib.contextmanager
def foreign_answers(port: int) -> Iterator[ForeignAnswers]:
    """Run one before the server at this port of this machine."""
    with ForeignAnswers(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
