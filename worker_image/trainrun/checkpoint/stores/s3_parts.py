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

from trainrun.checkpoint.stores.parts import BUFFER, Part, send_parts
from trainrun.checkpoint.stores.store import changed
from trainrun.errors import CheckpointDamaged, StoreUnavailable

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

    from trainrun.checkpoint.stores.store import Progress

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


def said(answer: Mapping[str, Any], field: str, *, name: str) -> str:
    """What a server must say; raises StoreUnavailable where it does not."""
    if field not in answer:
        raise StoreUnavailable(
            f"cannot write {name}: the answer names no {field}; does something answer in the "
            "store's place, a proxy perhaps?"
        )
    return str(answer[field])


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
        etag = said(answer, "ETag", name=f"{where['Key']}, part {part.number}")
        return {"PartNumber": part.number, "ETag": etag, "ChecksumCRC32": code}

    parts = send_parts(path, size, send, limit=limit)
    answer = client.complete_multipart_upload(
        **where,
        MultipartUpload={"Parts": parts},
        ChecksumCRC32=encode_crc32(crc32),
        ChecksumType="FULL_OBJECT",
    )
    said(answer, "ETag", name=where["Key"])


def fetch_range(
    client: Client,
    where: Mapping[str, str],
    part: Part,
    target: int,
    *,
    size: int,
    tag: str,
    name: str,
) -> None:
    """Write one range of an object of `size` bytes to its place in the file `target`.

    Raises CheckpointDamaged when the object has another size, StoreUnavailable when the answer is
    of another range or version (`tag`; empty: any), or ends too early, OSError for trouble with the
    file, and what the client raises.
    """
    bounds = f"{part.start}-{part.start + part.size - 1}"
    version = {"IfMatch": tag} if tag else {}
    answer = client.get_object(**where, **version, Range=f"bytes={bounds}")
    # A server that ignores the range sends the whole object.
    length = answer.get("ContentLength", 0)
    given = answer.get("ContentRange", f"bytes 0-{length - 1}/{length}")
    with contextlib.closing(answer["Body"]) as body:
        there = given.rpartition("/")[2]
        if there != str(size):
            raise CheckpointDamaged(f"{name}: {there} bytes, should be {size}")
        if given != f"bytes {bounds}/{size}":
            raise StoreUnavailable(f"cannot read {name}: asked for bytes {bounds}, got {given}")
        if tag and answer.get("ETag", tag) != tag:  # a server that ignores the condition
            raise changed(name)
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
