"""The real server, asked by a real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from tests.runtime.states import RUN_UID, a_state, hold, start
from trainrun.protocol import VERSION, AgentState, Answer
from trainrun_operator.runtime.agent_server import AgentServer, shared_token
from trainrun_operator.runtime.agents import RunAgents


@dataclass
class Talk:
    """A server with one run of two workers, and a client."""

    server: AgentServer
    agents: RunAgents
    url: str
    session: aiohttp.ClientSession

    async def post(
        self, state: AgentState | str, *, wait: float | None = None, token: str = "secret"
    ) -> tuple[int, str]:
        body = state if isinstance(state, str) else state.to_json()
        url = self.url if wait is None else f"{self.url}?wait={wait}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.post(url, data=body, headers=headers) as response:
            return response.status, await response.text()


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    server = AgentServer(authenticate=shared_token("secret"))
    agents = RunAgents(run_uid=RUN_UID, on_news=lambda: None, on_progress=lambda: None)
    agents.expect({"run-0-1", "run-1-1"})
    server.add(agents)
    port = await server.start("127.0.0.1")
    async with aiohttp.ClientSession() as session:
        yield Talk(server, agents, f"http://127.0.0.1:{port}/v1/heartbeat", session)
    await server.stop()


async def test_the_answer_to_a_heartbeat_is_the_desired_state(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    status, body = await talk.post(a_state())
    assert (status, Answer.from_json(body)) == (200, hold())


async def test_without_a_desired_state_there_is_no_content(talk: Talk) -> None:
    assert await talk.post(a_state()) == (204, "")


async def test_a_waiting_agent_gets_a_new_order_as_soon_as_it_is_published(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    waiting = asyncio.create_task(talk.post(a_state(seen=hold().digest), wait=50))
    while talk.agents.heard("run-0-1").state is None:
        await asyncio.sleep(0.001)
    talk.agents.publish({"run-0-1": start()})
    status, body = await waiting
    assert (status, Answer.from_json(body)) == (200, start())


async def test_a_wrong_token_is_refused(talk: Talk) -> None:
    status, body = await talk.post(a_state(), token="guess")
    assert (status, body) == (403, "worker run-0-1 did not show the token of this run")
    assert talk.agents.heard("run-0-1").state is None


async def test_a_missing_token_is_refused(talk: Talk) -> None:
    assert (await talk.post(a_state(), token=""))[0] == 401


async def test_an_agent_of_an_unknown_worker_is_refused(talk: Talk) -> None:
    status, body = await talk.post(a_state("run-7-1"))
    assert status == 409
    assert body == (
        "worker run-7-1 (agent agent-a) does not belong to run run (uid uid-1) any more: it was "
        "replaced"
    )


async def test_an_agent_whose_run_was_deleted_is_told_so(talk: Talk) -> None:
    status, body = await talk.post(a_state(run_uid="other"))
    assert status == 410
    assert body == "run run (uid other) is gone: its TrainRun was deleted"


async def test_a_version_that_is_not_served_names_what_to_update(talk: Talk) -> None:
    newer = json.loads(a_state().to_json()) | {"version": VERSION + 1}
    status, body = await talk.post(json.dumps(newer))
    assert status == 426
    assert body.endswith(f"the agent speaks version {VERSION + 1}: update the operator")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("nonsense", "malformed heartbeat: not JSON"),
        ("[]", "malformed heartbeat: AgentState: expected an object"),
        ('{"version": 1, "run": "run"}', "malformed heartbeat: AgentState: field"),
        ('{"version": 1, "run": 3}', "malformed heartbeat: run: expected a str"),
    ],
)
async def test_a_malformed_heartbeat_is_told_what_is_wrong(
    talk: Talk, body: str, message: str
) -> None:
    status, text = await talk.post(body)
    assert status == 400
    assert text.startswith(message)


async def test_stopping_lets_waiting_agents_go(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    waiting = asyncio.create_task(talk.post(a_state(seen=hold().digest), wait=50))
    while talk.agents.heard("run-0-1").state is None:
        await asyncio.sleep(0.001)
    await talk.server.stop()
    assert (await waiting)[0] == 200
