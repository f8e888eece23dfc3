"""The page of `trainrun page`, served for a test, and a browser that has its token."""

from __future__ import annotations

import asyncio
import html
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from trainrun_operator.cli.page import serving
from trainrun_operator.cli.viewing.catalog import RunCatalog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from trainrun_operator.cli.viewing.server import PageServer
    from trainrun_operator.worlds.kubernetes.user_watch import UserWatch


class Browser:
    """Reads the page."""

    def __init__(self, server: PageServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session
        self.root = f"http://127.0.0.1:{server.port}{server.access.base}/"

    async def text(self, path: str = "") -> str:
        async with self.session.get(self.root + path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    async def shows(self, words: str, path: str = "", *, timeout: float = 60.0) -> str:
        """The page, once it has these words."""
        text = ""
        try:
            async with asyncio.timeout(timeout):
                while words not in (text := await self.text(path)):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not within {timeout} s: {words}, in:\n{text}") from None
        return text

    async def news(self, path: str) -> AsyncGenerator[dict[str, Any]]:
        """What is sent to a browser that has this page open."""
        async with self.session.get(f"{self.root}events/{path}") as answer:
            assert answer.content_type == "text/event-stream"
            async for line in answer.content:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    async def link_to(self, name: str) -> str:
        """The address of the page of this run or sweep, from the list."""
        text = await self.shows(f">{name}</a>")
        found = re.search(rf'href="((?:run|sweep)\?[^"]*)">{re.escape(name)}</a>', text)
        assert found is not None
        return html.unescape(found[1])


@asynccontextmanager
async def browsing(*storages: str, watch: UserWatch | None = None) -> AsyncIterator[Browser]:
    """A browser that has opened the address which was printed."""
    async with serving(RunCatalog(storages=storages, watch=watch)) as server:
        jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address, too
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(server.address()) as answer:
                assert answer.status == 200
                assert "token" not in str(answer.url)
            yield Browser(server, session)
