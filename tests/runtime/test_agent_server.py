"""The real server, asked by a real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from tests.runtime.states import RUN_UID, a_state, hold, start
from trainrun.agent.exchange.http import HttpClient, Interrupt
from trainrun.contract.agent_state import AgentState
from trainrun.contract.answer import Answer
from trainrun.contract.wire import HEARTBEAT_PATH, OPERATORS_HEADER, VERSION
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


async def test_an_answer_asks_for_progress_as_often_as_the_fleet_allows(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    talk.server.cadence.agents = 1_000
    _, body = await talk.post(a_state())
    assert Answer.from_json(body).progress == 5.0


async def test_without_a_desired_state_there_is_no_content(talk: Talk) -> None:
    assert await talk.post(a_state()) == (204, "")


async def test_a_waiting_agent_gets_a_new_order_as_soon_as_it_is_published(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    waiting = asyncio.create_task(talk.post(a_state(seen=hold().digest), wait=50))
    while talk.agents.contact("run-0-1").state is None:
        await asyncio.sleep(0.001)
    talk.agents.publish({"run-0-1": start()})
    status, body = await waiting
    assert (status, Answer.from_json(body)) == (200, start())


async def test_an_agent_with_news_ends_its_wait_on_the_same_connection(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    client = HttpClient(talk.url.removesuffix(HEARTBEAT_PATH), token=lambda: "secret")
    news = asyncio.Event()
    interrupt = Interrupt(event=news, patience=20.0)

    async def poll(sequence: int) -> tuple[int, Answer]:
        body = a_state(seen=hold().digest, sequence=sequence).to_json().encode()
        path = f"{HEARTBEAT_PATH}?wait=50&interruptible=1"
        response = await client.post(path, body, 60.0, interrupt=interrupt)
        return response.status, Answer.from_json(response.body)

    for sequence in (1, 3):
        waiting = asyncio.create_task(poll(sequence))
        while (state := talk.agents.contact("run-0-1").state) is None or state.sequence < sequence:
            await asyncio.sleep(0.001)
        news.set()
        assert await asyncio.wait_for(waiting, 20.0) == (200, hold())
        # Already set: the next one is answered as soon as it is held back.
        assert await asyncio.wait_for(poll(sequence + 1), 20.0) == (200, hold())
        news.clear()
    client.close()


async def test_an_agent_that_is_told_that_it_waits_gets_orders_at_once(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    client = HttpClient(talk.url.removesuffix(HEARTBEAT_PATH), token=lambda: "secret")
    interrupt = Interrupt(event=asyncio.Event(), patience=20.0)
    body = a_state(seen=hold().digest).to_json().encode()
    path = f"{HEARTBEAT_PATH}?wait=50&interruptible=1"
    waiting = asyncio.create_task(client.post(path, body, 60.0, interrupt=interrupt))
    while talk.agents.contact("run-0-1").state is None:
        await asyncio.sleep(0.001)
    talk.agents.publish({"run-0-1": start()})
    response = await waiting
    assert (response.status, Answer.from_json(response.body)) == (200, start())
    client.close()


OPERATORS_NOW = ("10.0.0.7:8443", "10.0.0.8:8443")


@pytest.mark.parametrize("leads", [True, False])
async def test_agents_are_told_where_all_operators_are_by_a_standby_too(leads: bool) -> None:
    server = AgentServer(
        authenticate=shared_token("secret"), serving=lambda: leads, operators=lambda: OPERATORS_NOW
    )
    agents = RunAgents(run_uid=RUN_UID, on_news=lambda: None, on_progress=lambda: None)
    agents.expect({"run-0-1"})
    server.add(agents)
    client = HttpClient(
        f"http://127.0.0.1:{await server.start('127.0.0.1')}", token=lambda: "secret"
    )
    response = await client.post(HEARTBEAT_PATH, a_state().to_json().encode(), 20.0)
    assert response.status == (204 if leads else 503)
    assert response.headers[OPERATORS_HEADER.lower()] == "10.0.0.7:8443,10.0.0.8:8443"
    client.close()
    await server.stop()


async def test_an_operator_that_knows_of_no_others_tells_no_address(talk: Talk) -> None:
    client = HttpClient(talk.url.removesuffix(HEARTBEAT_PATH), token=lambda: "secret")
    response = await client.post(HEARTBEAT_PATH, a_state().to_json().encode(), 20.0)
    assert (response.status, OPERATORS_HEADER.lower() in response.headers) == (204, False)
    client.close()


async def test_a_wrong_token_is_refused(talk: Talk) -> None:
    status, body = await talk.post(a_state(), token="guess")
    assert (status, body) == (403, "the token is not the token of this run")
    assert talk.agents.contact("run-0-1").state is None


async def test_a_missing_token_is_refused(talk: Talk) -> None:
    assert (await talk.post(a_state(), token=""))[0] == 401


async def test_an_agent_of_an_unknown_worker_is_refused(talk: Talk) -> None:
    status, body = await talk.post(a_state("run-7-1"))
    assert status == 409
    assert body == (
        "worker run-7-1 (agent agent-a) no longer belongs to run run (uid uid-1): it was replaced"
    )


async def test_an_agent_whose_run_was_deleted_is_told_so(talk: Talk) -> None:
    status, body = await talk.post(a_state(run_uid="other"))
    assert status == 410
    assert body == "run run (uid other) is gone: its TrainRun was deleted"


async def test_a_version_that_is_not_served_says_what_to_do(talk: Talk) -> None:
    newer = json.loads(a_state().to_json()) | {"version": VERSION + 1}
    status, body = await talk.post(json.dumps(newer))
    assert status == 426
    assert body.endswith("Use the same version of operator and worker image")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("nonsense", "malformed heartbeat: not readable JSON"),
        ("[" * 100_000, "malformed heartbeat: not readable JSON: maximum recursion depth"),
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


@pytest.mark.case("operator", "The operator cannot read what an agent says")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"phase": "Dreaming"}, "phase: expected one of Idle"),
        ({"version": VERSION + 1}, "the agent uses version"),
    ],
)
async def test_an_agent_that_cannot_be_read_is_known_to_live(
    talk: Talk, changed: dict[str, object], why: str
) -> None:
    good = json.loads(a_state().to_json())
    assert (await talk.post(json.dumps(good | changed)))[0] in (400, 426)
    heard = talk.agents.contact("run-0-1")
    assert why in heard.unreadable
    assert heard.silent_for.total_seconds() < 10
    await talk.post(json.dumps(good))
    assert talk.agents.contact("run-0-1").unreadable == ""


async def test_stopping_lets_waiting_agents_go(talk: Talk) -> None:
    talk.agents.publish({"run-0-1": hold()})
    waiting = asyncio.create_task(talk.post(a_state(seen=hold().digest), wait=50))
    while talk.agents.contact("run-0-1").state is None:
        await asyncio.sleep(0.001)
    await talk.server.stop()
    assert (await waiting)[0] == 200
