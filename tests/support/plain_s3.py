"""An S3 server as they were before conditional writes: it knows them not, or answers 501.

Only for trying what happens without put-if-absent; everything else is tried on a real server.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PlainS3(ThreadingHTTPServer):
    """Objects in memory."""

    daemon_threads = True

    def __init__(self, *, refuses_conditions: bool, conflicts: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.refuses_conditions = refuses_conditions
        self.honours_conditions = conflicts > 0
        self.conflicts = conflicts
        """So many conditional writes are answered 409 before one is decided."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PlainS3

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("If-None-Match"):
            if self.server.refuses_conditions:
                return self._refuse(501, "NotImplemented", "A header you provided is unknown.")
            if self.server.conflicts > 0:
                self.server.conflicts -= 1
                return self._refuse(409, "ConditionalRequestConflict", "Try again.")
            if self.server.honours_conditions and self.path in self.server.objects:
                return self._refuse(412, "PreconditionFailed", "It is there.")
        self.server.objects[self.path] = body
        return self._answer(200, b"")

    def do_GET(self) -> None:
        body = self.server.objects.get(self.path)
        if body is None:
            return self._refuse(404, "NoSuchKey", "The key does not exist.")
        return self._answer(200, body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.objects.clear()
        self._answer(200, b"<DeleteResult></DeleteResult>")

    def _refuse(self, status: int, code: str, text: str) -> None:
        self._answer(
            status, f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
        )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"an-object"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def plain_s3(*, refuses_conditions: bool = False, conflicts: int = 0) -> Iterator[PlainS3]:
    """Run such a server in a thread."""
    with PlainS3(refuses_conditions=refuses_conditions, conflicts=conflicts) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
