"""A framework posts to the agent: who may, and what the operator hears of it."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.training.test_posting import a_post
from tests.agent.workers import start
from trainrun.agent.training import posted_progress
from trainrun.agent.training.posted_progress import LARGEST_BODY, MOST, ProgressServer
from trainrun.contract.evidence import Posted

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

SCRIPT = """
import json, os, urllib.request
body = {"trainerStatus": {"metrics": [
    {"name": "current_step", "value": "30"}, {"name": "total_steps", "value": "60"},
    {"name": "loss", "value": "0.5"}]}}
request = urllib.request.Request(
    os.environ["KUBEFLOW_TRAINER_SERVER_URL"], data=json.dumps(body).encode(), method="POST",
    headers={"Authorization": "Bearer " + open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read()})
print("answered", urllib.request.urlopen(request, timeout=5).status, flush=True)
"""


def test_what_rank_0_posts_is_told_to_the_operator_beside_what_is_reported(
    operator: OperatorStandIn, workers: Workers
) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:1", "no_proxy": None, "NO_PROXY": None}
    worker = workers.start(SCRIPT, env=proxy)
    operator.order(start())
    state = operator.until(lambda s: bool(s.exits))
    worker.shows("[rank 0] answered 200\n")
    assert state.posted == Posted(step=30, total=60, percent=50, metrics={"loss": 0.5})
    assert (state.steps, state.metrics, state.first_step) == ((None,), {}, None)


def test_the_workers_of_other_slots_take_no_posts(
    operator: OperatorStandIn, workers: Workers
) -> None:
    ask = "import os; print('told', os.environ.get('KUBEFLOW_TRAINER_SERVER_URL'), flush=True)"
    worker = workers.start(ask, slot=1)
    operator.order(start(workers=2))
    worker.shows("[rank 1] told None\n")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[ProgressServer, str, list[float]]]:
    """A server with its token, and when it had news."""
    token_file, news = tmp_path / "token", list[float]()
    server = ProgressServer(token_file, news=lambda: news.append(time.monotonic()))
    server.open()
    yield server, token_file.read_text(), news
    server.close()


async def connected(server: ProgressServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(server.url.rpartition(":")[2].strip("/"))
    return await asyncio.open_connection("127.0.0.1", port)


async def sent(server: ProgressServer, token: str, body: bytes, *, method: str = "POST") -> bytes:
    """The first line of the answer to a request."""
    reader, writer = await connected(server)
    head = f"{method} / HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    try:
        return await asyncio.wait_for(reader.readline(), 10.0)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


Served = tuple[ProgressServer, str, "list[float]"]


async def test_the_token_is_for_the_owner_of_the_file_alone(served: Served, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


async def test_a_post_is_answered_and_is_news(served: Served) -> None:
    server, token, news = served
    assert await sent(server, token, a_post(50)) == b"HTTP/1.1 200 OK\r\n"
    assert (server.posted, len(news)) == (Posted(percent=50), 1)


async def test_somebody_elses_post_is_not_read(served: Served) -> None:
    server, _, news = served
    assert await sent(server, "another", a_post(50)) == b"HTTP/1.1 401 Unauthorized\r\n"
    assert (server.posted, news) == (None, [])


@pytest.mark.case("script", "Somebody posts what is no post")
@pytest.mark.parametrize(
    ("method", "body", "answer"),
    [
        ("GET", b"", b"HTTP/1.1 400 Bad Request\r\n"),
        ("POST", b"no post", b"HTTP/1.1 400 Bad Request\r\n"),
        ("POST", b" " * LARGEST_BODY + b" ", b"HTTP/1.1 413 "),
    ],
)
async def test_what_is_no_post_changes_nothing(
    served: Served, method: str, body: bytes, answer: bytes
) -> None:
    server, token, news = served
    answered = await sent(server, token, body, method=method)
    assert not answered or answered.startswith(answer)
    assert (server.posted, news) == (None, [])
    largest = a_post(50, text="x" * (LARGEST_BODY - 200))
    assert await sent(server, token, largest) == b"HTTP/1.1 200 OK\r\n"


async def test_who_connects_and_says_nothing_keeps_nobody_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posted_progress, "PATIENCE", 600.0)
    server, token, _ = served
    mute = [await connected(server) for _ in range(MOST)]
    assert await sent(server, token, a_post(50)) == b""  # at once: training waits for it
    assert not any(reader.at_eof() for reader, _ in mute)
    for _, writer in mute:
        writer.close()


async def test_who_says_nothing_is_cut_after_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posted_progress, "PATIENCE", 0.1)
    server, _, _ = served
    reader, writer = await connected(server)
    assert await asyncio.wait_for(reader.read(), 60.0) == b""
    writer.close()


async def test_after_its_attempt_nothing_is_taken(served: Served) -> None:
    server, token, _ = served
    assert await sent(server, token, a_post(50)) == b"HTTP/1.1 200 OK\r\n"
    server.close()
    with pytest.raises(ConnectionRefusedError):
        await sent(server, token, a_post(60))


async def test_where_the_token_cannot_be_written_nothing_is_served(tmp_path: Path) -> None:
    server = ProgressServer(tmp_path / "missing" / "token", news=lambda: None)
    server.open()
    assert (server.url, server.posted) == ("", None)
    server.close()
