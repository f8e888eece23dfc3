"""Compact storage of user objects, which can have the size that the API server allows: a megabyte.

Layer: worlds/kubernetes. Thousands of them must fit in memory, and parsed they take ten times the
room. So an object that is not in use is kept as compressed text if that is small; otherwise it is
read again from the API server.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from asyncio import Semaphore
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trainrun.errors import InvalidSpec
from trainrun_operator.api.loading import read
from trainrun_operator.api.resources import M, Resource
from trainrun_operator.kube.api import WRITES_IN_FLIGHT

LARGEST = 512 * 1024
"""Maximum bytes of an object that is read, as compact JSON."""

KEPT, PACKED = 64 * 1024, 16 * 1024
"""Maximum bytes of an object that is kept: as text, and compressed."""

ROOM = 1024 * 1024
"""Maximum bytes of the objects whose parsed form is cached."""

Raw = Mapping[str, Any]
T = TypeVar("T")


class TooLarge(InvalidSpec):
    """The object has more than LARGEST bytes."""


def without_traceback(error: InvalidSpec) -> InvalidSpec:
    """A copy without traceback, whose frames would keep the object in memory."""
    kind = TooLarge if isinstance(error, TooLarge) else InvalidSpec
    return kind(str(error))


@dataclass(frozen=True, slots=True)
class TrimmedObject:
    """An object without the parts that a write of its status changes."""

    digest: bytes
    size: int
    """Bytes, including managedFields."""
    packed: bytes | None
    """The compressed text; None: it is too large to keep."""

    @property
    def raw(self) -> dict[str, Any] | None:
        """The object without status and resourceVersion; None: read it from the API server."""
        if self.packed is None:
            return None
        found: dict[str, Any] = json.loads(zlib.decompress(self.packed))
        return found

    def check_size(self) -> None:
        """Raises TooLarge."""
        if self.size > LARGEST:
            raise TooLarge(
                f"the object is too large: {self.size // 1024} KiB (limit {LARGEST // 1024} KiB). "
                "Move large parts of its template and its annotations into a ConfigMap or the "
                "image"
            )


def trimmed(raw: Raw) -> TrimmedObject:
    """The trimmed form of this object."""
    metadata = dict(raw["metadata"])
    metadata.pop("resourceVersion", None)
    others = _text(metadata.pop("managedFields", None))
    text = _text({**raw, "status": None, "metadata": metadata})
    packed = zlib.compress(text, 1) if len(text) <= KEPT else b""
    return TrimmedObject(
        digest=hashlib.sha256(text).digest(),
        size=len(text) + len(others),
        packed=packed if 0 < len(packed) <= PACKED else None,
    )


def written_spec(raw: Raw, resource: Resource[M]) -> M:
    """The object as its user wrote it. Raises InvalidSpec with every wrong field."""
    document = {key: value for key, value in raw.items() if key != "status"}
    return read(document, resource, source=_name(raw), stored=True)


def status_of(raw: Raw, status_from: Callable[[Raw], T]) -> T:
    """The status that an operator wrote. Raises InvalidSpec with every wrong field."""
    try:
        return status_from(raw.get("status") or {})
    except ValueError as error:
        raise InvalidSpec(
            f"{_name(raw)}: the status cannot be read; a newer operator may have written it: "
            f"{error}"
        ) from error


def _name(raw: Raw) -> str:
    metadata = raw.get("metadata", {})
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def _text(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="surrogatepass")


class RecentSpecs(Generic[T]):
    """Recently parsed objects by digest: a whole gang is made from one."""

    def __init__(self) -> None:
        self._specs: dict[bytes, tuple[int, T]] = {}
        self._small, self._large = Semaphore(WRITES_IN_FLIGHT), Semaphore(1)

    def turn(self, of: TrimmedObject) -> Semaphore:
        """Hold this while reading the object and creating a pod from it. Objects too large to keep
        share one turn: otherwise each of a thousand workers holds megabytes until its pod is
        written."""
        return self._small if of.packed is not None else self._large

    def get(self, of: TrimmedObject) -> T | None:
        """The cached parsed form, if any."""
        return self._specs.get(of.digest, (0, None))[1]

    def put(self, of: TrimmedObject, what: T) -> None:
        """Cache it, until newer ones need its room."""
        self._specs[of.digest] = (of.size, what)
        while len(self._specs) > 1 and sum(size for size, _ in self._specs.values()) > ROOM:
            del self._specs[next(iter(self._specs))]
