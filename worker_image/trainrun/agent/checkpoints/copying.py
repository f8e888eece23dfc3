"""Checkpoint files from another agent of this node, which has read them from the store.

Layer: agent; runs in the threads of `storage`. Invariant: what is copied has the size and the CRC32
of the manifest (the size alone where a foreign folder has no manifest). Whatever goes wrong, the
store is read instead: the other agent may be gone or slow.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import threading
import time
import zlib
from pathlib import Path
from urllib.parse import quote, urlsplit

from trainrun.checkpoint import CachedFile
from trainrun.contract.answer import PeerSource
from trainrun.contract.wire import CHECKPOINTS_PATH
from trainrun.disk import NO_ROOM

LOG = logging.getLogger("trainrun.agent")

CONNECT_TIMEOUT = 5.0
"""Seconds: it is on this machine."""
PATIENCE = 30.0
"""Seconds without a byte, or without any progress of the other's own download."""
PAUSE = 0.1
"""Seconds between two questions for a file that is on its way; an answer is held back as well."""
BUFFER = 1 << 20


class PeerTrouble(Exception):
    """The other agent has answered something else than the file."""


class Copying:
    """From one agent, for one checkpoint; after a failure it is not asked again."""

    def __init__(self, source: PeerSource, name: str) -> None:
        """`name` is that of `FilesOnNode`."""
        self._source = source
        self._name = name
        self._failed = False
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def copy(self, file: CachedFile, path: Path) -> bool:
        """Write `file` to `path`; False where the store has to be read. One at a time.

        Raises OSError where this node has no room for it.
        """
        with self._lock:
            return self._copied(file, path)

    def _copied(self, file: CachedFile, path: Path) -> bool:
        if self._failed:
            return False
        try:
            self._copy(file, path)
        except (OSError, http.client.HTTPException, ValueError, PeerTrouble) as error:
            self.close()  # what is left of an answer would be taken for the next one
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise  # what the store has would not fit either
            LOG.warning(
                "%s cannot be copied from the agent at %s (%s); the store is read instead",
                self._name,
                self._source.address,
                str(error) or repr(error),
            )
            self._failed = True
            return False
        return True

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _copy(self, file: CachedFile, path: Path) -> None:
        url = CHECKPOINTS_PATH + quote(f"{self._name}/{file.source}")
        known, since = -1, time.monotonic()
        while True:
            with contextlib.closing(self._get(url)) as answer:
                if answer.status == 200:
                    _receive(answer, file, path)
                    return
                text = answer.read(1000).decode(errors="replace")
            if answer.status != 202:
                raise PeerTrouble(f"{answer.status}: {text}")
            received = int(json.loads(text)["received"])
            if received != known:
                known, since = received, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise PeerTrouble(f"its own download has stalled at {received} bytes")
            time.sleep(PAUSE)

    def _get(self, url: str) -> http.client.HTTPResponse:
        if self._connection is None:
            where = urlsplit(f"//{self._source.address}")
            connection = http.client.HTTPConnection(
                where.hostname or "", where.port, timeout=CONNECT_TIMEOUT
            )
            connection.connect()
            connection.sock.settimeout(PATIENCE)
            self._connection = connection
        self._connection.request(
            "GET", url, headers={"Authorization": f"Bearer {self._source.secret}"}
        )
        return self._connection.getresponse()


def _receive(answer: http.client.HTTPResponse, file: CachedFile, path: Path) -> None:
    if answer.length != file.size:
        raise PeerTrouble(f"{file.source} has {answer.length} bytes there, should be {file.size}")
    buffer = memoryview(bytearray(BUFFER))
    size = crc32 = 0
    with path.open("wb", buffering=0) as target:
        while count := answer.readinto(buffer):
            target.write(buffer[:count])
            crc32 = zlib.crc32(buffer[:count], crc32)
            size += count
    if size != file.size or (file.summed and crc32 != file.crc32):
        raise PeerTrouble(
            f"{file.source} came with {size} bytes and CRC32 {crc32:08x}, "
            f"should be {file.size} and {file.crc32:08x}"
        )
