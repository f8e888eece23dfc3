"""An API server whose every answer the test controls: for faults and for control of time.

One resource, listed and watched, whatever the path. What needs no fault is tested with a real API
server.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.kubeconfigs import written_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Raw = dict[str, Any]


def thing(name: str, version: int, *, uid: str = "", **data: object) -> Raw:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, **data}


def status(code: int, reason: str, message: str) -> Raw:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@dataclass(kw_only=True)
class Answer:
    """What the next request gets instead of what it asked for."""

    code: int
    body: Raw
    headers: Mapping[str, str] = field(default_factory=dict)


class FakeApi:
    """`things` and `version` are what a list shows; `emit` is what watches show."""

    def __init__(self) -> None:
        self.things: list[Raw] = []
        self.version = 100
        self.text = ""
        """JSON that lists show instead of `things`; "" for none."""
        self.objects: dict[str, Raw] = {}
        """By path, what a GET of one object gets."""
        self.answers: list[Answer] = []
        """For the next requests, in order."""
        self.refuses: set[str] = set()
        """Namespaces in which nothing is allowed."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        """list, watch or the method; and the parameters."""
        self.bodies: list[Raw] = []
        """Of what was written."""
        self.agents: set[str] = set()
        """Who says to have asked."""
        self.writing = 0
        self.most_writing = 0
        self.finish_writes = asyncio.Event()
        self.finish_writes.set()
        self._streams: list[web.StreamResponse] = []
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{resource:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self.cut()
        assert self._runner is not None
        await self._runner.cleanup()

    def kubeconfig(self, path: Path) -> Path:
        return written_kubeconfig(path, f"http://127.0.0.1:{self.port}")

    def of(self, kind: str) -> list[dict[str, str]]:
        """The parameters of all requests of this kind."""
        return [params for made, params in self.requests if made == kind]

    @property
    def watching(self) -> int:
        """How many watches are open."""
        self._streams = [stream for stream in self._streams if _transport(stream) is not None]
        return len(self._streams)

    async def emit(self, kind: str, raw: Raw) -> None:
        """One event on every open watch."""
        await self.write(json.dumps({"type": kind, "object": raw}).encode() + b"\n")

    async def bookmark(self, version: int) -> None:
        await self.emit("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    async def write(self, data: bytes) -> None:
        """Bytes, as they are."""
        assert self.watching, "nobody watches"
        for stream in self._streams:
            await stream.write(data)

    async def end(self) -> None:
        """End all watches in order, as after timeoutSeconds."""
        for stream in self._streams:
            await stream.write_eof()
        self._streams.clear()

    async def cut(self) -> None:
        """Break the connections of all watches."""
        for stream in self._streams:
            if (transport := _transport(stream)) is not None:
                transport.abort()
        self._streams.clear()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        params = dict(request.query)
        kind = "list" if request.method == "GET" else request.method.lower()
        if "watch" in params:
            kind = "watch"
        self.requests.append((kind, params))
        self.agents.add(request.headers.get("User-Agent", ""))
        if any(f"/namespaces/{each}/" in request.path for each in self.refuses):
            body = status(403, "Forbidden", f"{request.path} is forbidden")
            return web.json_response(body, status=403)
        if self.answers:
            answer = self.answers.pop(0)
            return web.json_response(answer.body, status=answer.code, headers=answer.headers)
        if kind == "watch":
            return await self._watch(request)
        if kind == "list" and request.path in self.objects:
            return web.json_response(self.objects[request.path])
        if kind == "list":
            metadata = {"resourceVersion": str(self.version)}
            items = self.text or json.dumps(self.things)
            text = f'{{"metadata": {json.dumps(metadata)}, "items": {items}}}'
            return web.json_response(text=text)
        return await self._write(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self._streams.append(response)
        while response in self._streams:
            await asyncio.sleep(0.005)
        return response

    async def _write(self, request: web.Request) -> web.Response:
        self.writing += 1
        self.most_writing = max(self.most_writing, self.writing)
        await self.finish_writes.wait()
        self.writing -= 1
        body = await request.json()
        self.bodies.append(body)
        if request.method == "POST" and "metadata" in body:
            identity = {"uid": f"uid-{len(self.bodies)}", "resourceVersion": str(self.version)}
            body = {**body, "metadata": {**identity, **body["metadata"]}}
        return web.json_response(body)


def _transport(stream: web.StreamResponse) -> asyncio.Transport | None:
    """None: the other side has gone."""
    transport = None if stream._req is None else stream._req.transport
    return None if transport is None or transport.is_closing() else transport
