"""Downloads to this node: checkpoints, initial weights, single files for other workers.

Layer: agent, over `trainrun.checkpoint`; every call runs in a thread, none in the event loop. Files
come from the store, or from another agent of this node that has downloaded them. Invariant: a
copied file has the size and CRC32 of the manifest (only the size if a foreign folder has no
manifest). If copying fails, the store is read instead: the other agent may be gone or slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from trainrun._common.tree import NO_ROOM, write_all
from trainrun.agent import background
from trainrun.agent.checkpoints.opened_store import OpenedStore
from trainrun.checkpoint import choice, reader
from trainrun.checkpoint.cache import CachedFile, Copy, FilesOnNode
from trainrun.checkpoint.description import read_described
from trainrun.checkpoint.records import Manifest
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.contract import layout
from trainrun.contract.answer import PeerSource
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.wire import CHECKPOINTS_PATH
from trainrun.errors import CheckpointDamaged, NotUploadedYet, ObjectNotFound, StoreUnavailable

LOG = logging.getLogger("trainrun.agent")

LOOK = 0.05
"""Seconds between two checks whether a file has arrived."""


class Downloads:
    """Downloads of one node. Every method raises what `trainrun.checkpoint` documents."""

    def __init__(self, store: OpenedStore) -> None:
        self._store = store
        self.held: HeldCheckpoint | None = None
        """The resume point, if it is on the workers' disks."""
        self._manifest: Manifest | None = None
        """The one that was read last."""
        self._asked: CheckpointId | None = None
        """The last checkpoint that processes requested: on a full disk it replaces all others."""
        self._included: set[str] = set()
        """The patterns that processes gave for it; empty: they want all files."""
        self._served: dict[bool, FilesOnNode] = {}
        """The last files that other workers requested: of checkpoints or initial weights (True)."""
        # Downloads of one node wait for each other anyway. Here they wait without a thread, which
        # a rank that dies meanwhile would leave behind.
        self._downloading = asyncio.Lock()

    async def manifest(self, checkpoint: CheckpointId) -> Manifest:
        """Read a checkpoint's manifest, once: it never changes."""
        if self._manifest is None or self._manifest.id != checkpoint:
            self._manifest = await self._store.call(
                lambda: self._read_manifest(self._store.run(), checkpoint)
            )
        return self._manifest

    async def materialize(
        self,
        checkpoint: CheckpointId,
        rank: int | None,
        source: PeerSource | None = None,
        *,
        include: Sequence[str] = (),
    ) -> Path:
        """Download a checkpoint, once per node; from `source` if that works.

        `rank`, `include`: see `FetchCheckpoint`.
        """

        def needed() -> bool:
            # A thread left over from an ended attempt must not take room from the next one.
            return self._asked == checkpoint

        def work() -> tuple[FilesOnNode, Path]:
            run, held = self._store.run(), self._held(checkpoint)
            manifest = self._read_manifest(run, checkpoint)
            files = reader.checkpoint_on_node(run, manifest, cache_dir=self._store.cache, rank=rank)
            files = reader.only(files, include)
            others = Copying(source, files.name) if held is None else HeldCopying(held, run)
            with contextlib.closing(others) as copying:
                return files, files.directory(copy=copying.copy, needed=needed, forget=False)

        if self._asked != checkpoint:
            self._included = {*include}
        elif not include or not self._included:
            self._included = set()
        else:
            self._included.update(include)
        self._asked = checkpoint
        async with self._downloading:
            files, path = await self._store.call(work)
        background.run(self._forget_older(files, checkpoint))
        return path

    async def _forget_older(self, files: FilesOnNode, checkpoint: CheckpointId) -> None:
        """Not before a rank has got its files: to delete 1 GB takes a quarter of a second."""
        async with self._downloading:
            if self._asked == checkpoint:
                await self._store.call(files.forget_older)

    async def piece(
        self, checkpoint: CheckpointId, file: str, ranges: Sequence[tuple[int, int]]
    ) -> Path:
        """Download ranges of one file; see `reader.piece`."""
        files, run = await self._named(checkpoint.name), self._store.run()

        def work() -> Path:
            held = self._held(checkpoint) is not None
            sources = [item.source for item in files.files if held and item.name == file]
            for source in sources:
                if files.find(source) is None:
                    # Only then its checksum was compared: a range is not.
                    done = layout.marker_name(layout.worker_of(source))
                    _check_uploaded(run, checkpoint, source, by=(done, layout.MANIFEST))
            return reader.piece(files, file, ranges)

        return await self._store.call(work)

    async def prefetch(
        self, checkpoint: CheckpointId, ranks: Sequence[int], wanted: Callable[[], bool]
    ) -> int:
        """Download the files that these ranks will most likely read; return their size in bytes.
        Only requests for the same checkpoint wait for it. Calls `wanted` between two files, in
        another thread, and raises StoreUnavailable if it returns False."""

        def not_copied(_file: CachedFile, _path: Path) -> bool:
            if not wanted():
                raise StoreUnavailable("another checkpoint was chosen")
            return False

        def work() -> int:
            run = self._store.run()
            manifest = reader.read_manifest(run, checkpoint)
            files = reader.likely_on_node(run, manifest, cache_dir=self._store.cache, ranks=ranks)
            files = reader.only(files, sorted(self._included))  # as the last time
            files.directory(copy=not_copied, needed=wanted)
            return sum(file.size for file in files.files)

        return await self._store.call(work)

    async def materialize_initial(
        self, source: PeerSource | None = None, *, include: Sequence[str] = ()
    ) -> Path:
        """The same for `checkpoint.initialFrom`; a folder of this machine is given whole."""

        def work() -> Path:
            with contextlib.closing(self._initial_store()) as store:
                found = reader.initial_on_node(store, cache_dir=self._store.cache)
                if isinstance(found, Path):
                    return found
                with contextlib.closing(Copying(source, found.name)) as copying:
                    return reader.only(found, include).directory(copy=copying.copy)

        async with self._downloading:
            return await self._store.call(work)

    async def obtain(self, name: str, source: str) -> Path:
        """The local path of one file of a checkpoint (or the initial one) for another worker;
        downloads it if necessary."""
        files = await self._named(name)
        checkpoint = CheckpointId.named(name)
        while True:
            if (path := files.find(source)) is not None:
                return path
            if not self._downloading.locked():
                async with self._downloading:
                    return await self._store.call(lambda: self._obtain(files, source, checkpoint))
            await asyncio.sleep(LOOK)  # the current download may include this file

    def _obtain(self, files: FilesOnNode, source: str, checkpoint: CheckpointId | None) -> Path:
        if self._held(checkpoint) is not None:
            # It would wait for the worker that asks, if both use one cache.
            raise ObjectNotFound(f"this worker does not have {source} in its cache")
        return files.download(source, needed=lambda: self._asked == checkpoint)

    def _held(self, checkpoint: CheckpointId | None) -> HeldCheckpoint | None:
        held = self.held
        return held if held is not None and held.checkpoint == checkpoint else None

    def _read_manifest(self, run: RunStore, checkpoint: CheckpointId) -> Manifest:
        if self._held(checkpoint) is not None:
            return read_described(run, checkpoint)
        return reader.read_manifest(run, checkpoint)

    def received(self, name: str) -> int:
        """Bytes of the requested checkpoint that are on this node."""
        return sum(files.received() for files in self._served.values() if files.name == name)

    def _initial_store(self) -> ObjectStore:
        """A new one each time: it may only exist now, or have other credentials."""
        if self._store.config.initial_from is None:
            raise ObjectNotFound("the run has no checkpoint.initialFrom")
        return self._store.open(self._store.config.initial_from)

    async def _named(self, name: str) -> FilesOnNode:
        checkpoint = CheckpointId.named(name)
        cached = self._served.get(checkpoint is None)
        if cached is not None and cached.name == name:
            return cached
        if checkpoint is not None:
            manifest = await self.manifest(checkpoint)
            found: FilesOnNode | Path = reader.checkpoint_on_node(
                self._store.run(), manifest, cache_dir=self._store.cache
            )
        else:
            found = await self._store.call(
                lambda: reader.initial_on_node(self._initial_store(), cache_dir=self._store.cache)
            )
        if isinstance(found, Path) or found.name != name:
            raise ObjectNotFound(f"this worker does not have {name}")
        self._served[checkpoint is None] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCheckpoint:
    """A checkpoint that has no manifest yet, on the disks of the workers."""

    checkpoint: CheckpointId
    link: Copy
    """Takes a file from this worker's disk."""
    others: Mapping[int, PeerSource]
    """The agents on this node that hold another part, by slot."""


class HeldCopying:
    """Takes its files from this disk, from other agents of this node, or once they are uploaded,
    from the store."""

    def __init__(self, held: HeldCheckpoint, run: RunStore) -> None:
        """`run` is where its parts are uploaded to."""
        self._held = held
        self._run = run
        self._peers = {
            slot: Copying(source, held.checkpoint.name) for slot, source in held.others.items()
        }

    def copy(self, file: CachedFile, path: Path) -> bool:
        """As `Copying.copy`. Raises NotUploadedYet while the file is on another node only, and
        CheckpointDamaged if the checkpoint was set aside meanwhile."""
        if self._held.link(file, path):
            return True
        peer = self._peers.get(layout.worker_of(file.source))
        if peer is not None and peer.copy(file, path):
            return True
        _check_uploaded(self._run, self._held.checkpoint, file.source, by=(file.source,))
        return False

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()


def _check_uploaded(
    run: RunStore, checkpoint: CheckpointId, source: str, *, by: Sequence[str]
) -> None:
    """Raises NotUploadedYet if a file is not in the store yet, as one of the objects `by` would
    show, and CheckpointDamaged if it will not come, since the checkpoint was set aside."""
    folder = run.key(layout.folder(checkpoint))
    if any(run.store.size(folder + name) is not None for name in by):
        return
    if run.is_bad(checkpoint):
        raise CheckpointDamaged(choice.recorded_reason(run, checkpoint))
    raise NotUploadedYet(
        f"{source} of {checkpoint.name} is on a worker's disk, and that worker still uploads it"
    )


CONNECT_TIMEOUT = 5.0
"""Seconds; short, since the other agent is on this machine."""
COPY_PATIENCE = 30.0
"""Seconds without a byte, or without progress in the other agent's own download."""
COPY_PAUSE = 0.1
"""Seconds between two requests for a file that is not there yet; the answer is delayed as well."""
BUFFER = 1 << 20


class PeerTrouble(Exception):
    """The other agent did not send the expected file."""


class Copying:
    """Copies one checkpoint from one agent; gives up at the first failure."""

    def __init__(self, source: PeerSource | None, name: str) -> None:
        """`name` is that of `FilesOnNode`; without a `source` nothing is copied."""
        self._source = source
        self._name = name
        self._failed = False
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def copy(self, file: CachedFile, path: Path) -> bool:
        """Write `file` to `path`; False if the store must be read. One file at a time.

        Raises OSError if this node has no room for it.
        """
        with self._lock:
            return self._copied(file, path)

    def _copied(self, file: CachedFile, path: Path) -> bool:
        if self._source is None or self._failed:
            return False
        try:
            self._copy(self._source, file, path)
        except (OSError, http.client.HTTPException, ValueError, PeerTrouble) as error:
            self.close()  # the next request would read the rest of this answer
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise  # the file from the store would not fit either
            LOG.warning(
                "cannot copy %s from the agent at %s (%s), so the store is read instead",
                self._name,
                self._source.address,
                str(error) or repr(error),
            )
            self._failed = True
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _copy(self, source: PeerSource, file: CachedFile, path: Path) -> None:
        url = CHECKPOINTS_PATH + quote(f"{self._name}/{file.source}")
        last_received, since = -1, time.monotonic()
        while True:
            with contextlib.closing(self._get(source, url)) as answer:
                if answer.status == 200:
                    _receive(answer, file, path)
                    return
                text = answer.read(1000).decode(errors="replace")
            if answer.status != 202:
                raise PeerTrouble(f"{answer.status}: {text}")
            received = int(json.loads(text)["received"])
            if received != last_received:
                last_received, since = received, time.monotonic()
            elif time.monotonic() - since > COPY_PATIENCE:
                raise PeerTrouble(f"its own download has stalled at {received} bytes")
            time.sleep(COPY_PAUSE)

    def _get(self, source: PeerSource, url: str) -> http.client.HTTPResponse:
        if self._connection is None:
            where = urlsplit(f"//{source.address}")
            connection = http.client.HTTPConnection(
                where.hostname or "", where.port, timeout=CONNECT_TIMEOUT
            )
            connection.connect()
            connection.sock.settimeout(COPY_PATIENCE)
            self._connection = connection
        self._connection.request("GET", url, headers={"Authorization": f"Bearer {source.secret}"})
        return self._connection.getresponse()


def _receive(answer: http.client.HTTPResponse, file: CachedFile, path: Path) -> None:
    if answer.length != file.size:
        raise PeerTrouble(f"{file.source} has {answer.length} bytes there, should be {file.size}")
    size, crc32 = save_body(answer, path, expected=file.size)
    if size != file.size or (file.summed and crc32 != file.crc32):
        raise PeerTrouble(
            f"{file.source} arrived with {size} bytes and CRC32 {crc32:08x}, "
            f"should be {file.size} and {file.crc32:08x}"
        )


def save_body(
    answer: http.client.HTTPResponse,
    path: Path,
    *,
    expected: int,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[int, int]:
    """Write what an agent answers, `expected` bytes, to a file; returns its size and CRC32.

    `progress` gets the size of each piece.
    """
    buffer = memoryview(bytearray(min(BUFFER, max(expected, 1))))
    size = crc32 = 0
    with path.open("wb", buffering=0) as target:
        while count := answer.readinto(buffer):
            write_all(target.fileno(), buffer[:count])
            crc32 = zlib.crc32(buffer[:count], crc32)
            size += count
            progress(count)
    return size, crc32
