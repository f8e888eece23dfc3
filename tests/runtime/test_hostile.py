"""What anybody who reaches the agents' port can try, each beside an agent that goes on working."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.runtime.states import RUN_UID, a_state, hold
from tests.support.certificates import TestAuthority
from trainrun.agent.exchange.http import HttpClient, Response
from trainrun.contract.wire import LARGEST_HEARTBEAT
from trainrun_operator.runtime import agent_archive, listener
from trainrun_operator.runtime.agent_archive import AgentArchive
from trainrun_operator.runtime.agent_server import (
    CONNECTIONS,
    AgentServer,
    AuthenticatedCaller,
    Authenticator,
    Refusal,
)
from trainrun_operator.runtime.agents import REPLACED, RunAgents
from trainrun_operator.runtime.listener import (
    DEEPEST,
    MOST_FIELDS,
    MOST_ITEMS,
    UNAUTHENTICATED_PER_ADDRESS,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HEARTBEAT = "/v1/heartbeat"
LARGE = 24 << 20
"""Bytes of an agent that the buffers of a connection cannot take."""
SHORT = 0.3
"""Seconds of patience, where a test waits for its end."""


@dataclass
class Port:
    """The agents' port with one run of one worker; an attacker has an address of his own."""

    folder: Path
    authority: TestAuthority = field(default_factory=TestAuthority)
    asked: list[str] = field(default_factory=list)
    """Tokens that the authenticator was shown."""
    number: int = 0
    opened: list[asyncio.StreamWriter] = field(default_factory=list)
    agents: RunAgents = field(
        default_factory=lambda: RunAgents(
            run_uid=RUN_UID, on_news=lambda: None, on_progress=lambda: None
        )
    )

    def authenticator(self) -> Authenticator:
        async def authenticate(token: str, _address: str) -> AuthenticatedCaller | Refusal:
            self.asked.append(token)
            if token == "good":
                return AuthenticatedCaller(name="run-0-1", share=RUN_UID, objection=lambda _: None)
            return Refusal(status=403, message="no good token")

        return authenticate

    @asynccontextmanager
    async def open(
        self, *, patience: float = 30.0, download: float = 30.0, size: int = 1000
    ) -> AsyncIterator[Port]:
        file = self.folder / "agent.zip"
        file.write_bytes(bytes(size))
        server = AgentServer(
            authenticate=self.authenticator(),
            archive=AgentArchive(file, seconds=download),
            patience=patience,
        )
        self.agents.expect({"run-0-1"})
        self.agents.publish({"run-0-1": hold()})
        server.add(self.agents)
        tls = self.authority.server(self.folder)
        self.number = await server.start("127.0.0.1", tls=tls)
        try:
            yield self
        finally:
            for writer in self.opened:
                writer.transport.abort()
            await server.stop()

    async def connect(
        self, address: str = "127.0.0.66"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As somebody with this address; it reads no more than it asks for."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        sock.bind((address, 0))
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.number))
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=self.tls(), server_hostname="127.0.0.1", limit=4096
        )
        self.opened.append(writer)
        return reader, writer

    async def idle(self, address: str) -> socket.socket:
        """A connection on which nothing is said, not even a handshake."""
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((address, 0))
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.number))
        return sock

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.pem)

    def client(self, token: str = "good") -> HttpClient:
        return HttpClient(f"https://127.0.0.1:{self.number}", token=lambda: token, tls=self.tls())

    async def agent_is_answered(self) -> None:
        """A good agent that comes now is heard."""
        client = self.client()
        try:
            answer = await client.post(HEARTBEAT, a_state().to_json().encode(), 20.0)
        finally:
            client.close()
        assert answer.status == 200

    async def ask(self, body: bytes, token: str = "good", **headers: str) -> tuple[int, str]:
        """Status and text of the answer to a heartbeat with this body."""
        reader, writer = await self.connect()
        head = {"Content-Length": str(len(body)), "Authorization": f"Bearer {token}"} | headers
        writer.write(a_head("POST", HEARTBEAT, **head) + body)
        return await an_answer(reader)


def a_head(method: str, path: str, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: operator"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def an_answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    async with asyncio.timeout(30):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].split()[0])
        return int(head.split()[1]), (await reader.readexactly(length)).decode()


async def is_cut(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(30):
        try:
            while await reader.read(65536):
                pass
        except OSError:
            pass


async def hangs_up(sock: socket.socket) -> None:
    async with asyncio.timeout(30):
        try:
            while await asyncio.get_running_loop().sock_recv(sock, 4096):
                pass
        except OSError:
            pass
    sock.close()


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return Port(tmp_path)


# -------------------------------------------------------------------------------------- downloads


async def download(port: Port, *, token: str, address: str = "127.0.0.1") -> int:
    """How many bytes somebody gets who reads."""
    reader, writer = await port.connect(address)
    writer.write(a_head("GET", "/v1/agent", Authorization=f"Bearer {token}"))
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().partition("content-length: ")[2].split()[0])
    return len(await reader.readexactly(length))


async def do_not_read(port: Port, address: str, number: int) -> list[asyncio.StreamReader]:
    readers = []
    for _ in range(number):
        reader, writer = await port.connect(address)
        writer.write(a_head("GET", "/v1/agent"))
        await reader.readuntil(b"\r\n\r\n")
        readers.append(reader)
    return readers


@pytest.mark.slow
async def test_who_does_not_read_keeps_nobody_from_downloading_the_agent(port: Port) -> None:
    async with port.open(size=LARGE):
        await do_not_read(port, "127.0.0.66", agent_archive.OF_AN_ADDRESS)
        assert await download(port, token="") == LARGE, "a worker that is not known yet"
        await do_not_read(
            port, "127.0.0.67", agent_archive.ANONYMOUS_AT_ONCE - agent_archive.OF_AN_ADDRESS
        )
        assert await download(port, token="good") == LARGE
        await port.agent_is_answered()


@pytest.mark.slow
async def test_a_download_that_takes_too_long_is_cut_and_makes_room(port: Port) -> None:
    async with port.open(size=LARGE, download=SHORT):
        for reader in await do_not_read(port, "127.0.0.66", agent_archive.OF_AN_ADDRESS):
            await is_cut(reader)
        await do_not_read(port, "127.0.0.66", 1)


# ----------------------------------------------------------------------------------------- bodies


@pytest.mark.case("strangers", "A client sends large, slow, compressed or deeply nested bodies")
async def test_who_shows_no_good_token_is_answered_before_his_body_is_read(port: Port) -> None:
    async with port.open():
        reader, writer = await port.connect()
        writer.write(a_head("POST", HEARTBEAT, Content_Length="200000", Authorization="Bearer x"))
        assert await an_answer(reader) == (403, "no good token")
        assert port.asked == ["x"]


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read(port: Port) -> None:
    async with port.open():
        reader, writer = await port.connect()
        length = str(LARGEST_HEARTBEAT + 1)
        writer.write(a_head("POST", HEARTBEAT, Content_Length=length, Authorization="Bearer good"))
        assert await an_answer(reader) == (413, "the heartbeat is too large (limit 262144 bytes)")


async def test_a_body_that_does_not_say_how_long_it_is_is_read_up_to_the_limit(port: Port) -> None:
    async with port.open():
        reader, writer = await port.connect()
        headers = {"Authorization": "Bearer good", "Transfer_Encoding": "chunked"}
        writer.write(a_head("POST", HEARTBEAT, **headers))
        chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
        writer.write(chunk * 5)
        assert (await an_answer(reader))[0] == 413


async def test_an_agent_whose_state_is_as_large_as_allowed_is_heard(port: Port) -> None:
    async with port.open():
        state = json.loads(a_state().to_json())
        room = LARGEST_HEARTBEAT - len(json.dumps(state | {"unknown": ""}))
        body = json.dumps(state | {"unknown": "x" * room}).encode()
        assert len(body) == LARGEST_HEARTBEAT
        assert (await port.ask(body))[0] == 200


async def test_a_body_that_does_not_come_ends_the_exchange(port: Port) -> None:
    async with port.open(patience=SHORT):
        reader, writer = await port.connect()
        writer.write(a_head("POST", HEARTBEAT, Content_Length="9", Authorization="Bearer good"))
        assert await an_answer(reader) == (408, "the heartbeat did not arrive within 0 s")
        await port.agent_is_answered()


@pytest.mark.slow
async def test_what_is_sent_compressed_is_not_unpacked(port: Port) -> None:
    async with port.open():
        status, text = await port.ask(gzip.compress(bytes(100 << 20)), Content_Encoding="gzip")
        assert status == 400
        assert text.startswith("malformed heartbeat: not readable JSON")


# ---------------------------------------------------------------------------- what agents may say


def nested(levels: int) -> dict[str, object]:
    value: object = 1
    for _ in range(levels):
        value = {"x": value}
    return {"metrics": value}


@pytest.mark.case("strangers", "A hijacked agent sends what no agent sends", counted="maxFailures")
@pytest.mark.parametrize(
    ("said", "message"),
    [
        (nested(DEEPEST), "metrics.x.x.x.x.x.x.x: more than 8 levels of nesting"),
        ({"dropped": [1] * (MOST_ITEMS + 1)}, "dropped: 1025 items (limit 1024)"),
        (
            {"metrics": {str(n): n for n in range(MOST_FIELDS + 1)}},
            "metrics: 1025 fields (limit 1024)",
        ),
    ],
)
async def test_a_state_that_no_agent_of_ours_sends_is_malformed(
    port: Port, said: dict[str, object], message: str
) -> None:
    async with port.open():
        body = json.dumps(json.loads(a_state().to_json()) | said).encode()
        assert await port.ask(body) == (400, f"malformed heartbeat: {message}")
        assert port.agents.contact("run-0-1").state is None
        await port.agent_is_answered()


async def test_a_worker_that_gives_itself_ever_new_identities_is_remembered_in_short() -> None:
    agents = RunAgents(run_uid=RUN_UID, on_news=lambda: None, on_progress=lambda: None)
    agents.expect({"run-0-1"})
    for number in range(3 * REPLACED):
        assert agents.receive(a_state(agent=f"agent-{number}"))
    assert not agents.receive(a_state(agent=f"agent-{2 * REPLACED}"))
    assert len(agents._links["run-0-1"].replaced) == REPLACED


# ------------------------------------------------------------------------------------ connections


@pytest.mark.case("strangers", "A client opens connections to the agents' port and stays silent")
async def test_strangers_from_one_address_leave_room_for_everybody_else(port: Port) -> None:
    async with port.open():
        held = [await port.idle("127.0.0.66") for _ in range(UNAUTHENTICATED_PER_ADDRESS)]
        await hangs_up(await port.idle("127.0.0.66"))
        await port.agent_is_answered()
        for sock in held:
            sock.close()


async def test_a_stranger_who_does_not_say_who_he_is_is_cut(port: Port) -> None:
    async with port.open(patience=SHORT):
        await hangs_up(await port.idle("127.0.0.66"))
        reader, _ = await port.connect()
        await is_cut(reader)
        reader, writer = await port.connect()
        writer.write(b"POST /v1/heartbeat HTTP/1.1\r\nHost: ")
        await is_cut(reader)


async def test_an_agent_that_is_known_waits_for_orders_beyond_that_time(port: Port) -> None:
    async with port.open(patience=SHORT):
        client = port.client()
        body = a_state(seen=hold().digest).to_json().encode()
        answer: Response = await client.post(f"{HEARTBEAT}?wait={4 * SHORT}", body, 20.0)
        assert answer.status == 200
        assert (await client.post(HEARTBEAT, a_state(sequence=2).to_json().encode(), 20.0)).status
        client.close()


async def test_of_too_many_connections_of_a_worker_the_oldest_ends(port: Port) -> None:
    async with port.open():
        readers = []
        for number in range(CONNECTIONS + 1):
            reader, writer = await port.connect()
            body = a_state(sequence=number + 1).to_json().encode()
            head = {"Content-Length": str(len(body)), "Authorization": "Bearer good"}
            writer.write(a_head("POST", HEARTBEAT, **head) + body)
            assert (await an_answer(reader))[0] == 200
            readers.append(reader)
        await is_cut(readers[0])
        assert not any(reader.at_eof() for reader in readers[1:])


async def test_nonsense_instead_of_a_handshake_harms_nobody(port: Port) -> None:
    async with port.open():
        sock = await port.idle("127.0.0.66")
        await asyncio.get_running_loop().sock_sendall(sock, b"GET / HTTP/1.0\r\n\r\n")
        await hangs_up(sock)
        await port.agent_is_answered()


async def shake_hands(port: Port, times: int) -> None:
    for _ in range(times):
        _, writer = await port.connect()
        writer.transport.abort()


@pytest.mark.case("strangers", "A client opens TLS connections and drops them")
async def test_who_shakes_hands_again_and_again_is_turned_away_without_one(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "FAILED_AT_ONCE", 3.0)
    monkeypatch.setattr(listener, "FAILED_PER_SECOND", 0.001)
    async with port.open():
        with pytest.raises(OSError):
            await shake_hands(port, 50)  # it may take a moment until each is seen to have gone
        await hangs_up(await port.idle("127.0.0.66"))  # at once: patience is 30 s
        for _ in range(5):
            await port.agent_is_answered()  # those who show who they are come as often as they like
