"""What kopf gets to see of the API server's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import kopf
import pytest

from tests.kube.fake_api import Answer, status, thing
from trainrun_operator.cluster.handlers import session_of

if TYPE_CHECKING:
    from tests.kube.fake_api import FakeApi


async def test_lists_are_empty_and_each_watch_is_told(fake: FakeApi) -> None:
    fake.things = [thing("a", 1), thing("b", 2)]
    told: list[tuple[str, bool]] = []
    info = kopf.ConnectionInfo(server=f"http://127.0.0.1:{fake.port}")
    session = session_of(info, on_watch=lambda *watch: told.append(watch)).aiohttp_session

    async with session, session.get(f"{info.server}/things?limit=1") as answer:
        assert await answer.json() == {"metadata": {"resourceVersion": "100"}, "items": []}
        assert told == []

        refusal = status(504, "Timeout", "Too large resource version: 100, current: 3")
        fake.answers = [Answer(code=504, body=refusal)]
        async with session.get(f"{info.server}/things?watch=true&resourceVersion=100") as refused:
            assert await refused.json() == refusal
        async with session.get(f"{info.server}/things?watch=true"):
            assert told == [("/things", False), ("/things", True)]


async def test_a_kind_that_is_missing_for_a_moment_is_asked_for_again(fake: FakeApi) -> None:
    """kopf ended, and under `kopf run` the operator with it."""
    told: list[tuple[str, bool]] = []
    info = kopf.ConnectionInfo(server=f"http://127.0.0.1:{fake.port}")
    session = session_of(info, on_watch=lambda *watch: told.append(watch)).aiohttp_session
    fake.answers = [Answer(code=404, body=status(404, "NotFound", "page not found"))]

    async with session:
        with pytest.raises(aiohttp.ClientConnectionError, match="404"):
            await session.get(f"{info.server}/things?watch=true")
    assert told == [("/things", False)]
