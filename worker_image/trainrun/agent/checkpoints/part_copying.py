"""Copies the staged part of a worker to another node: what its agent lists, and what a buddy reads.

Layer: agent; every call runs in a thread. The buddy reads, at half of what it could: training comes
first. TLS protects the bytes; the CRC32 computed on arrival is compared when the copy is uploaded.
Invariant: a copy holds the files that were reported, since the list is read again at the end and
its agent lists no part that has changed.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from trainrun._common.tree import TreeEntry, stamp
from trainrun.agent.checkpoints.downloads import (
    CONNECT_TIMEOUT,
    COPY_PATIENCE,
    PeerTrouble,
    save_body,
)
from trainrun.agent.checkpoints.staged import Step
from trainrun.agent.checkpoints.storage import check_unchanged, scanned_files
from trainrun.checkpoint.merge import merge_ranks
from trainrun.checkpoint.reader import check_names
from trainrun.checkpoint.records import DoneMarker, PartFile
from trainrun.checkpoint.writer import Upload, describe_file, done_marker
from trainrun.contract import wire
from trainrun.contract.answer import PartHolder, PeerSource
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import ObjectNotFound

SPELL = 0.05
"""Seconds of copying after which it rests as long."""
LONGEST_REST = 1.0
"""Seconds: after a wait for the other side it need not rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartListing:
    """A worker's staged part of a step."""

    ranks: tuple[int, ...] = ()
    """Global ranks that brought files, ascending."""
    files: tuple[PartFile, ...] = ()
    """One for each name and rank, without checksums."""
    others: tuple[TreeEntry, ...] = ()
    """Folders and links, likewise."""
    metrics: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    whole: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def list_part(part: Step) -> PartListing:
    """What a worker has staged of a step.

    Raises CheckpointUnfinished if it is not what was reported, CheckpointConflict and OSError.
    """
    files = scanned_files(part)
    found = [describe_file(item, read=False) for item in files if item.other is None]
    check_unchanged(part, Upload())
    return PartListing(
        ranks=tuple(sorted(part.files)),
        files=tuple(found),
        others=tuple(item.other for item in files if item.other is not None),
        metrics=dict(part.metrics),
        metadata=dict(part.metadata),
        whole=part.whole,
    )


def copy_part(
    partner: PartHolder,
    checkpoint: CheckpointId,
    target: Path,
    *,
    workers: int,
    tls: ssl.SSLContext,
    name: str,
    handle: Upload,
) -> tuple[Step, DoneMarker]:
    """Copy a worker's part of a checkpoint from its agent, whose certificate is for `name`, into
    the new folder `target`; `handle` cancels it. Returns the part, and the done marker that its
    upload must produce, where the gang has so many `workers`.

    Raises ObjectNotFound if it is not staged there any more, OSError (ENOSPC before anything is
    copied), PeerTrouble, HTTPException, ValueError, TransferCancelled, CheckpointDamaged and
    CheckpointConflict.
    """
    with contextlib.closing(_connect(partner.source, tls, name)) as connection:
        reading = _PartReading(connection, partner.source.secret, checkpoint, handle)
        listing = reading.listing()
        check_names([item.name for item in listing.files], listing.others, manifest=checkpoint.name)
        target.mkdir(parents=True)
        if shutil.disk_usage(target).free < 2 * listing.size:  # this worker saves as much itself
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        copied = tuple(_copied(reading, listing, target))
        if reading.listing() != listing:
            raise PeerTrouble("its files changed while they were copied")
    part = Step(
        step=checkpoint.step,
        first=0.0,
        files={rank: target / str(rank) for rank in listing.ranks},
        metrics=listing.metrics,
        metadata=listing.metadata,
        whole=listing.whole,
    )
    marker = done_marker(
        checkpoint,
        merge_ranks(copied, step=checkpoint.step),
        scanned_files(part),
        worker=partner.slot,
        workers=workers,
        metrics=listing.metrics,
        metadata=listing.metadata,
    )
    return part, marker


def _copied(reading: _PartReading, listing: PartListing, target: Path) -> Iterator[PartFile]:
    for rank in listing.ranks:
        top = target / str(rank)
        top.mkdir()
        others = [entry for entry in listing.others if entry.ranks == (rank,)]
        files = [item for item in listing.files if item.ranks == (rank,)]
        for entry in sorted(others, key=lambda entry: entry.name):
            if entry.folder:
                (top / entry.name).mkdir(parents=True, exist_ok=True)
        for item in files:
            yield replace(item, crc32=reading.file(rank, item, top / item.name))
        for entry in others:
            if entry.target:
                (top / entry.name).symlink_to(entry.target)
        facts = [TreeEntry(name=f.name, mode=f.mode, modified=f.modified) for f in files]
        stamp(top, [*facts, *others])


def _connect(source: PeerSource, tls: ssl.SSLContext, name: str) -> http.client.HTTPConnection:
    where = urlsplit(f"//{source.address}")
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    connection.auto_open = 0  # it would connect again without TLS
    # Addresses of pods are in no certificate: the name is that of the run.
    place = connection.host, connection.port
    plain = socket.create_connection(place, timeout=CONNECT_TIMEOUT)
    try:
        connection.sock = tls.wrap_socket(plain, server_hostname=name)
        connection.sock.settimeout(COPY_PATIENCE)
    except BaseException:
        plain.close()
        raise
    return connection


class _PartReading:
    """Reads a part over one connection."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        secret: str,
        checkpoint: CheckpointId,
        handle: Upload,
    ) -> None:
        self._connection = connection
        self._headers: Mapping[str, str] = {"Authorization": f"Bearer {secret}"}
        self._path = f"{wire.STAGED_PATH}{checkpoint.name}"
        self._handle = handle
        self._since = time.monotonic()
        """When it began to copy, or has rested."""

    def listing(self) -> PartListing:
        with self._get("") as answer:
            return wire.decode(PartListing, json.loads(answer.read()))

    def file(self, rank: int, item: PartFile, path: Path) -> int:
        """Read a file to `path`; returns its CRC32."""
        with self._get(f"/{rank}/{item.name}") as answer:
            size, crc32 = save_body(answer, path, expected=item.size, progress=self._advance)
        if size != item.size:
            raise PeerTrouble(f"{item.name} arrived with another size than its agent listed")
        return crc32

    def _get(self, rest: str) -> http.client.HTTPResponse:
        self._handle.advance(0)
        self._connection.request("GET", quote(self._path + rest), headers=self._headers)
        answer = self._connection.getresponse()
        if answer.status == 200:
            return answer
        text = answer.read(1000).decode(errors="replace")
        if answer.status == 404:
            raise ObjectNotFound(text)
        raise PeerTrouble(f"{answer.status}: {text}")

    def _advance(self, count: int) -> None:
        self._handle.advance(count)
        worked = time.monotonic() - self._since
        if worked > SPELL:
            time.sleep(min(worked, LONGEST_REST))
            self._since = time.monotonic()
