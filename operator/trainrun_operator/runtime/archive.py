"""The agent as a zip file, for workers whose image does not have it: `GET /v1/agent`.

Layer: runtime. Anybody may have it: it holds no secret, and whoever starts with it has to show a
token before it is listened to. Invariants: a reader that is slow is cut and blocks nobody; what
strangers download takes no turn of those who have shown a token.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path

from aiohttp import web

from trainrun_operator.runtime.door import Door, Shares

AT_ONCE, OF_A_RUN = 32, 8
"""Downloads at a time, in all and of one run: a gang of a thousand must take neither our memory nor
the time that heartbeats need."""
STRANGERS, OF_AN_ADDRESS = 8, 4
"""Downloads of those who show no token: in all and to one address."""
DOWNLOAD_SECONDS = 30.0
"""For one download, waiting for its turn not included."""
CHUNK = 64 * 1024


class AgentArchive:
    """Serves one file."""

    def __init__(self, path: Path, *, seconds: float = DOWNLOAD_SECONDS) -> None:
        """`seconds`: how long a download may take."""
        self._path = path
        self._seconds = seconds
        self._turns = Shares(at_once=AT_ONCE, share=OF_A_RUN)
        self._strangers_turns = Shares(at_once=STRANGERS, share=OF_AN_ADDRESS)

    async def get(self, request: web.Request, *, share: str) -> web.StreamResponse:
        """The file, or 404 with what is missing; `share`: the run that it is for."""
        return await self._send(request, self._turns.of(share))

    async def get_as_stranger(self, request: web.Request, door: Door) -> web.StreamResponse:
        """The same for who shows no token; `door` lets him stay until he has it."""
        turn = self._strangers_turns.of(request.remote or "")
        return await self._send(request, turn, door)

    async def _send(
        self,
        request: web.Request,
        turn: AbstractAsyncContextManager[None],
        door: Door | None = None,
    ) -> web.StreamResponse:
        async with turn:
            if door is not None:
                door.give_time(request.protocol, self._seconds)
            try:
                content = self._content
            except OSError as error:
                return web.Response(
                    status=404, text=f"this operator cannot serve the agent: {error}"
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
            except ConnectionError:  # the reader has gone, which is his right
                pass
        return response

    @cached_property
    def _content(self) -> memoryview:
        """The file, which is read once: a gang of a thousand fetches it a thousand times. Raises
        OSError."""
        return memoryview(self._path.read_bytes())
