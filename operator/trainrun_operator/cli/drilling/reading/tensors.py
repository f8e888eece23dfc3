"""Tensors in the files of `torch.save`, compared by their elements, without torch.

Layer: cli.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import IO, TYPE_CHECKING

from trainrun_operator.cli.drilling.reading.inert import PLAIN, Inert, read_pickles

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

SIZES = {"Double": 8, "Half": 2, "Long": 8, "Int": 4, "Short": 2, "ComplexFloat": 8}
SIZES |= {"Float": 4, "Char": 1, "Byte": 1, "Bool": 1, "BFloat16": 2, "ComplexDouble": 16}
"""Bytes of an element, by the name of the storage's class."""
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

    def crc(self, offset: int, size: int) -> int:
        """Of a part of it, which is never in memory as a whole."""
        found, end = 0, offset + size
        while offset < end:
            self.file.seek(self.begins + offset)
            chunk = self.file.read(min(CHUNK, end - offset))
            if not chunk:
                raise EOFError
            found, offset = zlib.crc32(chunk, found), offset + len(chunk)
        return found


@dataclass(frozen=True, slots=True)
class Tensor:
    """Elements of a storage. One that is not contiguous keeps its strides when it is loaded."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str

    def canonical(self) -> bytes:
        """See `Leaf`."""
        strides = () if _contiguous(self.shape, self.strides) else self.strides
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        elements = 1 + sum(reach) if all(self.shape) else 0
        width = _width(self.kind)
        crc = self.storage.crc(self.offset * width, elements * width)
        return f"tensor {self.kind} {self.shape} {strides} {crc}".encode()


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


def _begins(file: IO[bytes], member: ZipInfo) -> int:
    """Where the bytes of a member that is not compressed begin."""
    file.seek(member.header_offset + 26)
    name, extra = struct.unpack("<HH", file.read(4))
    return int(member.header_offset + 30 + name + extra)
