"""The lines of a watch, and of a log.

Layer: kube. A line is one event and may be of any length (a pod can have more than
128 kB, where aiohttp's own reader of lines gives up); an unfinished line at the end is no event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from trainrun_operator.kube.decoding import decoded


async def json_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any]]:
    """Every whole line as JSON. Raises ValueError for a line that is none."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join([*parts, end])
            parts.clear()
            if line.strip():
                yield decoded(line)
        parts.append(rest)
        # A flood of events must not keep the rest of the operator waiting.
        await asyncio.sleep(0)


async def text_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Every line without its end, an unfinished one at the end too."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        await asyncio.sleep(0)
    if rest:
        yield rest.decode(errors="replace")
