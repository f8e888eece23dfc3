"""Values as objects: pickled into a file or, if small, into the record; folders become a tar.

Layer: tasks. Arguments are pickled with the references in them; the task's process replaces these
by values. The caller checks an object's digest against the log before it is read here. In a task
the program's module is `__mp_main__`; elsewhere that is an alias of `__main__`.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import io
import os
import pickle
import reprlib
import stat
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from trainrun._common.text import shortened
from trainrun._process.excepthook import describe
from trainrun.contract.masking import masked
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun.tasks import keys
from trainrun.tasks.calls import ObjectRef
from trainrun.tasks.records import Output

INLINE = 64 << 10
"""Pickles up to this many bytes are stored in the record."""
PROTOCOL = 5
CHUNK = 1 << 20
_SHOWN, _SHOWN_EACH = 160, 60
"""Characters shown of a call and of one argument."""
MOST_ARGUMENTS = 64 << 20
"""Limit in bytes for the arguments of one call."""

sys.modules.setdefault("__mp_main__", sys.modules["__main__"])


@dataclass(frozen=True, slots=True)
class File:
    """A file for tasks to read: `tokenize.remote(tasks.File("shards/0001.jsonl"))`.

    Another address or version makes another call. The task reads the file where it runs, so every
    node must have a local file under the same path.
    """

    uri: str
    """A path, `file:///path`, or the address of an object in a store, such as `s3://bucket/key`."""
    version: str = ""
    """Identifies the content under this address. Default for a local file: its size and
    modification time. Required for an object in a store: its ETag, version id, or a digest."""

    def __post_init__(self) -> None:
        """Check a local file. Raises InvalidSpec if it does not exist."""
        if self.version:
            return
        try:
            found = self.path.stat()
        except OSError as error:
            raise InvalidSpec(f"tasks.File: cannot read {self.uri}: {error.strerror}") from error
        object.__setattr__(self, "version", f"{found.st_size}-{found.st_mtime_ns}")

    @property
    def path(self) -> Path:
        """Path of a local file. Raises InvalidSpec for an object in a store."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        if "://" not in self.uri:
            return Path(self.uri).absolute()
        raise InvalidSpec(
            f"tasks.File: TrainRun does not read {self.uri} itself. Give it a version (its ETag),"
            " and read .uri in the task with your own client"
        )


class Unpicklable(TrainRunError, TypeError):
    """A value cannot be pickled; the message says why."""


class Folder(type(Path())):  # type: ignore[misc]  # the class of this system's paths
    """A folder of files that a task returns. Do not change it afterwards: other tasks read it."""

    __module__ = "trainrun.tasks"

    def __reduce__(self) -> tuple[type[Path], tuple[str]]:
        """Pickle as a plain path, for processes that a task starts."""
        return Path, (str(self),)


class _ValuePickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Folder):
            raise Unpicklable(
                f"the folder {value} is part of another value, so other nodes would not get it. "
                "Return the folder by itself, as one of the results"
            )
        return NotImplemented


class _Digested:
    """A file that computes the digest of what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def write(self, data: bytes | memoryview | pickle.PickleBuffer) -> int:
        if isinstance(data, pickle.PickleBuffer):  # of a large array
            data = data.raw()
        self.hash.update(data)
        return self._file.write(data)


def keep_value(value: object, path: Path) -> Output:
    """Pickle a value: into the Output up to INLINE bytes, else into `path`.

    Raises Unpicklable, and OSError if the disk is full."""
    with path.open("wb") as file:
        written = _Digested(file)
        try:
            _ValuePickler(written, protocol=PROTOCOL).dump(value)
        except (OSError, MemoryError, Unpicklable):
            raise
        except Exception as error:  # __reduce__ may raise anything
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
    """Return the pickle stored in the record."""
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
    """Unpickle `(args, kwargs)`, replacing each reference at any depth by its value."""

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
    """Pack a folder into the tar `path`, with the same bytes for the same files on every node.

    Raises Unpicklable for what other nodes cannot have: a socket, a link out of the folder."""
    with path.open("wb") as file:
        written = _Digested(file)
        # A stream is never read or seeked.
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
            raise Unpicklable(f"{entry} is a link out of the folder, which other nodes do not have")
    else:
        raise Unpicklable(f"{entry} is neither a file, a folder nor a link")
    return info


def restore_folder(tar: Path, folder: Path) -> None:
    """Unpack a tar of `keep_folder` into a new folder. Files are read-only, since all tasks of the
    node share them; folders stay writable, so that a user can remove them."""
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


def dumps(value: object) -> tuple[bytes, tuple[ObjectRef, ...]]:
    """A pickle of the value, and each reference in it once, in order. Raises what pickle raises."""
    file = io.BytesIO()
    pickler = _ArgumentPickler(file)
    pickler.dump(value)
    return file.getvalue(), tuple(pickler.refs)


def packed(function: str, bound: inspect.BoundArguments) -> tuple[bytes, tuple[ObjectRef, ...]]:
    """A pickle of `(args, kwargs)`, and the references in it.

    Raises InvalidSpec, which names the argument, if one cannot be pickled.
    """
    try:
        data, refs = dumps((bound.args, bound.kwargs))
    except Exception as error:
        raise InvalidSpec(_unpicklable(function, bound, error)) from error
    if len(data) > MOST_ARGUMENTS:
        raise InvalidSpec(
            f"the arguments of {function} take {len(data):,} bytes, and the limit is"
            f" {MOST_ARGUMENTS:,}. Pass large values as references: tasks.put(value)"
        )
    return data, refs


def encoded_argument(of: str, value: object, unstable: set[str]) -> bytes:
    """The value as part of a key; see `keys.encoded`. Raises InvalidSpec, which names it."""
    try:
        return keys.encoded(value, unstable)
    except Exception as error:
        why = "it contains itself" if isinstance(error, RecursionError) else _described(error)
        raise InvalidSpec(f"{of} cannot be part of a key: {why}. Pass plain data") from error


def shown(function: str, bound: inspect.BoundArguments) -> str:
    """The call in short, for people: `tokenize('s3://a/0001')`; secrets are hidden."""
    named = (f"{name}={_SHORT.repr(value)}" for name, value in bound.arguments.items())
    # The parameter's name may mark a secret. An array's repr has several lines.
    given = (" ".join(masked(text).partition("=")[2].split()) for text in named)
    arguments = ", ".join(shortened(text, _SHOWN_EACH) for text in given)
    return f"{function}({shortened(arguments, _SHOWN)})"


def _unpicklable(function: str, bound: inspect.BoundArguments, error: Exception) -> str:
    for name, value in bound.arguments.items():
        try:
            dumps(value)
        except Unpicklable as why:
            return f"the argument {name} of {function}: {why}. Pass the task's reference instead"
        except Exception as why:  # noqa: BLE001 - the value's own code may raise anything
            return (
                f"the argument {name} of {function} cannot be pickled: {_described(why)}."
                " Pass what it is made from, and create it inside the task"
            )
    return f"the arguments of {function} cannot be pickled: {_described(error)}"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class _ArgumentPickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=PROTOCOL)
        self.refs: dict[ObjectRef, None] = {}

    def reducer_override(self, value: object) -> Any:
        if type(value) is ObjectRef:
            self.refs[value] = None
        if isinstance(value, Folder):
            raise Unpicklable(f"other nodes do not have the folder {value}")
        return NotImplemented


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 4 * _SHOWN_EACH
