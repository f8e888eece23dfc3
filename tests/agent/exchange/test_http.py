"""The agent's HTTP client against a server that plays tricks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from trainrun.agent.exchange.http import HttpClient, HttpError, Interrupt

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next text; counts connections."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.connections = 0
        self.netloc = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                await reader.readexactly(length)
                answer = self.answers.pop(0)
                writer.write(answer)
                if b"close" in answer or not answer.startswith(b"HTTP"):
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[Server, HttpClient]]:
    server = Server(*answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.netloc = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    client = HttpClient(f"http://{server.netloc}/base/", token=lambda: "t")
    try:
        yield server, client
    finally:
        client.close()
        listening.close()


HELD_BACK = b"HTTP/1.1 102 Processing\r\n\r\n"


async def test_news_that_an_operator_does_not_take_end_the_connection() -> None:
    news = asyncio.Event()
    news.set()
    async with serving(HELD_BACK, OK) as (server, client):
        with pytest.raises(HttpError, match="no answer within 0 s of an interrupt"):
            await client.post("/v1/x", b"{}", 20.0, interrupt=Interrupt(event=news, patience=0.1))
        assert (await client.post("/v1/x", b"{}", 20.0)).body == b"ok"
        assert server.connections == 2


async def test_a_wait_without_news_ends_with_the_answer() -> None:
    interrupt = Interrupt(event=asyncio.Event(), patience=20.0)
    async with serving(HELD_BACK + OK, OK) as (server, client):
        for _ in range(2):
            response = await client.post("/v1/x", b"{}", 20.0, interrupt=interrupt)
            assert (response.status, response.body) == (200, b"ok")
        assert server.connections == 1


async def test_one_connection_serves_many_requests() -> None:
    async with serving(OK, OK, OK) as (server, client):
        for _ in range(3):
            response = await client.post("/v1/x?wait=1", b"{}", 5.0)
            assert (response.status, response.body) == (200, b"ok")
        assert server.connections == 1
        assert server.heads[0].startswith("POST /base/v1/x?wait=1 HTTP/1.1\r\n")
        assert "Authorization: Bearer t\r\n" in server.heads[0]


async def test_what_is_small_is_sent_at_once_also_to_a_given_address() -> None:
    async with serving(OK) as (server, _):
        client = HttpClient("http://operator.example", address=server.netloc)
        await client.post("/", b"{}", 5.0)
        assert client._streams is not None
        connection = client._streams[1].get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.close()


async def test_chunked_answers_and_empty_ones_are_read() -> None:
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n"
    )
    async with serving(chunked, b"HTTP/1.1 204 No Content\r\n\r\n", OK) as (server, client):
        assert (await client.post("/", b"", 5.0)).body == b"abc"
        assert (await client.post("/", b"", 5.0)).status == 204
        assert (await client.post("/", b"", 5.0)).body == b"ok"
        assert server.connections == 1


async def test_a_closed_connection_is_made_anew_for_the_next_request() -> None:
    closing = b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with serving(closing, OK) as (server, client):
        assert (await client.post("/", b"", 5.0)).status == 503
        assert (await client.post("/", b"", 5.0)).status == 200
        assert server.connections == 2


@pytest.mark.parametrize("answer", [b"SSH-2.0\r\n\r\n", b"", b"nonsense"])
async def test_what_is_no_http_is_an_error_that_names_the_address(answer: bytes) -> None:
    async with serving(answer) as (_, client):
        with pytest.raises(HttpError, match=r"127\.0\.0\.1:\d+: "):
            await client.post("/", b"", 5.0)


async def test_an_answer_that_comes_too_late_does_not_meet_the_next_request() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", OK) as (server, client):
        with pytest.raises(HttpError, match=r"no answer within"):
            await client.post("/", b"", 0.1)
        assert (await client.post("/", b"", 5.0)).body == b"ok"
        assert server.connections == 2


async def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(HttpError, match=r"127\.0\.0\.1:9"):
        await HttpClient("http://127.0.0.1:9").post("/", b"", 5.0)
