from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from trainrun_operator.cluster.metrics import serve_health

TROUBLE = {"alive": "", "ready": "caches are not whole"}


@pytest.fixture
async def url() -> AsyncIterator[str]:
    registry = CollectorRegistry()
    Gauge("answer", "To everything.", registry=registry).set(42)
    runner = await serve_health(
        host="127.0.0.1",
        port=0,
        alive=lambda: TROUBLE["alive"],
        ready=lambda: TROUBLE["ready"],
        registry=registry,
    )
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_a_probe_without_trouble_is_answered_with_ok(url: str) -> None:
    assert await get(f"{url}/healthz") == (200, "ok\n")


async def test_a_probe_with_trouble_says_what_it_is(url: str) -> None:
    assert await get(f"{url}/readyz") == (503, "caches are not whole\n")


async def test_metrics_are_served_in_prometheus_format(url: str) -> None:
    status, text = await get(f"{url}/metrics")
    assert status == 200
    assert "answer 42.0" in text
