"""The agent as a zip file, for workers whose image does not have it: `GET /v1/agent`.

Layer: runtime. Anybody may have it: it holds no secret, and whoever starts with it has to show a
token before it is listened to.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

AT_ONCE = 8
"""Downloads at a time: a gang of a thousand must take neither our memory nor the time that
heartbeats need."""
CHUNK = 256 * 1024


class AgentArchive:
    """Serves one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The file, or 404 with what is missing."""
        async with self._turns:
            try:
                content = memoryview(self._path.read_bytes())
            except OSError as error:
                return web.Response(status=404, text=f"this operator has no agent to give: {error}")
            response = web.StreamResponse(headers={"Content-Type": "application/zip"})
            response.content_length = len(content)
            await response.prepare(request)
            for begin in range(0, len(content), CHUNK):
                await response.write(content[begin : begin + CHUNK])
            await response.write_eof()
        return response
