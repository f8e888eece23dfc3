"""The first process of every worker: it fetches the agent from the operator and becomes it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.certificates import TestAuthority
from tests.support.pythons import python
from trainrun_operator.runtime.agent_archive import AgentArchive
from trainrun_operator.runtime.agent_server import (
    AgentServer,
    AuthenticatedCaller,
    Refusal,
    shared_token,
)
from trainrun_operator.worlds.kubernetes.render import FETCH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RUN = """
import os, sys
def start():
    print("arguments", sys.argv[1:])
    print("flags", sys.flags.isolated, sys.flags.no_site)
    print("volume", os.listdir(os.path.dirname(os.path.dirname(__file__))))
    sys.exit(7)
"""


@dataclass
class Place:
    """An operator that serves an agent, and the volume of a worker."""

    folder: Path
    authority: TestAuthority = field(default_factory=TestAuthority)
    server: AgentServer | None = None
    port: int = 0
    tokens: list[str] = field(default_factory=list)
    """Those that were shown; empty ones too."""

    @property
    def archive(self) -> Path:
        return self.folder / "served.zip"

    def pack(self) -> None:
        with zipfile.ZipFile(self.archive, "w") as archive:
            archive.writestr("run.py", RUN)

    async def serve(self) -> None:
        accepts = shared_token("x")

        async def authenticate(token: str, address: str) -> AuthenticatedCaller | Refusal:
            self.tokens.append(token)
            return await accepts(token, address)

        self.server = AgentServer(authenticate=authenticate, archive=AgentArchive(self.archive))
        tls = self.authority.server(self.folder)
        self.port = await self.server.start("127.0.0.1", port=self.port, tls=tls)

    async def fetch(
        self,
        interpreter: str = sys.executable,
        *,
        authority: TestAuthority | None = None,
        volume: str = "volume",
        **more: object,
    ) -> asyncio.subprocess.Process:
        """Start a worker's first process; its volume is a folder in `folder`."""
        (self.folder / volume).mkdir(exist_ok=True)
        config = {
            "operator_url": f"https://127.0.0.1:{self.port}",
            "ca": (authority or self.authority).pem,
            "more": "that it need not know",
            **more,
        }
        return await asyncio.create_subprocess_exec(
            *(
                interpreter,
                "-I",
                "-S",
                "-c",
                FETCH.replace('"/trainrun/', f'"{self.folder}/{volume}/'),
            ),
            *("--", "python", "train.py"),
            env={"TRAINRUN_AGENT_CONFIG": json.dumps(config), "HTTPS_PROXY": "http://127.0.0.1:9"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    place.pack()
    await place.serve()
    yield place
    assert place.server is not None
    await place.server.stop()


async def ended(worker: asyncio.subprocess.Process) -> tuple[int | None, list[str], list[str]]:
    """Exit code, output, errors."""
    out, err = await asyncio.wait_for(worker.communicate(), 30)
    return worker.returncode, out.decode().splitlines(), err.decode().splitlines()


async def complaint(worker: asyncio.subprocess.Process) -> str:
    """The first line of its errors, once it is there."""
    assert worker.stderr is not None
    return (await asyncio.wait_for(worker.stderr.readline(), 30)).decode()


async def test_the_agent_is_fetched_and_takes_the_place_of_what_fetched_it(place: Place) -> None:
    code, out, err = await ended(await place.fetch())
    assert (code, err) == (7, [])
    assert out == [
        "arguments ['--', 'python', 'train.py']",
        "flags 1 1",
        "volume ['agent.zip']",
    ]


async def test_a_worker_shows_its_token_so_that_it_need_not_wait_for_strangers(
    place: Place,
) -> None:
    token = place.folder / "token"
    token.write_text("x\n")
    for file in (token, place.folder / "not-there"):
        worker = await place.fetch(token_file=str(file), volume=f"volume-{file.name}")
        assert (await ended(worker))[0] == 7
    assert place.tokens == ["x", ""]


async def test_it_is_fetched_from_a_replica_where_the_service_leads_nowhere(place: Place) -> None:
    nowhere, replicas = "https://127.0.0.1:9", ["127.0.0.1:9", f"127.0.0.1:{place.port}"]
    code, _, err = await ended(await place.fetch(operator_url=nowhere, operators=replicas))
    assert (code, err) == (7, [])


@pytest.mark.slow
async def test_many_workers_fetch_it_at_once(place: Place) -> None:
    workers = [await place.fetch(volume=f"volume-{number}") for number in range(12)]
    assert {(await ended(worker))[0] for worker in workers} == {7}


async def test_an_operator_that_is_away_is_asked_until_it_is_there(place: Place) -> None:
    assert place.server is not None
    await place.server.stop()
    worker = await place.fetch()
    told = await complaint(worker)
    assert told.startswith("trainrun: the agent cannot be fetched from the operator: ")
    await place.serve()
    code, _, err = await ended(worker)
    assert (code, err) == (7, []), "it was told once"


async def test_a_download_that_breaks_off_is_begun_again(place: Place) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nPK")
        writer.close()

    assert place.server is not None
    await place.server.stop()
    tls = place.authority.server(place.folder)
    broken = await asyncio.start_server(break_off, "127.0.0.1", place.port, ssl=tls)
    worker = await place.fetch()
    assert "IncompleteRead(2 bytes read, 7 more expected)" in await complaint(worker)
    broken.close()
    await place.serve()
    code, _, err = await ended(worker)
    assert (code, err[1:]) == (7, [])


async def test_an_operator_without_an_agent_says_what_is_missing(place: Place) -> None:
    place.archive.unlink()
    worker = await place.fetch()
    told = await complaint(worker)
    assert "404 this operator cannot read the agent archive: [Errno 2] No such file" in told
    place.pack()
    assert (await ended(worker))[0] == 7


async def test_nobody_but_the_operator_is_believed(place: Place) -> None:
    worker = await place.fetch(authority=TestAuthority("another"))
    assert "certificate verify failed" in await complaint(worker)
    worker.terminate()
    assert (await ended(worker))[0] == 143


async def test_a_worker_that_is_deleted_while_it_waits_ends_at_once(place: Place) -> None:
    assert place.server is not None
    await place.server.stop()
    worker = await place.fetch()
    await complaint(worker)
    worker.send_signal(signal.SIGTERM)
    assert (await ended(worker))[0] == 143
    await place.serve()


async def test_a_volume_that_cannot_be_written_is_named(place: Place) -> None:
    (place.folder / "volume" / "agent.zip").mkdir(parents=True)
    code, _, err = await ended(await place.fetch())
    assert code == 2
    assert err[0].startswith(
        f"trainrun: the agent cannot be written to {place.folder}/volume/agent.zip: "
    )


@pytest.mark.parametrize("version", [(2, 7), (3, 6), (3, 9)])
async def test_a_python_that_is_too_old_is_told_so(place: Place, version: tuple[int, int]) -> None:
    interpreter = python(*version)
    if version < (3, 4):
        fetch = await asyncio.create_subprocess_exec(
            *(interpreter, "-S", "-c", FETCH), stderr=asyncio.subprocess.PIPE
        )
        _, err = await fetch.communicate()
        code, lines = fetch.returncode, err.decode().splitlines()
    else:
        code, _, lines = await ended(await place.fetch(interpreter))
    assert code == 2
    assert lines[-1] == (
        f"trainrun: {interpreter} is Python {version[0]}.{version[1]}, but the agent needs Python "
        "3.10 or newer. Use an image that has it; if python3 is another one, name it as the first "
        "word of the worker's command"
    )


@pytest.mark.parametrize("version", [(3, 10), (3, 12), (3, 13)])
async def test_every_python_that_is_new_enough_can_fetch_it(
    place: Place, version: tuple[int, int]
) -> None:
    assert (await ended(await place.fetch(python(*version))))[0] == 7
