"""The HTTP server that agents talk to: `POST /v1/heartbeat`; and fetched from: `GET /v1/agent`;
the clerks of sweeps talk to it by `POST /v1/clerk`.

Layer: runtime. The body is the agent's whole state, the answer the whole desired state; with
`?wait=<seconds>` the answer is held back until it differs from what the agent has seen; with
`&interruptible` as well, the agent is told so (102), and ends it by an empty line. Who an
agent is allowed to speak for is decided by an authenticator that the composition root chooses.
Invariant: token before body. Who has not shown who he is gets no memory and no parsing.

102 the answer is held back · 200 answer · 204 nothing to do yet · 400 malformed · 401/403 not
authenticated · 408 the body did not come in time · 409 this worker does not belong to the run (any
more) · 410 the run is gone · 413 the body is too large · 426 a version of the protocol that is not
served · 503 not the leader.
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
from trainrun_operator.runtime.agents import BEAT, TOLERATED_LAG, Cadence, RunAgents
from trainrun_operator.runtime.clerk_exchange import ClerkExchanges
from trainrun_operator.runtime.listener import AgentArchive, AgentListener, read_shaped

LONGEST_WAIT = 60.0
"""Seconds; a longer one would outlive idle timeouts of what stands between agent and operator."""

PATIENCE = 10.0
"""Seconds for a stranger to show who he is, and for a body to come once its head is there."""

CONNECTIONS = 4
"""Of one worker at a time: it holds one, and we may not know yet that those before have ended."""

HELD_BACK = b"HTTP/1.1 102 Processing\r\n\r\n"
"""From here on an empty line, which every HTTP server skips before a request, ends the wait."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an agent is not listened to."""

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticatedCaller:
    """Who has shown a good token."""

    name: str
    """Whose connections are counted together."""
    share: str
    """Whose downloads are counted together: those of a run."""
    connections: int = CONNECTIONS
    """That he may hold at a time."""
    worker: tuple[str, str] | None = None
    """Uid of the run, or of the sweep, and name of the pod, where the token says them."""
    objection: Callable[[AgentState], Refusal | None]
    """Why he may not speak for the worker of a state."""


TOO_LARGE = Refusal(
    status=413, message=f"a heartbeat may have {LARGEST_HEARTBEAT} bytes and not more"
)

Authenticator = Callable[[str, str], Awaitable[AuthenticatedCaller | Refusal]]
"""(bearer token, address that it came from) -> whose it is."""
Answering = Callable[[web.Request, AuthenticatedCaller, bytes], Awaitable[web.Response]]
"""(request, who has sent it, its body) -> what he is told."""


@dataclass(kw_only=True, eq=False, repr=False)
class AgentServer:
    """Serves the agents of all runs of this operator."""

    authenticate: Authenticator
    serving: Callable[[], bool] = lambda: True
    """Whether we lead and know all runs: until then heartbeats get 503."""
    operators: Callable[[], tuple[str, ...]] = tuple
    """Addresses of all operators as agents are told them, the leader first."""
    archive: AgentArchive | None = None
    """The agent for workers whose image has none."""
    patience: float = PATIENCE
    """Seconds."""

    def __post_init__(self) -> None:
        self._runs: dict[str, RunAgents] = {}
        self.clerks = ClerkExchanges()
        """Of the sweeps."""
        self.cadence = Cadence()
        """Of the progress of all runs."""
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
            app.router.add_get(AGENT_PATH, self._download)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # Held-back requests are released by stop(), so nothing needs a long time to shut down.
            shutdown_timeout=1.0,
            # Nobody waits for an answer, a review or a turn whose connection has ended.
            handler_cancellation=True,
            # What is sent compressed would be larger than it looks.
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
        """While this loop stands still no heartbeat is read: our outage must not look like one of
        the agents."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(BEAT)
            for agents in self._runs.values():
                agents.beat()
            self.cadence.agents = sum(agents.workers for agents in self._runs.values())
            if (lag := loop.time() - before - BEAT) > TOLERATED_LAG:
                _log.warning(
                    "the event loop was blocked for %.1f s; the silence of agents counts anew", lag
                )

    async def _exchange(self, answer: Answering, request: web.Request) -> web.Response:
        response = await self._admitted(request, answer)
        # Whatever else it says: kube-proxy may have led this agent to one that leads no more.
        if operators := self.operators():
            response.headers[OPERATORS_HEADER] = ",".join(operators)
        return response

    async def _admitted(self, request: web.Request, answer: Answering) -> web.Response:
        if not self.serving():
            return web.Response(status=503, text="this operator does not lead; ask again")
        caller = await self._authenticated(request)
        if isinstance(caller, Refusal):
            return _refused(caller)
        body = await self._body(request)
        if isinstance(body, Refusal):
            return _refused(body)
        response = await answer(request, caller, body)
        if not self.serving():  # lost while it was held back
            return web.Response(status=503, text="this operator does not lead any more")
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
        agents = self._runs.get(state.run_uid)
        refusal = caller.objection(state) or _unwanted(state, agents)
        if refusal is not None:
            return _refused(refusal)
        assert agents is not None
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
        """Whoever shows a good token lives: that it cannot be read is no loss of a worker."""
        run_uid, worker = caller.worker or _names(body)
        if (agents := self._runs.get(run_uid)) is not None:
            agents.receive_unreadable(worker, str(error))

    async def _download(self, request: web.Request) -> web.StreamResponse:
        assert self.archive is not None, "there is no route without it"
        assert self._listener is not None, "requests come through it"
        caller = await self._authenticated(request)
        if isinstance(caller, AuthenticatedCaller):
            return await self.archive.get(request, share=caller.share)
        # Its pod may not be known here yet, or nobody can review its token now; it holds no secret.
        return await self.archive.get_anonymously(request, self._listener)

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
            # Only now: what comes after this is no part of the request.
            with suppress(ConnectionResetError):  # the agent has gone, and waits for no answer
                await request.writer.write(HELD_BACK)
            request.writer.output_size = 0  # it is no part of the answer

        return hold

    async def _body(self, request: web.Request) -> bytes | Refusal:
        if (request.content_length or 0) > LARGEST_HEARTBEAT:
            return TOO_LARGE
        try:
            if request.content.is_eof():  # it came with its head
                return await request.read()
            async with asyncio.timeout(self.patience):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            return TOO_LARGE
        except TimeoutError:
            message = f"the heartbeat did not come within {self.patience:.0f} s"
            return Refusal(status=408, message=message)


def _wait(request: web.Request) -> float:
    """Raises ValueError."""
    return min(float(request.query.get("wait", "0")), LONGEST_WAIT)


def _refused(refusal: Refusal) -> web.Response:
    return web.Response(status=refusal.status, text=refusal.message)


def _names(body: bytes) -> tuple[str, str]:
    """Uid of the run, and the worker, as a state that cannot be read as a whole gives them."""
    try:
        message = parsed(body)
    except MalformedMessage:
        return "", ""
    if not isinstance(message, dict):
        return "", ""
    return str(message.get("run_uid")), str(message.get("worker"))


def _unwanted(state: AgentState, agents: RunAgents | None) -> Refusal | None:
    """Why this agent is not one of ours; None once it has been heard."""
    run = f"run {state.run} (uid {state.run_uid})"
    if agents is None:
        return Refusal(status=410, message=f"{run} is gone: its TrainRun was deleted")
    if not agents.workers_known:
        return Refusal(status=503, message=f"run {state.run} is not loaded yet")
    if agents.knows(state.worker) and agents.receive(state):
        return None
    worker = f"worker {state.worker} (agent {state.agent})"
    message = f"{worker} does not belong to {run} any more: it was replaced"
    return Refusal(status=409, message=message)


class UnservedVersion(Exception):
    """A heartbeat in a version of the protocol that this operator does not serve."""


def read_state(body: bytes) -> AgentState:
    """Raises UnservedVersion and MalformedMessage."""
    message = read_shaped(body)
    version = message.get("version") if isinstance(message, dict) else None
    if isinstance(version, int) and version != VERSION:
        raise UnservedVersion(
            f"this operator serves version {VERSION} of the agent protocol, the agent speaks "
            f"version {version}: use the same version of operator and worker image"
        )
    return AgentState.read(message)


def shared_token(token: str) -> Authenticator:
    """Accepts whoever knows `token` as the worker that it names: for one machine, one user."""
    any_worker = AuthenticatedCaller(
        name="this run", share="", connections=sys.maxsize, objection=lambda _state: None
    )

    async def authenticate(offered: str, _address: str) -> AuthenticatedCaller | Refusal:
        if hmac.compare_digest(offered.encode(errors="replace"), token.encode()):
            return any_worker
        return Refusal(
            status=401 if not offered else 403, message="this is not the token of this run"
        )

    return authenticate
