"""Values as objects: pickled into a file or, small, into the record; folders as a tar.

Layer: tasks. Whoever fetches an object compares its digest with the log's before it is read here.
In a task the program's module is `__mp_main__`; elsewhere that is another name of `__main__`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import pickle
import stat
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from trainrun._process.excepthook import describe
from trainrun.errors import TrainRunError
from trainrun.tasks.ends import Output
from trainrun.tasks.refs import ObjectRef

INLINE = 64 << 10
"""Bytes of a pickle up to which it stands in the record itself."""
PROTOCOL = 5
CHUNK = 1 << 20

sys.modules.setdefault("__mp_main__", sys.modules["__main__"])


class Unpicklable(TrainRunError, TypeError):
    """A value cannot be pickled; the message says why."""


class Folder(type(Path())):  # type: ignore[misc]  # the class of this system's paths
    """A folder of files that a task returns. Do not change it afterwards: others read the same."""

    __module__ = "trainrun.tasks"

    def __reduce__(self) -> tuple[type[Path], tuple[str]]:
        """A path like any other, for the processes that a task starts itself."""
        return Path, (str(self),)


class _ValuePickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Folder):
            raise Unpicklable(
                f"the folder {value} is part of another value: other nodes do not have it. "
                "Return the folder by itself, as one of the results"
            )
        return NotImplemented


class _Digested:
    """A file that knows the digest of what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def write(self, data: bytes | memoryview | pickle.PickleBuffer) -> int:
        if isinstance(data, pickle.PickleBuffer):  # of a large array
            data = data.raw()
        self.hash.update(data)
        return self._file.write(data)


def keep_value(value: object, path: Path) -> Output:
    """Pickle a value: into `path` where it is larger than INLINE, else into the Output itself.

    Raises Unpicklable, and OSError where the disk is full."""
    with path.open("wb") as file:
        written = _Digested(file)
        try:
            _ValuePickler(written, protocol=PROTOCOL).dump(value)
        except (OSError, MemoryError, Unpicklable):
            raise
        except Exception as error:  # __reduce__ may raise whatever it likes
            raise Unpicklable(
                f"a value of type {type(value).__qualname__} cannot be pickled: "
                f"{describe(type(error), error)}"
            ) from error
    size, inline = path.stat().st_size, ""
    if size <= INLINE:
        inline = base64.b64encode(path.read_bytes()).decode()
        path.unlink()
    return Output(digest=written.hash.hexdigest(), size=size, inline=inline)


def inline_of(output: Output) -> bytes:
    """Return the pickle that stands in the record."""
    return base64.b64decode(output.inline)


def load_value(data: bytes | Path) -> object:
    """Return the value of an inline pickle, of an object's file, or of a restored folder."""
    if isinstance(data, bytes):
        return pickle.loads(data)
    if data.is_dir():
        return Folder(data)
    with data.open("rb") as file:
        return pickle.load(file)


def load_arguments(
    data: bytes, value_of: Callable[[str, int], object]
) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """Unpickle `(args, kwargs)` with the value in the place of each reference, however deep."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            found = super().find_class(module, name)
            return value_of if found is ObjectRef else found

    args, kwargs = Unpickler(io.BytesIO(data)).load()
    return args, kwargs


def digest_of(path: Path) -> str:
    """Return the sha256 of a file, as hex."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


def keep_folder(folder: Path, path: Path) -> Output:
    """Pack a folder into the tar `path`: the same bytes for the same files, on every node.

    Raises Unpicklable where it holds what no other node could have: a socket, a link out of it."""
    with path.open("wb") as file:
        written = _Digested(file)
        # A stream is only ever written to.
        with tarfile.open(fileobj=written, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            for entry in sorted(folder.rglob("*")):
                info = _member(folder, entry)
                if info.isreg():
                    with entry.open("rb") as content:
                        tar.addfile(info, content)
                else:
                    tar.addfile(info)
    return Output(digest=written.hash.hexdigest(), size=path.stat().st_size, kind="Folder")


def _member(folder: Path, entry: Path) -> tarfile.TarInfo:
    info = tarfile.TarInfo(str(entry.relative_to(folder)))  # no time, no owner
    status = entry.lstat()
    info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    if stat.S_ISREG(status.st_mode):
        info.size = status.st_size
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, str(entry.readlink())
        target = Path(os.path.normpath(Path(info.name).parent / info.linkname))
        if target.is_absolute() or target.parts[:1] == ("..",):
            raise Unpicklable(f"{entry} is a link out of the folder: other nodes do not have it")
    else:
        raise Unpicklable(f"{entry} is neither a file, a folder nor a link")
    return info


def restore_folder(tar: Path, folder: Path) -> None:
    """Unpack what `keep_folder` has packed into a new folder. Its files are read-only: all tasks of
    the node share them; folders stay writable, so that a person can remove them."""
    folder.mkdir(parents=True)
    with tarfile.open(tar, "r:") as packed:
        for info in packed:
            path = folder / info.name
            if ".." in path.parts or Path(info.name).is_absolute():
                raise ValueError(f"{tar}: {info.name} is outside of the folder")
            if info.isdir():
                path.mkdir()
            elif info.issym():
                path.symlink_to(info.linkname)
            else:
                packed.makefile(info, path)
                path.chmod(info.mode & ~0o222)
