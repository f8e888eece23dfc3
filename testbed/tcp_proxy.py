"""A TCP proxy that can be slow, and lose answers: the network of a bad day."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator


class TcpProxy:
    """Forwards connections to a port; its faults may be changed at any time."""

    def __init__(
        self, upstream_port: int, *, upstream_host: str = "127.0.0.1", host: str = "127.0.0.1"
    ) -> None:
        self.upstream_port = upstream_port
        self.upstream_host = upstream_host
        self.host = host
        """The address that it listens on; nobody else reaches the loopback one."""
        self.delay = 0.0
        """Seconds that each piece of an answer is held back."""
        self.chunk = 1 << 16
        """Bytes forwarded at a time."""
        self.lose_answers = 0
        """So many answers are dropped, with their connections, after the server has given them."""
        self.cut_answers_after: int | None = None
        """Answers longer than this break off here."""
        self.answered = 0
        """Bytes of answers that were passed on."""
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((self.upstream_host, self.upstream_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for target in (self._forward_requests, self._forward_answers):
                threading.Thread(target=target, args=(client, server), daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        with self._closing(client, server):
            while data := client.recv(self.chunk):
                server.sendall(data)

    def _forward_answers(self, client: socket.socket, server: socket.socket) -> None:
        with self._closing(client, server):
            sent = 0
            while data := server.recv(self.chunk):
                time.sleep(self.delay)
                # "100 Continue" only invites the body of the request: it is not the answer.
                if self.lose_answers > 0 and not data.startswith(b"HTTP/1.1 100"):
                    self.lose_answers -= 1
                    return
                if self.cut_answers_after is not None and sent + len(data) > self.cut_answers_after:
                    self.cut_answers_after = None
                    return
                client.sendall(data)
                sent += len(data)
                with self._lock:
                    self.answered += len(data)

    @contextlib.contextmanager
    def _closing(self, *sockets: socket.socket) -> Iterator[None]:
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock, self._closing(*self._open):
            pass


@contextlib.contextmanager
def tcp_proxy(
    upstream_port: int, *, upstream_host: str = "127.0.0.1", host: str = "127.0.0.1"
) -> Iterator[TcpProxy]:
    """Run a proxy in threads of this process; it listens on `host`."""
    proxy = TcpProxy(upstream_port, upstream_host=upstream_host, host=host)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
