"""What a checkpoint's file holds, by its format. What is in no known format, or needs a class of
the user's to be read, has bytes and no content.

Layer: cli.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import IO

from trainrun_operator.cli.drilling.reading.entries import entries
from trainrun_operator.cli.drilling.reading.inert import read_pickles
from trainrun_operator.cli.drilling.reading.tensors import read_torch

Entries = Mapping[str, bytes]
"""Digests by path."""

LARGEST = 1 << 28
"""Bytes of a file that has to be in memory as a whole; one of tensors may have any size."""
NPY = b"\x93NUMPY"


def content(file: IO[bytes], size: int) -> Entries | None:
    """The entries of an open file of so many bytes; None: only its bytes can be compared."""
    try:
        return dict(_content(file, size)) or None
    except Exception:  # noqa: BLE001 - it may hold anything, and is no format that we know then
        return None


def _content(file: IO[bytes], size: int) -> Iterator[tuple[str, bytes]]:
    begins = file.read(9)
    file.seek(0)
    if begins.startswith(b"PK\x03\x04"):
        return _of_zip(file)
    if begins[8:9] == b"{" and int.from_bytes(begins[:8], "little") < size:
        return _of_safetensors(file)
    if size > LARGEST:
        raise ValueError(size)
    if begins.startswith(b"\x1f\x8b"):
        whole = gzip.GzipFile(fileobj=file).read(LARGEST + 1)
        return _content(io.BytesIO(whole), len(whole))
    if begins.startswith(NPY):
        return _of_npy(file, size)
    if begins[:1] == b"\x80" and 2 <= begins[1] <= 5:
        return entries(_single(list(read_pickles(file, size=size))))
    return entries(_of_json(file.read().decode()))


def _of_zip(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        members = [it for it in archive.infolist() if not it.is_dir()]
        if min(it.header_offset for it in members):
            raise ValueError("several archives, of which only the last one would be seen")
        pickled = next((it for it in members if it.filename.endswith("/data.pkl")), None)
        if pickled is not None and not any("/code/" in it.filename for it in members):
            yield from entries(_single(list(read_torch(file, archive, pickled))))
            return
        for member in members:
            yield from _of_member(archive, member)


def _of_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[tuple[str, bytes]]:
    found = None
    if member.file_size <= LARGEST:
        with archive.open(member) as file:
            found = content(io.BytesIO(file.read()), member.file_size)
    if found is None:
        found = {"": b"%d %d" % (member.file_size, member.CRC)}
    for name, digest in found.items():
        yield f"{member.filename}: {name}" if name else member.filename, digest


def _of_safetensors(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    length = int.from_bytes(file.read(8), "little")
    head = json.loads(file.read(length))
    yield from entries(head.pop("__metadata__", {}), "__metadata__")
    for name, told in head.items():
        begins, ends = told["data_offsets"]
        file.seek(8 + length + begins)
        elements = zlib.crc32(file.read(ends - begins))
        yield name, f"{told['dtype']} {told['shape']} {elements}".encode()


def _of_npy(file: IO[bytes], size: int) -> Iterator[tuple[str, bytes]]:
    major = file.read(8)[6]
    length = int.from_bytes(file.read(2 if major == 1 else 4), "little")
    head = ast.literal_eval(file.read(length).decode("latin-1").strip())
    if "O" in str(head["descr"]):
        return entries(_single(list(read_pickles(file, size=size))))
    told = blake2b(repr(sorted(head.items())).encode(), digest_size=16)
    told.update(file.read())
    return iter([("", told.digest())])


def _of_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _single(values: list[object]) -> object:
    """Most files hold one value."""
    return values[0] if len(values) == 1 else values
