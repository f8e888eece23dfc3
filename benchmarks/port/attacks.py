"""What somebody who reaches the agents' port does to it, from addresses of his own.

    python -m benchmarks.port.attacks NAME PORT NAMESPACE POD UID

Each goes on until it is killed. They are bounded: a few connections a second, some hundreds at a
time, and loopback only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable

ADDRESSES = [f"127.0.0.{number}" for number in range(66, 70)]
PAUSE = 0.05
"""Seconds between two tries of one hand."""

_next_address = itertools.cycle(ADDRESSES)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Target:
    """The port, and a pod that tokens can claim to be of."""

    def __init__(self, port: str, namespace: str, pod: str, uid: str) -> None:
        self.port = int(port)
        self.namespace, self.pod, self.uid = namespace, pod, uid
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE

    async def socket(self) -> socket.socket:
        """Connected, and nothing said."""
        made = socket.socket()
        made.settimeout(0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.bind((next(_next_address), 0))
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.port))
        return made

    async def connect(self) -> Stream:
        """With TLS."""
        return await asyncio.open_connection(
            sock=await self.socket(), ssl=self.tls, server_hostname="x", limit=4096
        )

    def forged(self) -> str:
        """A token that claims to be a worker's, another one each time."""
        pod = {"name": self.pod, "uid": self.uid}
        payload = {
            "aud": ["trainrun-agents"],
            "exp": time.time() + 600,
            "kubernetes.io": {"namespace": self.namespace, "pod": pod},
            "jti": os.urandom(8).hex(),
        }
        text = base64.urlsafe_b64encode(json.dumps(payload).encode()).decode().rstrip("=")
        return f"eyJhbGciOiJSUzI1NiJ9.{text}.{os.urandom(32).hex()}"


def head(length: int, token: str) -> bytes:
    """Of a heartbeat."""
    return (
        f"POST /v1/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()


async def downloads(target: Target) -> None:
    """Ask for the agent and do not read it."""
    _, writer = await target.connect()
    writer.write(b"GET /v1/agent HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.sleep(20)
    writer.transport.abort()


async def bodies(target: Target) -> None:
    """Send four megabytes as a heartbeat, in small pieces."""
    _, writer = await target.connect()
    writer.write(head(4 << 20, target.forged()))
    for _ in range(64):
        writer.write(bytes(65536))
        await writer.drain()
        await asyncio.sleep(0.1)
    writer.transport.abort()


async def tokens(target: Target) -> None:
    """Show one forged token after the other on a connection."""
    reader, writer = await target.connect()
    for _ in range(100):
        writer.write(head(2, target.forged()) + b"{}")
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(answer.partition("content-length: ")[2].split()[0]))
    writer.transport.abort()


async def nesting(target: Target) -> None:
    """Send a hundred thousand lists in one another."""
    reader, writer = await target.connect()
    writer.write(head(100_000, target.forged()) + b"[" * 100_000)
    await reader.read(100)
    writer.transport.abort()


async def silence(target: Target) -> None:
    """Connect and say nothing."""
    made = await target.socket()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            await asyncio.get_running_loop().sock_recv(made, 1)
    made.close()


async def handshakes(target: Target) -> None:
    """Shake hands and go."""
    _, writer = await target.connect()
    writer.transport.abort()


ATTACKS: dict[str, tuple[Callable[[Target], Awaitable[None]], int]] = {
    "downloads": (downloads, 64),
    "bodies": (bodies, 64),
    "tokens": (tokens, 4),
    "nesting": (nesting, 4),
    "silence": (silence, 600),
    "handshakes": (handshakes, 4),
}
"""What each hand does again and again, and how many hands there are."""


async def attack(name: str, target: Target) -> None:
    """Go on for ever."""
    act, hands = ATTACKS[name]

    async def hand() -> None:
        while True:
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
                await act(target)
            await asyncio.sleep(PAUSE)

    await asyncio.gather(*(hand() for _ in range(hands)))


if __name__ == "__main__":
    os.nice(5)
    asyncio.run(attack(sys.argv[1], Target(*sys.argv[2:])))
