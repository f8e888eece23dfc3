"""Contents of a checkpoint file as digests, one for each leaf, by its path. Equal digests mean
equal values; the order of dicts and sets, tuples in place of lists, and shared objects make no
difference. A file in an unknown format, or one that needs a class of the user's to be read, has
bytes but no content.

Layer: cli.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import IO

from trainrun_operator.cli.drilling.pickles import Inert, Storage, Tensor, read_pickles, read_torch

Entries = Mapping[str, bytes]
"""Digests by path."""

LARGEST = 1 << 28
"""Bytes of a file that must be in memory as a whole; a file of tensors may have any size."""
NPY = b"\x93NUMPY"


def content(file: IO[bytes], size: int) -> Entries | None:
    """The entries of an open file of `size` bytes; None: only its bytes can be compared."""
    try:
        return dict(_content(file, size)) or None
    except Exception:  # noqa: BLE001 - it may hold anything, in an unknown format
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
        members = [member for member in archive.infolist() if not member.is_dir()]
        if min(member.header_offset for member in members):
            raise ValueError("several archives: only the last one would be read")
        pickled = next(
            (member for member in members if member.filename.endswith("/data.pkl")), None
        )
        if pickled is not None and not any("/code/" in member.filename for member in members):
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
    for name, tensor in head.items():
        begins, ends = tensor["data_offsets"]
        file.seek(8 + length + begins)
        elements = zlib.crc32(file.read(ends - begins))
        yield name, f"{tensor['dtype']} {tensor['shape']} {elements}".encode()


def _of_npy(file: IO[bytes], size: int) -> Iterator[tuple[str, bytes]]:
    major = file.read(8)[6]
    length = int.from_bytes(file.read(2 if major == 1 else 4), "little")
    head = ast.literal_eval(file.read(length).decode("latin-1").strip())
    if "O" in str(head["descr"]):
        return entries(_single(list(read_pickles(file, size=size))))
    digest = blake2b(repr(sorted(head.items())).encode(), digest_size=16)
    digest.update(file.read())
    return iter([("", digest.digest())])


def _of_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _single(values: list[object]) -> object:
    """The value, if there is only one, as in most files."""
    return values[0] if len(values) == 1 else values


DEEPEST = 16
"""Levels of nesting with paths of their own."""
MOST = 200_000
"""Entries of one file, at most."""
PLAIN = re.compile(
    r"(numpy|_codecs|collections|datetime|pathlib|decimal|fractions|builtins|torch\._utils)\b"
    r"|torch\.\w+$"
)
"""Classes and functions whose objects are their values. Another class may keep anything, such as a
cache: of its objects only tensors and arrays are compared."""


def entries(value: object, at: str = "") -> Iterator[tuple[str, bytes]]:
    """(path, digest) of each leaf. Raises ValueError if there are too many, and the errors of a
    leaf."""
    digests = Digests()
    for number, (path, leaf) in enumerate(_leaves(value, at, around=(), own=False)):
        if number >= MOST:
            raise ValueError(number)
        yield path, digests.of(leaf)


def _leaves(
    value: object, at: str, *, around: tuple[int, ...], own: bool
) -> Iterator[tuple[str, object]]:
    """`around`: ids of the objects that contain it; `own`: the class of one of them is not
    plain."""
    own = own or _is_own(value)
    if id(value) in around:
        return
    inside = _inside(value, own=own) if len(around) < DEEPEST else None
    if inside:
        for name, each in inside:
            path = f"{at}.{name}" if at else name
            yield from _leaves(each, path, around=(*around, id(value)), own=own)
    elif not own or isinstance(value, Storage | Tensor | Inert):
        yield at, value


def _is_own(value: object) -> bool:
    return isinstance(value, Inert) and not PLAIN.match(value.NAME)


class Digests:
    """Digests of the values of one file."""

    def __init__(self) -> None:
        self._cached: dict[int, tuple[object, bytes]] = {}
        """By id, with the object, so that no other object gets its id. An empty digest is not
        finished."""

    def of(self, value: object) -> bytes:
        """The digest of a value and everything in it."""
        if value is None or isinstance(value, bool | str | int | float | complex):
            return blake2b(_plain(value), digest_size=16).digest()
        cached = self._cached.get(id(value))
        if cached is None:
            self._cached[id(value)] = (value, b"")  # found again inside itself: a cycle
            found = blake2b(b"".join(self._parts(value)), digest_size=16).digest()
            self._cached[id(value)] = (value, found)
            return found
        return cached[1]

    def _parts(self, value: object) -> Iterator[bytes]:
        match value:
            case bytes() | bytearray():
                yield b"bytes %d %d" % (len(value), zlib.crc32(value))
            case list() | tuple():
                yield b"list"
                yield from map(self.of, value)
            case set() | frozenset():
                yield b"set"
                yield from sorted(map(self.of, value))
            case dict():
                yield b"dict"
                yield from sorted(self.of(k) + self.of(v) for k, v in value.items())
            case Inert():
                yield value.NAME.encode()
                yield from map(self.of, (value.args, value.added, value.items, value.state))
            case Storage() | Tensor():
                yield value.canonical()
            case _:  # a class or function
                yield str(getattr(value, "NAME", "") or getattr(value, "__name__", "")).encode()


def _plain(value: object) -> bytes:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return repr(value).encode()


def _inside(value: object, *, own: bool) -> list[tuple[str, object]] | None:
    """The named parts of a value; None: it is a leaf."""
    match value:
        case dict():
            return [(f"{key!s:.60}", each) for key, each in value.items()]
        case list() | tuple() if any(
            isinstance(part, list | tuple | dict | Inert) for part in value
        ):
            return [(str(number), each) for number, each in enumerate(value)]
        case Inert() if own and _is_own(value):
            parts = (value.args, value.added, value.items)
            state = value.state if isinstance(value.state, dict) else {"state": value.state}
            return [*(_inside(state, own=own) or []), *(("", part) for part in parts)]
        case _:
            return None
