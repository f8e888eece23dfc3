"""The requests that move parts of large objects to and from an S3 server.

Layer: between `parts` (files, threads) and `s3.py`, which owns the client, maps its exceptions and
aborts failed uploads. Invariants: each part and the whole object carry a CRC32 that the server
checks; a range is never believed to be one of an object with another size.
"""

from __future__ import annotations

import base64
import contextlib
import os
import zlib
from typing import TYPE_CHECKING, Any, Protocol

from trainrun.checkpoint.parts import BUFFER, Part, send_parts
from trainrun.errors import CheckpointDamaged, StoreUnavailable

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

    from trainrun.checkpoint.store import Progress

Client = Any
"""boto3 builds its client classes at run time: there is no type to name."""


class Body(Protocol):
    """An answer's content on its way."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer as far as possible; 0 at the end."""
        ...


def encode_crc32(crc32: int) -> str:
    """CRC32 as the protocol wants it: big endian, base64."""
    return base64.b64encode(crc32.to_bytes(4, "big")).decode()


def send_file(
    client: Client,
    where: Mapping[str, str],
    path: Path,
    *,
    size: int,
    crc32: int,
    progress: Progress | None,
    limit: threading.Semaphore,
) -> None:
    """Send all parts of a multipart upload (`where` names it) and complete it."""

    def send(part: Part, data: bytes) -> dict[str, object]:
        code = encode_crc32(zlib.crc32(data))
        answer = client.upload_part(**where, PartNumber=part.number, Body=data, ChecksumCRC32=code)
        if progress is not None:
            progress(part.size)
        return {"PartNumber": part.number, "ETag": answer["ETag"], "ChecksumCRC32": code}

    parts = send_parts(path, size, send, limit=limit)
    client.complete_multipart_upload(
        **where,
        MultipartUpload={"Parts": parts},
        ChecksumCRC32=encode_crc32(crc32),
        ChecksumType="FULL_OBJECT",
    )


def fetch_range(
    client: Client, where: Mapping[str, str], part: Part, target: int, *, size: int, name: str
) -> None:
    """Write one range of an object of `size` bytes to its place in the file `target`.

    Raises CheckpointDamaged when the object has another size, StoreUnavailable when the answer
    ends too early, OSError for trouble with the file, and what the client raises.
    """
    bounds = f"bytes={part.start}-{part.start + part.size - 1}"
    answer = client.get_object(**where, Range=bounds)
    there = answer.get("ContentRange", f"/{answer['ContentLength']}").rpartition("/")[2]
    with contextlib.closing(answer["Body"]) as body:
        if there != str(size):
            raise CheckpointDamaged(f"{name}: {there} bytes, should be {size}")
        _receive(body, part, target, name=name)


def _receive(body: Body, part: Part, target: int, *, name: str) -> None:
    buffer = memoryview(bytearray(min(BUFFER, part.size)))
    position, end = part.start, part.start + part.size
    while position < end:
        count = body.readinto(buffer[: end - position])
        if count == 0:
            raise StoreUnavailable(f"cannot read {name}: the answer ended too early")
        _write(target, buffer[:count], position)
        position += count


def _write(target: int, data: memoryview, position: int) -> None:
    while data:
        count = os.pwrite(target, data, position)
        data, position = data[count:], position + count
