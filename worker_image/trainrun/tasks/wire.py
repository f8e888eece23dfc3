"""Connections between the driver and its workers: TCP, or a socket pair in one process.

Layer: tasks. Both sides must know the attempt's key. In the handshake (132 bytes) each side proves
it with an HMAC over both fresh nonces and its role, so no proof can be replayed or reflected. Then
come frames: length, HMAC-SHA256 over direction, number and content with a session key, content. A
message is unpickled only after all its frames are verified. Nothing is encrypted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import pickle
import secrets
import socket
import struct
from typing import Any, Literal

HANDSHAKE = 5.0
"""Seconds for the handshake."""

MAGIC = b"TRT1"
NONCE = 32
PROOF = hashlib.sha256().digest_size
FRAME = 1 << 20
"""Limit in bytes for a frame's content; larger messages take several frames."""

MORE, LAST = b"\x01", b"\x00"
"""First byte of a frame's content: whether another frame of the message follows."""

Role = Literal["driver", "worker"]

_LENGTH = struct.Struct(">I")
_COUNT = struct.Struct(">Q")


class LinkLost(Exception):
    """The connection is lost; the other side may be alive."""


class LinkRefused(LinkLost):
    """The other side has not proven that it knows the key."""


async def pair() -> tuple[Link, Link]:
    """Return both ends of a link in one event loop: the driver's and the worker's."""
    key, ends = secrets.token_bytes(NONCE), socket.socketpair()
    for end in ends:
        end.settimeout(0)
    return await asyncio.gather(greet(ends[0], key, "driver"), greet(ends[1], key, "worker"))


async def greet(sock: socket.socket, key: bytes, role: Role) -> Link:
    """Do the handshake over a connected, non-blocking socket, which the link then owns.

    Raises LinkRefused and closes the socket if it fails or takes over `HANDSHAKE` seconds.
    """
    shake = _as_driver if role == "driver" else _as_worker
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        if sock.family != socket.AF_UNIX:
            _keep_alive(sock)
        session = await asyncio.wait_for(shake(reader, writer, key), HANDSHAKE)
    except BaseException as error:
        writer.close()
        if isinstance(error, (OSError, asyncio.TimeoutError, EOFError)):
            raise LinkRefused(f"no handshake: {error!r}") from error
        raise
    return Link(reader, writer, session, role)


async def dial(host: str, port: int, key: bytes) -> Link:
    """Connect to the driver. Raises OSError and LinkLost."""
    sock = await asyncio.to_thread(socket.create_connection, (host, port), HANDSHAKE)
    sock.settimeout(0)
    return await greet(sock, key, "worker")


async def _as_driver(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes
) -> bytes:
    ours = secrets.token_bytes(NONCE)
    writer.write(MAGIC + ours)
    answer = await reader.readexactly(NONCE + PROOF)
    nonces = ours + answer[:NONCE]
    if not hmac.compare_digest(answer[NONCE:], _proof(key, "worker", nonces)):
        raise LinkRefused("the client does not know the key of this attempt")
    writer.write(_proof(key, "driver", nonces))
    return _proof(key, "session", nonces)


async def _as_worker(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes
) -> bytes:
    hello = await reader.readexactly(len(MAGIC) + NONCE)
    if not hello.startswith(MAGIC):
        raise LinkRefused("the peer is not a driver of tasks, or has another version")
    ours = secrets.token_bytes(NONCE)
    nonces = hello[len(MAGIC) :] + ours
    writer.write(ours + _proof(key, "worker", nonces))
    answer = await reader.readexactly(PROOF)
    if not hmac.compare_digest(answer, _proof(key, "driver", nonces)):
        raise LinkRefused("the driver does not know the key of this attempt")
    return _proof(key, "session", nonces)


def _proof(key: bytes, purpose: str, nonces: bytes) -> bytes:
    return hmac.digest(key, MAGIC + purpose.encode() + b"\0" + nonces, "sha256")


def _keep_alive(sock: socket.socket) -> None:
    """Detect within half a minute that the other machine disappeared."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)


class FrameHmac:
    """Signs or verifies the frames of one direction, each once and in order."""

    def __init__(self, session: bytes, sender: Role) -> None:
        self._session = session
        self._sender = sender.encode()
        self._count = 0

    def proof(self, content: bytes) -> bytes:
        """HMAC of the next frame."""
        number = _COUNT.pack(self._count)
        self._count += 1
        return hmac.digest(self._session, self._sender + number + content, "sha256")


def frames(message: bytes, signer: FrameHmac) -> bytes:
    """Return the frames of a message."""
    written = bytearray()
    for start in range(0, max(1, len(message)), FRAME - 1):
        piece = message[start : start + FRAME - 1]
        content = (MORE if start + len(piece) < len(message) else LAST) + piece
        written += _LENGTH.pack(len(content)) + signer.proof(content) + content
    return bytes(written)


async def read_message(reader: asyncio.StreamReader, signer: FrameHmac) -> bytes:
    """Read the frames of one message. Raises LinkRefused if a frame fails verification, and
    asyncio.IncompleteReadError."""
    message = bytearray()
    while True:
        head = await reader.readexactly(_LENGTH.size + PROOF)
        (length,) = _LENGTH.unpack_from(head)
        if not 0 < length <= FRAME:
            raise LinkRefused(f"a frame of {length} bytes")
        content = await reader.readexactly(length)
        if not hmac.compare_digest(head[_LENGTH.size :], signer.proof(content)):
            raise LinkRefused("a frame was changed, repeated or left out in transit")
        message += content[1:]
        if content[:1] == LAST:
            return bytes(message)


class Link:
    """A connection after its handshake. Messages arrive in order, each once, until the link is
    lost."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        session: bytes,
        role: Role,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._out = FrameHmac(session, role)
        self._into = FrameHmac(session, "worker" if role == "driver" else "driver")

    def send(self, message: object, /) -> None:
        """Send without waiting. A lost link drops the message, and `receive` raises LinkLost."""
        if not self._writer.is_closing():
            self._writer.write(frames(pickle.dumps(message, protocol=5), self._out))

    async def receive(self) -> Any:
        """Return the next message. Raises LinkLost."""
        try:
            message = await read_message(self._reader, self._into)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise LinkLost(str(error)) from error
        return pickle.loads(message)

    def close(self) -> None:
        """Close the link after sending what is buffered."""
        self._writer.close()
