"""Sends local files to an S3 server: each byte is read once, in memory of a bounded size.

Layer: local files, buffers and threads; `s3.py` owns the client and maps its exceptions.
Invariants: at most CONNECTIONS buffers of a store are in use, however many files move; a checksum
is computed from the very bytes that are sent; the first failure stops the rest and aborts the
upload.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trainrun.checkpoint.stores.parts import (
    CONNECTIONS,
    PART,
    Client,
    Part,
    abort_uploads,
    combine,
    cut,
    encode_crc32,
    in_order,
    part_size,
    required_field,
)
from trainrun.checkpoint.stores.store import changed_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from trainrun.checkpoint.stores.store import Progress

BLOCK = 128 << 10
"""Bytes per call to the network: enough that calls cost little, and few enough for a slow network,
since each call must end within CONNECT_TIMEOUT."""


class Blocks:
    """Data that the SDK sends in blocks of BLOCK; it would read `bytes` in blocks of 16 KiB."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def __len__(self) -> int:
        """Bytes in total."""
        return len(self._data)

    def read(self, size: int = -1) -> memoryview:
        """At least a block, if so much is left; a negative size: all that is left."""
        start, end = self._position, len(self._data)
        self._position = end if size < 0 else min(start + max(size, BLOCK), end)
        return self._data[start : self._position]

    def tell(self) -> int:
        """The position of the next byte."""
        return self._position

    def seek(self, position: int, _whence: int = 0) -> None:
        """Start again, for another try."""
        self._position = position


def without_expect(params: Mapping[str, Any], **_: object) -> None:
    """Handler of the SDK's event `before-call`: do not ask the server before data are sent.

    The question (`Expect: 100-continue`) costs a round trip in each request.
    """
    params["headers"].pop("Expect", None)


class PartBuffers:
    """Memory for what is in transit, reused from part to part. Thread-safe.

    It is mapped, since C libraries keep what threads have freed: up to 16 MB for each thread.
    """

    def __init__(self, limit: threading.Semaphore) -> None:
        """`limit`: how many may be in use at once."""
        self._limit = limit
        self._lock = threading.Lock()
        self._free: list[mmap.mmap] = []
        self._users = 0

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep unused buffers while any such block runs."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._free.clear()

    @contextlib.contextmanager
    def filled(self, source: int, part: Part, path: Path) -> Iterator[memoryview]:
        """The bytes of a part of the file `source`. Waits for a buffer.

        Raises StoreError when the file (`path`, for the message) has become shorter.
        """
        with self._limit:
            buffer = self._take(part.size)
            data, done = memoryview(buffer)[: part.size], 0
            while count := os.preadv(source, [data[done:]], part.start + done):
                done += count
            if done != part.size:
                raise changed_file(path)
            yield data
            if len(buffer) == PART:
                with self._lock:
                    self._free.append(buffer)

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            if size <= PART and self._free:
                return self._free.pop()
        return mmap.mmap(-1, max(size, PART), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def send_large(
    client: Client,
    where: Mapping[str, str],
    path: Path,
    *,
    size: int,
    crc32: int | None,
    progress: Progress | None,
    buffers: PartBuffers,
) -> int:
    """Write an object (`where`: bucket and key) from a file in parts; return its CRC32.

    Raises what the client raises, and StoreError when the file does not have the given `crc32`
    (None: not known yet) or has become shorter.
    """
    if crc32 is not None and _holds(client, where, size=size, crc32=crc32):
        return crc32  # an earlier try succeeded, and its response was lost
    begun = client.create_multipart_upload(
        **where, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT"
    )
    upload = {**where, "UploadId": required_field(begun, "UploadId", name=where["Key"])}
    try:
        if begun["ResponseMetadata"].get("RetryAttempts"):  # a response with its id was lost
            with contextlib.suppress(Exception):
                is_this_key = where["Key"].__eq__
                abort_uploads(
                    client, where["Bucket"], where["Key"], is_this_key, but=upload["UploadId"]
                )
        parts, found = _send_parts(
            client, upload, path, size=size, progress=progress, buffers=buffers
        )
        if crc32 not in (None, found):
            raise changed_file(path)
        crc32 = found
        answer = client.complete_multipart_upload(
            **upload,
            MultipartUpload={"Parts": parts},
            ChecksumCRC32=encode_crc32(crc32),
            ChecksumType="FULL_OBJECT",
        )
        required_field(answer, "ETag", name=where["Key"])
    except BaseException:
        # Parts of an upload that is neither completed nor aborted are invisible and billed.
        with contextlib.suppress(Exception):
            client.abort_multipart_upload(**upload)
        # Perhaps it was completed, and the response was lost.
        if crc32 is None or not _holds(client, where, size=size, crc32=crc32):
            raise
    return crc32


def _send_parts(
    client: Client,
    upload: Mapping[str, str],
    path: Path,
    *,
    size: int,
    progress: Progress | None,
    buffers: PartBuffers,
) -> tuple[list[dict[str, object]], int]:
    """Send all parts. Returns them as the completion lists them, and the CRC32 of the whole."""
    with path.open("rb", buffering=0) as source:

        def send(part: Part) -> tuple[dict[str, object], int]:
            with buffers.filled(source.fileno(), part, path) as data:
                crc32 = zlib.crc32(data)
                code = encode_crc32(crc32)
                answer = client.upload_part(
                    **upload, PartNumber=part.number, Body=Blocks(data), ChecksumCRC32=code
                )
            if progress is not None:
                progress(part.size)
            etag = required_field(answer, "ETag", name=f"{upload['Key']}, part {part.number}")
            return {"PartNumber": part.number, "ETag": etag, "ChecksumCRC32": code}, crc32

        parts = cut(size, part_size(size))
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            sent = list(in_order(pool, [pool.submit(send, part) for part in parts]))
    whole = 0
    for part, (_, crc32) in zip(parts, sent, strict=True):
        whole = combine(whole, crc32, part.size)
    return [listed for listed, _ in sent], whole


def _holds(client: Client, where: Mapping[str, str], *, size: int, crc32: int) -> bool:
    """Whether the object exists with exactly this content, as far as the server reports."""
    with contextlib.suppress(Exception):  # whatever fails here, the upload's own error is raised
        there = client.head_object(**where, ChecksumMode="ENABLED")
        code = encode_crc32(crc32)
        return bool((there.get("ContentLength"), there.get("ChecksumCRC32")) == (size, code))
    return False
