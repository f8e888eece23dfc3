"""What is kept of an object that its user may make as large as the API server takes: a megabyte.

Layer: worlds/kubernetes. Thousands of them have to fit, whoever has written them, and parsed they
take ten times the room. So an object that is not needed now is kept as packed text where that is
small, and read again from the API server where it is not.
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
"""Bytes of an object that is read, as compact JSON."""

KEPT, PACKED = 64 * 1024, 16 * 1024
"""Bytes of an object that is kept: at most so many, and packed so many."""

ROOM = 1024 * 1024
"""Bytes of the objects of which a parsed form is kept."""

Raw = Mapping[str, Any]
T = TypeVar("T")


class TooLarge(InvalidSpec):
    """The object has more than LARGEST bytes."""


def without_traceback(error: InvalidSpec) -> InvalidSpec:
    """The same to be kept: the frames of its traceback hold the object that it is about."""
    kind = TooLarge if isinstance(error, TooLarge) else InvalidSpec
    return kind(str(error))


@dataclass(frozen=True, slots=True)
class TrimmedObject:
    """All of an object that a write of its status leaves as it is."""

    digest: bytes
    size: int
    """Bytes; those of managedFields among them."""
    packed: bytes | None
    """None: it is too large to be kept."""

    @property
    def raw(self) -> dict[str, Any] | None:
        """The object without status and resourceVersion; None: the API server has to be asked."""
        if self.packed is None:
            return None
        found: dict[str, Any] = json.loads(zlib.decompress(self.packed))
        return found

    def check_size(self) -> None:
        """Raises TooLarge."""
        if self.size > LARGEST:
            raise TooLarge(
                f"the object has {self.size // 1024} KiB, and more than {LARGEST // 1024} KiB are "
                "not read: take what is large out of its template and its annotations, into a "
                "ConfigMap or the image"
            )


def trimmed(raw: Raw) -> TrimmedObject:
    """Of this object."""
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
    """What its user has written. Raises InvalidSpec with every field that is wrong."""
    document = {key: value for key, value in raw.items() if key != "status"}
    return read(document, resource, source=_name(raw), stored=True)


def status_of(raw: Raw, status_from: Callable[[Raw], T]) -> T:
    """What an operator has written. Raises InvalidSpec with every field that is wrong."""
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
    """What was read from such objects of late, by their digests: a gang is made from one."""

    def __init__(self) -> None:
        self._specs: dict[bytes, tuple[int, T]] = {}
        self._small, self._large = Semaphore(WRITES_IN_FLIGHT), Semaphore(1)

    def turn(self, of: TrimmedObject) -> Semaphore:
        """To be held while something is read and made from it. What is not kept has one for all,
        since each of a thousand workers would hold megabytes until its pod is written."""
        return self._small if of.packed is not None else self._large

    def get(self, of: TrimmedObject) -> T | None:
        """What was read from it."""
        return self._specs.get(of.digest, (0, None))[1]

    def put(self, of: TrimmedObject, what: T) -> None:
        """Keep it, until newer ones take its room."""
        self._specs[of.digest] = (of.size, what)
        while len(self._specs) > 1 and sum(size for size, _ in self._specs.values()) > ROOM:
            del self._specs[next(iter(self._specs))]
