"""A registry of images: as much of its protocol as a push, and a pull by digest, need."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Registry:
    """Where it is, and what it holds."""

    host: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    """By the path behind `/v2/`: `name/manifests/tag`."""
    kinds: dict[str, str] = field(default_factory=dict)
    """What was said of manifests that name no media type themselves, by digest."""

    @property
    def by_digest(self) -> dict[str, bytes]:
        """Manifests."""
        return {digest_of(content): content for content in self.manifests.values()}

    def manifest(self, name: str, tag: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifests[f"{name}/manifests/{tag}"])
        return found


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def a_registry() -> Iterator[Registry]:
    """One that listens on this machine, without TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: object) -> None:
            pass

        def answer(self, status: int, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content_Length": "0", **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", "0")))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def do_GET(self) -> None:
            kept = {**registry.blobs, **registry.by_digest}
            content = kept.get(self.path.rpartition("/")[2])
            if content is None:
                self.answer(200 if self.path == "/v2/" else 404)
                return
            kind = "application/octet-stream"
            if "/manifests/" in self.path:
                kind = json.loads(content).get("mediaType") or registry.kinds[digest_of(content)]
            self.answer(200, Content_Length=str(len(content)), Content_Type=kind)
            self.wfile.write(content)

        def do_HEAD(self) -> None:
            kept = self.path.rpartition("/")[2] in registry.blobs
            self.answer(200 if kept else 404)

        def do_POST(self) -> None:
            self.body()
            self.answer(202, Location=f"{self.path}upload")

        def do_PATCH(self) -> None:
            content = self.body()
            digest = digest_of(content)
            registry.blobs[digest] = content
            self.answer(202, Location=self.path, Range=f"0-{len(content) - 1}")

        def do_PUT(self) -> None:
            content = self.body()
            if "/manifests/" in self.path:
                registry.manifests[self.path.removeprefix("/v2/")] = content
                registry.kinds[digest_of(content)] = self.headers.get("Content-Type", "")
            elif content:  # a blob in one piece
                registry.blobs[digest_of(content)] = content
            digest = digest_of(content)
            self.answer(201, Docker_Content_Digest=digest, Location=self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = Registry(f"127.0.0.1:{server.server_port}")
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
