"""The operator's end of the heartbeat, scripted: a real HTTP server in threads of the test.

Tests set `answer` (for every worker, or per worker) and look at the newest state of each agent.
"""

from __future__ import annotations

import select
import ssl
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from tests.support.eventually import eventually
from trainrun.contract.agent_state import AgentState
from trainrun.contract.answer import Answer, Hold, Order
from trainrun.contract.wire import OPERATORS_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable


class OperatorStandIn:
    """Use as a context manager."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.status = 200
        """What every request is answered with; other than 200: no answer in it."""
        self.takes = 1 << 30
        """Bytes of a heartbeat; a larger one is answered with 413."""
        self.text = ""
        """Answer with this text, whatever was ordered."""
        self.operators: tuple[str, ...] = ()
        """Told with every response, as where all operators are."""
        self.bodies: list[bytes] = []
        self.tokens: set[str] = set()
        self.requests = 0
        self.waits: list[float] = []
        """Seconds for which each request may be held back."""
        self._answers: dict[str, Answer] = {}
        self._default = Answer(order=Hold(attempt=1), poll=2.0)
        self._states: dict[str, AgentState] = {}
        self._changed = threading.Condition()
        self._closed = False
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                stand_in._handle(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.place = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        if tls is not None:
            # Hands shake in the connection's own thread: one that fails must not hold up the rest.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> OperatorStandIn:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def order(self, order: Order, *, worker: str | None = None, **more: object) -> None:
        """Give an order to one worker, or to all; `more` are other fields of the answer."""
        answer = Answer(order=order, poll=2.0, **more)  # type: ignore[arg-type]
        with self._changed:
            if worker is None:
                self._default, self._answers = answer, {}
            else:
                self._answers[worker] = answer
            self._changed.notify_all()

    def also(self, worker: str | None = None, **more: object) -> None:
        """Change other fields of the present answer."""
        with self._changed:
            now = self._default if worker is None else self._answer(worker)
            answer = replace(now, **more)  # type: ignore[arg-type]
            if worker is None:
                self._default = answer
            else:
                self._answers[worker] = answer
            self._changed.notify_all()

    def state(self, worker: str = "run-0-1") -> AgentState | None:
        """The newest state of a worker's agent."""
        with self._changed:
            return self._states.get(worker)

    def until(
        self,
        condition: Callable[[AgentState], object],
        *,
        worker: str = "run-0-1",
        timeout: float = 60.0,
        what: str = "",
    ) -> AgentState:
        """Wait for a state of a worker and return it."""
        found: list[AgentState] = []

        def look() -> bool:
            state = self.state(worker)
            if state is not None and condition(state):
                found.append(state)
            return bool(found)

        try:
            eventually(look, timeout=timeout, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}; last state: {self.state(worker)}") from error
        return found[0]

    def digest(self, worker: str) -> str:
        """Digest of a worker's present answer."""
        return self._answer(worker).digest

    def _answer(self, worker: str) -> Answer:
        return self._answers.get(worker, self._default)

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        if len(body) > self.takes:
            self._reply(request, 413, b"too large")
            return
        self.tokens.add(request.headers.get("Authorization", ""))
        state = AgentState.from_json(body)
        wait = float(parse_qs(urlsplit(request.path).query).get("wait", ["0"])[0])
        with self._changed:
            self.requests += 1
            self.bodies.append(body)
            self.waits.append(wait)
            if self.status != 200:
                self._reply(request, self.status, b"not now")
                return
            known = self._states.get(state.worker)
            if known is None or known.agent != state.agent or known.sequence < state.sequence:
                self._states[state.worker] = state
            self._hold_back(request, state, wait)
            text = (self.text or self._answer(state.worker).to_json()).encode()
        self._reply(request, 200, text)

    def _hold_back(self, request: BaseHTTPRequestHandler, state: AgentState, wait: float) -> None:
        """Until there is another answer than the agent has seen, or it has more to say."""

        def is_over() -> bool:
            return self._closed or self._answer(state.worker).digest != state.seen

        if is_over() or not wait or "interruptible" not in request.path:
            self._changed.wait_for(is_over, timeout=wait)
            return
        request.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        deadline = time.monotonic() + wait
        while not self._changed.wait_for(is_over, timeout=0.01) and time.monotonic() < deadline:
            if select.select([request.connection], [], [], 0)[0]:
                request.rfile.readline()  # the empty line; or the end, which the reply meets
                return

    def _reply(self, request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        try:
            request.send_response(status)
            request.send_header("Content-Length", str(len(body)))
            if self.operators:
                request.send_header(OPERATORS_HEADER, ",".join(self.operators))
            request.end_headers()
            request.wfile.write(body)
        except OSError:
            request.close_connection = True  # the agent has gone
