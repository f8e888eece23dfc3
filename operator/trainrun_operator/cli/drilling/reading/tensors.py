"""Tensors in the files of `torch.save`, compared by their elements, without torch.

Layer: cli.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import IO, TYPE_CHECKING, Literal

from trainrun_operator.cli.drilling.reading.inert import PLAIN, Inert, read_pickles

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

SIZES = {"Double": 8, "Half": 2, "Long": 8, "Int": 4, "Short": 2, "ComplexFloat": 8}
SIZES |= {"Float": 4, "Char": 1, "Byte": 1, "Bool": 1, "BFloat16": 2, "ComplexDouble": 16}
"""Bytes of an element, by the name of the storage's class."""
FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class Storage:
    """The elements that some tensors share."""

    file: IO[bytes]
    begins: int
    size: int
    kind: str
    """Name of its class, or of the elements' dtype."""

    def canonical(self) -> bytes:
        """See `Leaf`."""
        return b"storage %d %d" % (self.size, self.crc(0, self.size))

    def read(self, offset: int, size: int) -> bytes:
        """A part of it."""
        self.file.seek(self.begins + offset)
        return self.file.read(size)

    def crc(self, offset: int, size: int) -> int:
        """Of a part of it, which is never in memory as a whole."""
        found, end = 0, offset + size
        while offset < end:
            chunk = self.read(offset, min(CHUNK, end - offset))
            if not chunk:
                raise EOFError
            found, offset = zlib.crc32(chunk, found), offset + len(chunk)
        return found


@dataclass(frozen=True, slots=True)
class Tensor:
    """Elements of a storage, in the order of its strides."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str

    def canonical(self) -> bytes:
        """See `Leaf`."""
        width = _width(self.kind)
        if _contiguous(self.shape, self.strides):
            crc = self.storage.crc(self.offset * width, math.prod(self.shape) * width)
        else:
            crc = 0
            elements = memoryview(self.storage.read(0, self.storage.size)).cast(FORMATS[width])
            for row in _rows(elements, self.offset, self.shape, self.strides):
                crc = zlib.crc32(row, crc)
        return f"tensor {self.kind} {self.shape} {crc}".encode()


def read_torch(file: IO[bytes], archive: ZipFile, pickled: ZipInfo) -> Iterator[object]:
    """What a file of `torch.save` holds. Raises what a damaged one raises."""
    root = pickled.filename.removesuffix("data.pkl")

    def storage(pid: tuple[str, type[Inert], str, str, int]) -> Storage:
        member = archive.getinfo(f"{root}data/{pid[2]}")
        if member.compress_type:
            raise UnpicklingError("torch never compresses")
        kind = pid[1].NAME.rpartition(".")[2].removesuffix("Storage")
        return Storage(file, _begins(file, member), member.file_size, kind)

    with archive.open(pickled) as pickle:
        yield from read_pickles(
            pickle, size=pickled.file_size, persistent=storage, known={**PLAIN, **REBUILT}
        )


def _tensor(
    storage: Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    _gradient: object = None,
    _hooks: object = None,
    dtype: type[Inert] | None = None,
    *_more: object,
) -> Tensor:
    kind = dtype.NAME.rpartition(".")[2] if dtype is not None else storage.kind
    return Tensor(storage, offset, tuple(shape), tuple(strides), kind)


REBUILT: dict[str, Callable[..., object]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": lambda tensor, *_more: tensor,
}


def _width(kind: str) -> int:
    """Bytes of an element."""
    bits = re.search(r"\d+", kind)
    return SIZES[kind] if kind in SIZES else int(bits[0]) // 8 if bits else 1


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return 0 in shape
        expected *= length
    return True


def _rows(
    elements: memoryview, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Iterator[bytes]:
    """The elements in the order of their indices, one innermost row at a time."""
    length, stride = shape[0], strides[0]
    if len(shape) > 1:
        for index in range(length):
            yield from _rows(elements, offset + index * stride, shape[1:], strides[1:])
    elif stride:
        yield elements[offset : offset + (length - 1) * stride + 1 : stride].tobytes()
    else:
        yield elements[offset : offset + 1].tobytes() * length


def _begins(file: IO[bytes], member: ZipInfo) -> int:
    """Where the bytes of a member that is not compressed begin."""
    file.seek(member.header_offset + 26)
    name, extra = struct.unpack("<HH", file.read(4))
    return int(member.header_offset + 30 + name + extra)
