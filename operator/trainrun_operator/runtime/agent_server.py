"""The HTTP server for agents (`POST /v1/heartbeat`, download by `GET /v1/agent`) and for clerks of
sweeps (`POST /v1/clerk`).

Layer: runtime. The request body is the agent's whole state, the answer the whole desired state;
with `?wait=<seconds>` the answer is held back until it differs from what the agent has seen; with
`&interruptible` too, the server says so (102), and the agent ends the wait with an empty line. An
authenticator that the composition root chooses decides which worker a caller may speak for.
Invariant: token before body. An unauthenticated caller gets no memory and no parsing.

102 the answer is held back · 200 answer · 204 nothing to do yet · 400 malformed · 401/403 not
authenticated · 408 the body did not arrive in time · 409 this worker does not belong to the run (or
no longer does) · 410 the run is gone · 413 the body is too large · 426 an unsupported version of
the protocol · 503 not the leader.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from trainrun.contract.agent_state import AgentState
from trainrun.contract.wire import (
    AGENT_PATH,
    HEARTBEAT_PATH,
    LARGEST_HEARTBEAT,
    OPERATORS_HEADER,
    VERSION,
    MalformedMessage,
    parsed,
)
from trainrun_operator.core.sweep.clerking import CLERK
from trainrun_operator.runtime.agent_archive import AgentArchive
from trainrun_operator.runtime.agents import BEAT, TOLERATED_LAG, Cadence, RunAgents
from trainrun_operator.runtime.clerk_exchange import ClerkExchanges
from trainrun_operator.runtime.listener import AgentListener, read_shaped

LONGEST_WAIT = 60.0
"""Seconds; a longer one would outlive idle timeouts of proxies between agent and operator."""

PATIENCE = 10.0
"""Seconds for a new connection to authenticate, and for a body to arrive after its head."""

CONNECTIONS = 4
"""Concurrent ones per worker: it uses one, and earlier ones may have ended without our notice."""

HELD_BACK = b"HTTP/1.1 102 Processing\r\n\r\n"
"""After this an empty line, which every HTTP server skips before a request, ends the wait."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is refused."""

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticatedCaller:
    """A caller with a good token."""

    name: str
    """The key by which connections are counted."""
    share: str
    """The key by which downloads are counted: the run's uid."""
    connections: int = CONNECTIONS
    """How many it may hold at a time."""
    worker: tuple[str, str] | None = None
    """Uid of the run, or of the sweep, and name of the pod, if the token names them."""
    objection: Callable[[AgentState], Refusal | None]
    """Why it may not speak for the worker of a state."""


TOO_LARGE = Refusal(
    status=413, message=f"the heartbeat is too large (limit {LARGEST_HEARTBEAT} bytes)"
)

Authenticator = Callable[[str, str], Awaitable[AuthenticatedCaller | Refusal]]
"""(bearer token, sender's address) -> the caller."""
Answering = Callable[[web.Request, AuthenticatedCaller, bytes], Awaitable[web.Response]]
"""(request, its caller, its body) -> the response."""


@dataclass(kw_only=True, eq=False, repr=False)
class AgentServer:
    """Serves the agents of all runs of this operator."""

    authenticate: Authenticator
    serving: Callable[[], bool] = lambda: True
    """Whether we lead and know all runs: if not, heartbeats get 503."""
    operators: Callable[[], tuple[str, ...]] = tuple
    """Addresses of all operators, sent to agents, the leader first."""
    archive: AgentArchive | None = None
    """The agent for workers whose image has none."""
    patience: float = PATIENCE
    """Seconds."""

    def __post_init__(self) -> None:
        self._runs: dict[str, RunAgents] = {}
        self.clerks = ClerkExchanges()
        """The exchanges of the sweeps."""
        self.cadence = Cadence()
        """How often agents report progress, over all runs."""
        self._runner: web.AppRunner | None = None
        self._listener: AgentListener | None = None
        self._beating: asyncio.Task[None] | None = None

    def add(self, agents: RunAgents) -> None:
        """Serve this run's agents, too."""
        self._runs[agents.run_uid] = agents

    def remove(self, run_uid: str) -> None:
        """The run is gone: its agents are refused."""
        self._runs.pop(run_uid).close()

    async def start(self, host: str, *, port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port. Raises OSError when it is taken."""
        app = web.Application(client_max_size=LARGEST_HEARTBEAT)
        app.router.add_post(HEARTBEAT_PATH, partial(self._exchange, self._heartbeat))
        app.router.add_post(CLERK, partial(self._exchange, self._clerk))
        if self.archive is not None:
            app.router.add_get(AGENT_PATH, partial(self._download, self.archive))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # Held-back requests are released by stop(), so nothing needs a long time to shut down.
            shutdown_timeout=1.0,
            # A closed connection needs no answer, review or turn.
            handler_cancellation=True,
            # A compressed body would be larger than it looks.
            auto_decompress=False,
        )
        await self._runner.setup()
        assert self._runner.server is not None, "it has been set up"
        self._listener = AgentListener(receive=self._runner.server, tls=tls, seconds=self.patience)
        bound = self._listener.open(host, port)
        self._beating = asyncio.create_task(self._beat())
        return bound

    async def stop(self) -> None:
        """Release all held-back requests and close."""
        for agents in self._runs.values():
            agents.close()
        self.clerks.close()
        if self._beating is not None:
            self._beating.cancel()
        if self._listener is not None:
            await self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _beat(self) -> None:
        """While this loop is blocked it reads no heartbeat: our outage must not look like the
        agents'."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(BEAT)
            for agents in self._runs.values():
                agents.beat()
            self.cadence.agents = sum(agents.workers for agents in self._runs.values())
            if (lag := loop.time() - before - BEAT) > TOLERATED_LAG:
                _log.warning(
                    "the event loop was blocked for %.1f s; agents' silence counts from zero", lag
                )

    async def _exchange(self, answer: Answering, request: web.Request) -> web.Response:
        response = await self._admitted(request, answer)
        # Whatever the answer: kube-proxy may have sent this agent to a former leader.
        if operators := self.operators():
            response.headers[OPERATORS_HEADER] = ",".join(operators)
        return response

    async def _admitted(self, request: web.Request, answer: Answering) -> web.Response:
        if not self.serving():
            return web.Response(status=503, text="this operator does not lead; retry")
        caller = await self._authenticated(request)
        if isinstance(caller, Refusal):
            return _refused(caller)
        body = await self._body(request)
        if isinstance(body, Refusal):
            return _refused(body)
        response = await answer(request, caller, body)
        if not self.serving():  # leadership was lost while the answer was held back
            return web.Response(status=503, text="this operator no longer leads; retry")
        return response

    async def _clerk(
        self, request: web.Request, caller: AuthenticatedCaller, body: bytes
    ) -> web.Response:
        try:
            wait = _wait(request)
        except ValueError as error:
            return web.Response(status=400, text=f"malformed: {error}")
        uid = caller.worker[0] if caller.worker is not None else None
        return await self.clerks.answer(body, sweep_uid=uid, wait=wait)

    async def _heartbeat(
        self, request: web.Request, caller: AuthenticatedCaller, body: bytes
    ) -> web.Response:
        try:
            state = read_state(body)
            wait = _wait(request)
        except UnservedVersion as error:
            self._receive_unreadable(caller, body, error)
            return web.Response(status=426, text=str(error))
        except (MalformedMessage, ValueError) as error:
            self._receive_unreadable(caller, body, error)
            return web.Response(status=400, text=f"malformed heartbeat: {error}")
        agents = caller.objection(state) or _agents_of(state, self._runs.get(state.run_uid))
        if isinstance(agents, Refusal):
            return _refused(agents)
        interruptible = "interruptible" in request.query
        hold = self._holding(request, agents, state.worker) if interruptible else None
        answer = await agents.answer(state, wait=wait, on_hold=hold)
        if answer is None:
            return web.Response(status=204)
        text = self.cadence.paced(answer).to_json()
        return web.Response(text=text, content_type="application/json")

    def _receive_unreadable(
        self, caller: AuthenticatedCaller, body: bytes, error: Exception
    ) -> None:
        """A caller with a good token is alive: an unreadable heartbeat is no loss of a worker."""
        run_uid, worker = caller.worker or _names(body)
        if (agents := self._runs.get(run_uid)) is not None:
            agents.receive_unreadable(worker, str(error))

    async def _download(self, archive: AgentArchive, request: web.Request) -> web.StreamResponse:
        assert self._listener is not None, "requests come through it"
        caller = await self._authenticated(request)
        if isinstance(caller, AuthenticatedCaller):
            return await archive.get(request, share=caller.share)
        # Its pod may be unknown yet, or its token not reviewable now; the archive holds no secret.
        return await archive.get_anonymously(request, self._listener)

    async def _authenticated(self, request: web.Request) -> AuthenticatedCaller | Refusal:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        caller = await self.authenticate(token, request.remote or "")
        if isinstance(caller, AuthenticatedCaller) and self._listener is not None:
            self._listener.authenticated(request.protocol, caller.name, most=caller.connections)
        return caller

    def _holding(
        self, request: web.Request, agents: RunAgents, worker: str
    ) -> Callable[[], Awaitable[None]]:
        async def hold() -> None:
            if self._listener is not None:
                self._listener.on_next_data(request.protocol, lambda: agents.release(worker))
            # Only now: data after this is not part of the request.
            with suppress(ConnectionResetError):  # the agent disconnected and needs no answer
                await request.writer.write(HELD_BACK)
            request.writer.output_size = 0  # it is not part of the answer

        return hold

    async def _body(self, request: web.Request) -> bytes | Refusal:
        if (request.content_length or 0) > LARGEST_HEARTBEAT:
            return TOO_LARGE
        try:
            if request.content.is_eof():  # it arrived with its head
                return await request.read()
            async with asyncio.timeout(self.patience):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            return TOO_LARGE
        except TimeoutError:
            message = f"the heartbeat did not arrive within {self.patience:.0f} s"
            return Refusal(status=408, message=message)


def _wait(request: web.Request) -> float:
    """Raises ValueError."""
    return min(float(request.query.get("wait", "0")), LONGEST_WAIT)


def _refused(refusal: Refusal) -> web.Response:
    return web.Response(status=refusal.status, text=refusal.message)


def _names(body: bytes) -> tuple[str, str]:
    """Uid of the run and name of the worker in a state that cannot be read as a whole."""
    try:
        message = parsed(body)
    except MalformedMessage:
        return "", ""
    if not isinstance(message, dict):
        return "", ""
    return str(message.get("run_uid")), str(message.get("worker"))


def _agents_of(state: AgentState, agents: RunAgents | None) -> RunAgents | Refusal:
    """The agents of its run, once they have received its state; or why this agent is refused."""
    run = f"run {state.run} (uid {state.run_uid})"
    if agents is None:
        return Refusal(status=410, message=f"{run} is gone: its TrainRun was deleted")
    if not agents.workers_known:
        return Refusal(status=503, message=f"run {state.run} is not loaded yet")
    if agents.knows(state.worker) and agents.receive(state):
        return agents
    worker = f"worker {state.worker} (agent {state.agent})"
    message = f"{worker} no longer belongs to {run}: it was replaced"
    return Refusal(status=409, message=message)


class UnservedVersion(Exception):
    """A heartbeat in a protocol version that this operator does not support."""


def read_state(body: bytes) -> AgentState:
    """Raises UnservedVersion and MalformedMessage."""
    message = read_shaped(body)
    version = message.get("version") if isinstance(message, dict) else None
    if isinstance(version, int) and version != VERSION:
        raise UnservedVersion(
            f"this operator supports version {VERSION} of the agent protocol, but the agent uses "
            f"version {version}. Use the same version of operator and worker image"
        )
    return AgentState.read(message)


def shared_token(token: str) -> Authenticator:
    """Accepts every caller with `token` as the worker that it names: for one machine, one user."""
    any_worker = AuthenticatedCaller(
        name="this run", share="", connections=sys.maxsize, objection=lambda _state: None
    )

    async def authenticate(offered: str, _address: str) -> AuthenticatedCaller | Refusal:
        if hmac.compare_digest(offered.encode(errors="replace"), token.encode()):
            return any_worker
        return Refusal(
            status=401 if not offered else 403, message="the token is not the token of this run"
        )

    return authenticate
