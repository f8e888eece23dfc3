from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import ClientConnectionError, ClientSession, web
from aiohttp.test_utils import TestServer

from trainrun_operator.runtime.agent_archive import AgentArchive

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_reader_who_goes_before_his_download_begins_is_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "agent.zip"
    file.write_bytes(bytes(1000))
    archive = AgentArchive(file)
    over = asyncio.Event()

    async def get(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        try:
            return await archive.get(request, share="run")
        finally:
            over.set()

    app = web.Application()
    app.router.add_get("/v1/agent", get)
    async with TestServer(app) as server, ClientSession() as client:
        with suppress(ClientConnectionError):
            await client.get(server.make_url("/v1/agent"))
        await over.wait()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
