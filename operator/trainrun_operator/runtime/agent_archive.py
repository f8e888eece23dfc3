"""Serves the agent to workers whose image has none: a zip file that is public and holds no secret.

Layer: runtime. Each run has a limited share of the concurrent downloads. A slow reader is cut and
blocks no other client; downloads without a token take no turn of those with one.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path

from aiohttp import web

from trainrun_operator.runtime.listener import AgentListener, ConnectionLimiter

AT_ONCE, OF_A_RUN = 32, 8
"""Concurrent downloads, in all and of one run: a gang of a thousand must take neither our memory
nor the time that heartbeats need."""
ANONYMOUS_AT_ONCE, OF_AN_ADDRESS = 8, 4
"""Concurrent downloads without a token, in all and to one address."""
DOWNLOAD_SECONDS = 30.0
"""The limit of one download, without the wait for its turn."""
CHUNK = 64 * 1024


class AgentArchive:
    """Serves the agent's zip file."""

    def __init__(self, path: Path, *, seconds: float = DOWNLOAD_SECONDS) -> None:
        """`seconds`: the limit of a download."""
        self._path = path
        self._seconds = seconds
        self._turns = ConnectionLimiter(at_once=AT_ONCE, share=OF_A_RUN)
        self._download_turns = ConnectionLimiter(at_once=ANONYMOUS_AT_ONCE, share=OF_AN_ADDRESS)

    async def get(self, request: web.Request, *, share: str) -> web.StreamResponse:
        """The file, or 404 with the reason; `share`: the run that downloads it."""
        return await self._send(request, self._turns.of(share))

    async def get_anonymously(
        self, request: web.Request, listener: AgentListener
    ) -> web.StreamResponse:
        """As `get`, for a client without a token; `listener` lets it stay for the download."""
        turn = self._download_turns.of(request.remote or "")
        return await self._send(request, turn, listener)

    async def _send(
        self,
        request: web.Request,
        turn: AbstractAsyncContextManager[None],
        listener: AgentListener | None = None,
    ) -> web.StreamResponse:
        async with turn:
            if listener is not None:
                listener.give_time(request.protocol, self._seconds)
            try:
                content = self._content
            except OSError as error:
                return web.Response(
                    status=404, text=f"this operator cannot read the agent archive: {error}"
                )
            response = web.StreamResponse(headers={"Content-Type": "application/zip"})
            response.content_length = len(content)
            try:
                async with asyncio.timeout(self._seconds):
                    await response.prepare(request)
                    for begin in range(0, len(content), CHUNK):
                        await response.write(content[begin : begin + CHUNK])
                    await response.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
            except ConnectionError:  # the client disconnected
                pass
        return response

    @cached_property
    def _content(self) -> memoryview:
        """The file, read only once: a gang of a thousand fetches it a thousand times. Raises
        OSError."""
        return memoryview(self._path.read_bytes())
