"""Work in the background of an agent."""

from __future__ import annotations

import asyncio

import pytest

from trainrun.agent import background


async def test_a_bug_in_the_background_is_told_and_ends_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> None:
        raise KeyError("surprise")

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    background.crash_on_errors(loop, ended.set_result)
    background.run(broken())
    assert await ended == background.CRASHED
    assert "an unexpected error ends the agent" in caplog.text
    assert "surprise" in caplog.text
