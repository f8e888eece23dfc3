"""Probes and metrics over plain HTTP: /healthz, /readyz, /metrics.

Layer: cluster. Healthy: what this process watches has been heard of lately. Ready: its caches are
whole, so it may take over at any moment; what is refused for good does not count, but is named.
Neither asks who leads: a rollout waits for readiness.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import CollectorRegistry

Trouble = Callable[[], str]
"""What is wrong, in words; empty: nothing."""


async def serve_health(
    *,
    host: str,
    port: int,
    alive: Trouble,
    ready: Trouble,
    unread: Trouble = str,
    registry: CollectorRegistry,
) -> web.AppRunner:
    """Listen; `cleanup()` of what is returned ends it. `unread` is shown to who asks whether we are
    ready, and changes nothing about that. Raises OSError when the port is taken."""

    async def healthz(_: web.Request) -> web.Response:
        return _answer(alive())

    async def readyz(_: web.Request) -> web.Response:
        return _answer(ready(), unread())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _answer(trouble: str, more: str = "") -> web.Response:
    text = "\n".join(filter(None, (trouble or "ok", more)))
    return web.Response(text=f"{text}\n", status=503 if trouble else 200)
