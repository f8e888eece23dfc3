"""Read pickles and files of `torch.save` without torch and without running their code: each class
or function that a pickle names becomes a record of its arguments. Tensors are compared by their
elements.

Layer: cli.
"""

from __future__ import annotations

import pickle
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import IO, Any
from zipfile import ZipFile, ZipInfo


class Ordered(dict[object, object]):
    """In place of an OrderedDict: a state_dict also has attributes, which mean nothing here."""


PLAIN: dict[str, Callable[..., object]] = {
    "collections.OrderedDict": Ordered,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "__builtin__.set": set,
    "__builtin__.frozenset": frozenset,
}
"""Classes that only hold their arguments."""


class Inert:
    """In place of an object of any class, or of the result of any function."""

    NAME = ""

    def __new__(cls, *args: object, **_named: object) -> Inert:
        """Record the arguments."""
        made = object.__new__(cls)
        made.args, made.state, made.added, made.items = args, None, [], {}
        return made

    args: tuple[object, ...]
    added: list[object]
    """Items added as to a list."""
    items: dict[object, object]
    """Items set as in a dict."""
    state: object

    def __init__(self, *_args: object, **_named: object) -> None:
        """`__new__` does everything, since a pickle may call it alone."""

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.items[key] = value

    def append(self, value: object) -> None:
        """As a list does."""
        self.added.append(value)

    add = append


@cache
def inert(name: str) -> type[Inert]:
    """The stand-in for this class or function."""
    return type(name, (Inert,), {"NAME": name})


def read_pickles(
    file: IO[bytes],
    *,
    size: int,
    persistent: Callable[[Any], object] | None = None,
    callables: Mapping[str, Callable[..., object]] = PLAIN,
) -> Iterator[object]:
    """The values of a file that holds only pickles; `persistent`: returns the object stored outside
    under an id; `callables`: classes and functions that are really called, by name. Raises the
    errors of a damaged file, and UnpicklingError for an object stored outside if `persistent` is
    None."""

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Callable[..., object]:
            full = f"{module}.{name}"
            return callables.get(full) or inert(full)

        def persistent_load(self, pid: object) -> object:
            if persistent is None:
                raise pickle.UnpicklingError(f"an object outside the pickle: {pid!s:.40}")
            return persistent(pid)

    while file.tell() < size:
        yield Reader(file).load()


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
        """Equal for equal elements."""
        return b"storage %d %d" % (self.size, self.crc(0, self.size))

    def crc(self, offset: int, size: int) -> int:
        """Checksum of a part of it, which is never in memory as a whole."""
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
        """Equal for equal tensors."""
        strides = () if _contiguous(self.shape, self.strides) else self.strides
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        elements = 1 + sum(reach) if all(self.shape) else 0
        width = _width(self.kind)
        crc = self.storage.crc(self.offset * width, elements * width)
        return f"tensor {self.kind} {self.shape} {strides} {crc}".encode()


def read_torch(file: IO[bytes], archive: ZipFile, pickled: ZipInfo) -> Iterator[object]:
    """The values of a file of `torch.save`. Raises the errors of a damaged file."""
    root = pickled.filename.removesuffix("data.pkl")

    def storage(pid: tuple[str, type[Inert], str, str, int]) -> Storage:
        member = archive.getinfo(f"{root}data/{pid[2]}")
        if member.compress_type:
            raise pickle.UnpicklingError("a compressed member, which torch never writes")
        kind = pid[1].NAME.rpartition(".")[2].removesuffix("Storage")
        return Storage(file, _begins(file, member), member.file_size, kind)

    with archive.open(pickled) as inner:
        callables = {**PLAIN, **REBUILT}
        yield from read_pickles(
            inner, size=pickled.file_size, persistent=storage, callables=callables
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
