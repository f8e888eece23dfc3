"""The HTTP server that agents talk to: `POST /v1/heartbeat`; and fetched from: `GET /v1/agent`.

Layer: runtime. The body is the agent's whole state, the answer the whole desired state; with
`?wait=<seconds>` the answer is held back until it differs from what the agent has seen. Who an
agent is allowed to speak for is decided by an authenticator that the composition root chooses.

200 answer · 204 nothing to do yet · 400 malformed · 401/403 not authenticated · 409 this worker
does not belong to the run (any more) · 410 the run is gone · 426 a version of the protocol that is
not served · 503 not the leader.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from trainrun.protocol import VERSION, AgentState
from trainrun.wire import MalformedMessage
from trainrun_operator.runtime.agent_archive import AgentArchive
from trainrun_operator.runtime.agents import BEAT, TOLERATED_LAG, RunAgents

LONGEST_WAIT = 60.0
"""Seconds; a longer one would outlive idle timeouts of what stands between agent and operator."""

LARGEST_BODY = 4 * 1024 * 1024
"""Bytes; a state of 64 processes with 20 last lines each is under 1 MiB."""

SERVED_VERSIONS = (VERSION - 1, VERSION)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an agent is not listened to."""

    status: int
    message: str


Authenticator = Callable[[str, AgentState], Awaitable[Refusal | None]]
"""(bearer token, state) -> None when the token's owner may speak for the worker in the state."""


class AgentServer:
    """Serves the agents of all runs of this operator."""

    def __init__(
        self,
        *,
        authenticate: Authenticator,
        serving: Callable[[], bool] = lambda: True,
        archive: Path | None = None,
    ) -> None:
        """`serving` says whether we lead and know all runs: until then heartbeats get 503;
        `archive` is the agent for workers whose image has none."""
        self._authenticate = authenticate
        self._archive = AgentArchive(archive) if archive is not None else None
        self._serving = serving
        self._runs: dict[str, RunAgents] = {}
        self._runner: web.AppRunner | None = None
        self._beating: asyncio.Task[None] | None = None

    def add(self, agents: RunAgents) -> None:
        """Serve this run's agents, too."""
        self._runs[agents.run_uid] = agents

    def remove(self, run_uid: str) -> None:
        """The run is gone: its agents are refused."""
        self._runs.pop(run_uid).close()

    async def start(self, host: str, *, port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port. Raises OSError when it is taken."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_post("/v1/heartbeat", self._heartbeat)
        if self._archive is not None:
            app.router.add_get("/v1/agent", self._archive.get)
        # Held-back requests are released by stop(), so nothing needs a long time to shut down.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=tls).start()
        self._beating = asyncio.create_task(self._beat())
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Release all held-back requests and close."""
        for agents in self._runs.values():
            agents.close()
        if self._beating is not None:
            self._beating.cancel()
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
            if (lag := loop.time() - before - BEAT) > TOLERATED_LAG:
                _log.warning("nothing could be heard for %.1f s; agents get their time again", lag)

    async def _heartbeat(self, request: web.Request) -> web.Response:
        try:
            state = read_state(await request.read())
            wait = min(float(request.query.get("wait", "0")), LONGEST_WAIT)
        except UnservedVersion as error:
            return web.Response(status=426, text=str(error))
        except (MalformedMessage, ValueError) as error:
            return web.Response(status=400, text=f"malformed heartbeat: {error}")
        if not self._serving():
            return web.Response(status=503, text="this operator does not lead; ask again")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        refusal = await self._authenticate(token, state)
        agents = self._runs.get(state.run_uid)
        refusal = refusal or _unwanted(state, agents)
        if refusal is not None:
            return web.Response(status=refusal.status, text=refusal.message)
        assert agents is not None
        answer = await agents.answer(state, wait=wait)
        if not self._serving():  # lost while it was held back
            return web.Response(status=503, text="this operator does not lead any more")
        if answer is None:
            return web.Response(status=204)
        return web.Response(text=answer.to_json(), content_type="application/json")


def _unwanted(state: AgentState, agents: RunAgents | None) -> Refusal | None:
    """Why this agent is not one of ours; None once it has been heard."""
    run = f"run {state.run} (uid {state.run_uid})"
    if agents is None:
        return Refusal(status=410, message=f"{run} is gone: its TrainRun was deleted")
    if not agents.looked:
        return Refusal(status=503, message=f"run {state.run} has not been looked at yet")
    if agents.knows(state.worker) and agents.hear(state):
        return None
    worker = f"worker {state.worker} (agent {state.agent})"
    message = f"{worker} does not belong to {run} any more: it was replaced"
    return Refusal(status=409, message=message)


class UnservedVersion(Exception):
    """A heartbeat in a version of the protocol that this operator does not serve."""


def read_state(body: bytes) -> AgentState:
    """Raises UnservedVersion and MalformedMessage."""
    try:
        message = json.loads(body)
    except ValueError as error:
        raise MalformedMessage(f"not JSON: {error}") from error
    version = message.get("version") if isinstance(message, dict) else None
    if isinstance(version, int) and version not in SERVED_VERSIONS:
        older = version < VERSION
        raise UnservedVersion(
            f"this operator serves versions {SERVED_VERSIONS[0]} and {SERVED_VERSIONS[1]} of the "
            f"agent protocol, the agent speaks version {version}: update "
            + ("the worker image" if older else "the operator")
        )
    return AgentState.from_json(body)


def shared_token(token: str) -> Authenticator:
    """Accepts whoever knows `token` as the worker that it names: for one machine, one user."""

    async def authenticate(offered: str, state: AgentState) -> Refusal | None:
        if offered == token:
            return None
        return Refusal(
            status=401 if not offered else 403,
            message=f"worker {state.worker} did not show the token of this run",
        )

    return authenticate
