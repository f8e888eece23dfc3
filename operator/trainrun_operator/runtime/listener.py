"""The listening socket for agents; it limits connections that have not authenticated.

Layer: runtime. A connection is unauthenticated until it has carried a good token. Invariants:
unauthenticated connections are limited per address and in all, and so are their duration
(handshake included) and the rate of an address's connections that end without authenticating; each
had enough time for an honest client before it is cut; an authenticated caller is not cut because of
others, and its own connections are limited. Each caller has a limited share of turns; waiting for
one takes none of the others'. An authenticated agent may still be any program: its messages have a
bounded shape, so that none costs more than another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from trainrun.contract.wire import MalformedMessage, parsed

FAILED_AT_ONCE = 256.0
"""Per address. Workers behind one address may all contact an operator that does not lead."""
FAILED_PER_SECOND = 50.0
"""The count falls by this many per second, so this rate is always accepted: a tenth of a CPU."""
FAILED_ADDRESSES = 4096
"""Maximum number of remembered addresses; beyond it the oldest is forgotten."""


@dataclass(slots=True)
class FailedConnections:
    """Counts recent connections that ended without authenticating, by address."""

    _counts: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By address: the count, and its time."""

    def count(self, address: str, now: float) -> None:
        """Count one more."""
        if address not in self._counts and len(self._counts) >= FAILED_ADDRESSES:
            del self._counts[next(iter(self._counts))]
        self._counts[address] = (self._of(address, now) + 1.0, now)

    def over_limit(self, address: str, now: float) -> bool:
        """Whether further connections of this address must be refused now."""
        number = self._of(address, now)
        if not number:
            self._counts.pop(address, None)
        return number >= FAILED_AT_ONCE

    def _of(self, address: str, now: float) -> float:
        number, time = self._counts.get(address, (0.0, now))
        return max(number - FAILED_PER_SECOND * (now - time), 0.0)


@dataclass(slots=True)
class _AddressLimit:
    turns: asyncio.Semaphore
    wanted: int = field(default=0)
    """How many hold or await a turn; at 0 the share is forgotten."""


class ConnectionLimiter:
    """Hands out turns first come, first served, in all and per key."""

    def __init__(self, *, at_once: int, share: int) -> None:
        """At most `at_once` turns in all, at most `share` of them for one key."""
        self._all = asyncio.Semaphore(at_once)
        self._share = share
        self._shares: dict[str, _AddressLimit] = {}

    @asynccontextmanager
    async def of(self, key: str) -> AsyncGenerator[None]:
        """Wait for a turn, and hold it."""
        share = self._shares.setdefault(key, _AddressLimit(asyncio.Semaphore(self._share)))
        share.wanted += 1
        try:
            async with share.turns, self._all:
                yield
        finally:
            share.wanted -= 1
            if not share.wanted:
                del self._shares[key]


DEEPEST = 8
"""Maximum nesting of objects and lists."""
MOST_ITEMS = 1024
"""Maximum items of a list: a worker has no more ranks and unfinished steps."""
MOST_FIELDS = 1024
"""Maximum fields of an object, such as metrics of a report."""


def read_shaped(body: bytes) -> Any:
    """The parsed JSON. Raises MalformedMessage, also if it is too deep or too long."""
    message: Any = parsed(body)
    check_shape(message)
    return message


def check_shape(message: object, *, path: str = "", depth: int = 0) -> None:
    """Raises MalformedMessage, naming the field that is too deep or too long."""
    if not isinstance(message, dict | list):
        return
    if depth >= DEEPEST:
        raise MalformedMessage(f"{path:.80}: more than {DEEPEST} levels of nesting")
    if isinstance(message, list):
        if len(message) > MOST_ITEMS:
            raise MalformedMessage(f"{path:.80}: {len(message)} items (limit {MOST_ITEMS})")
        for number, item in enumerate(message):
            check_shape(item, path=f"{path}[{number}]", depth=depth + 1)
        return
    if len(message) > MOST_FIELDS:
        raise MalformedMessage(f"{path:.80}: {len(message)} fields (limit {MOST_FIELDS})")
    for name, item in message.items():
        check_shape(item, path=f"{path}.{name}" if path else name, depth=depth + 1)


MAX_UNAUTHENTICATED = 512
"""Unauthenticated connections in all; each costs some 100 kB before it sends anything."""
UNAUTHENTICATED_PER_ADDRESS = 32
"""Workers of one node may share an address and all reconnect at once after a leader change."""
MIN_SECONDS = 2.0
"""Seconds for which an unauthenticated connection is not cut in favour of a new one, which must
retry."""
TLS_SHUTDOWN_SECONDS = 1.0
"""Time limit of the TLS shutdown."""
BACKLOG = 1024

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Connection(asyncio.Protocol):
    """One connection; passes its data on to `inner`."""

    listener: AgentListener
    address: str
    inner: asyncio.Protocol
    since: float
    transport: asyncio.Transport | None = None
    handshake: asyncio.Task[None] | None = None
    name: str = ""
    """The authenticated caller; empty: unauthenticated."""
    deadline: asyncio.TimerHandle | None = None
    more: Callable[[], None] | None = None
    """Called once, when more data arrives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's transports are of asyncio's class.
        self.transport = cast("asyncio.Transport", transport)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)
        if self.more is not None:
            more, self.more = self.more, None
            more()

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.listener.closed(self)
        self.inner.connection_lost(exc)

    def cut(self) -> None:
        """Close it at once, in any state."""
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()


@dataclass(slots=True, kw_only=True)
class AgentListener:
    """Listens, and tracks every connection."""

    receive: Callable[[], asyncio.Protocol]
    """Makes the protocol that serves a connection."""
    tls: ssl.SSLContext | None
    seconds: float
    """The limit from the first packet to authentication."""
    _socket: socket.socket | None = None
    _accepting: asyncio.Task[None] | None = None
    _unauthenticated: dict[_Connection, None] = field(default_factory=dict)
    """Oldest first."""
    _of_address: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Number of unauthenticated connections by address."""
    _by_caller: dict[str, list[_Connection]] = field(default_factory=dict)
    """Authenticated connections by caller, oldest first."""
    _by_inner: dict[asyncio.BaseProtocol, _Connection] = field(default_factory=dict)
    _failed: FailedConnections = field(default_factory=FailedConnections)

    def open(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises OSError when it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._socket.settimeout(0)
        self._accepting = asyncio.create_task(self._accept(self._socket))
        bound: int = self._socket.getsockname()[1]
        return bound

    async def close(self) -> None:
        """Accept no more connections, and cut unauthenticated ones."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        for client in list(self._unauthenticated):
            client.cut()

    def authenticated(self, inner: asyncio.BaseProtocol, name: str, *, most: int) -> None:
        """This connection belongs to the caller `name`; beyond `most` its oldest one is cut."""
        client = self._by_inner.get(inner)
        if client is None or client.name == name:
            return
        self._forget(client)
        client.name = name
        owned = self._by_caller.setdefault(name, [])
        owned.append(client)
        if len(owned) > most:
            owned[0].cut()

    def give_time(self, inner: asyncio.BaseProtocol, seconds: float) -> None:
        """Let this unauthenticated connection stay for `seconds` from now."""
        client = self._by_inner.get(inner)
        if client is not None and client.deadline is not None:
            client.deadline.cancel()
            client.deadline = asyncio.get_running_loop().call_later(seconds, client.cut)

    def on_next_data(self, inner: asyncio.BaseProtocol, more: Callable[[], None]) -> None:
        """Call `more` when the next data arrives on this connection."""
        client = self._by_inner.get(inner)
        if client is not None:
            client.more = more

    def closed(self, client: _Connection) -> None:
        """The connection has ended, or its handshake failed."""
        self._forget(client)
        if self._by_inner.pop(client.inner, None) is not None and not client.name:
            self._failed.count(client.address, asyncio.get_running_loop().time())

    # -------------------------------------------------------------------------- accepting

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:  # most likely too many open files
                _log.warning("connections of agents cannot be accepted: %s", error)
                await asyncio.sleep(0.2)
                continue
            if self._has_room_for(address[0]):
                self._admit(connection, address[0])
            else:
                connection.close()

    def _admit(self, connection: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        client = _Connection(
            listener=self, address=address, inner=self.receive(), since=loop.time()
        )
        self._unauthenticated[client] = None
        self._of_address[address] += 1
        self._by_inner[client.inner] = client
        client.deadline = loop.call_later(self.seconds, client.cut)
        client.handshake = asyncio.create_task(self._handshake(client, connection))

    async def _handshake(self, client: _Connection, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        times = (
            {"ssl_handshake_timeout": self.seconds, "ssl_shutdown_timeout": TLS_SHUTDOWN_SECONDS}
            if self.tls is not None
            else {}
        )
        try:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: client, connection, ssl=self.tls, **times)
        except (OSError, asyncio.CancelledError) as error:
            _log.debug("the handshake with %s failed: %r", client.address, error)
            self.closed(client)
        finally:
            client.handshake = None

    def _has_room_for(self, address: str) -> bool:
        """Whether one more unauthenticated connection fits, after evicting the oldest one if it had
        its minimum time."""
        if self._failed.over_limit(address, asyncio.get_running_loop().time()):
            return False
        if self._of_address[address] >= UNAUTHENTICATED_PER_ADDRESS:
            oldest = next(client for client in self._unauthenticated if client.address == address)
        elif len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            oldest = next(iter(self._unauthenticated))
        else:
            return True
        if asyncio.get_running_loop().time() - oldest.since < MIN_SECONDS:
            return False
        self._forget(oldest)
        oldest.cut()
        return True

    def _forget(self, client: _Connection) -> None:
        """Remove the connection from all counts."""
        if client.deadline is not None:
            client.deadline.cancel()
            client.deadline = None
        if client in self._unauthenticated:
            del self._unauthenticated[client]
            self._of_address[client.address] -= 1
            if not self._of_address[client.address]:
                del self._of_address[client.address]
        owned = self._by_caller.get(client.name, [])
        if client in owned:
            owned.remove(client)
            if not owned:
                del self._by_caller[client.name]
