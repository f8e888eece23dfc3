"""Opens a store by its address; reads and writes the objects of one generation of a run there.

Layer: between `ObjectStore` (bytes) and the rules. Keys given to a `RunStore` are relative to the
run's folder, `<uri>/<runName>/`, or to the folder of a later generation below it, which has the
same layout.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from trainrun.checkpoint.records import (
    AttemptRecord,
    DoneMarker,
    Manifest,
    add_checksum,
    read_checksummed,
)
from trainrun.checkpoint.selection import Folder, Resumes, group
from trainrun.checkpoint.stores.file import FileStore
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged, ObjectNotFound, StoreMisconfigured, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainrun.checkpoint.selection import ObjectInfo
    from trainrun.checkpoint.stores.store import BrowsableStore, ObjectStore

T = TypeVar("T")

READERS = 8
"""Small objects read in parallel: enough to hide the latency of a distant store."""


def open_store(
    uri: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    keys: Mapping[str, str] | None = None,
    largest: int | None = None,
) -> BrowsableStore:
    """Return the store for `file:///absolute/path`, `s3://bucket/prefix`, `gs://bucket/prefix` or
    `az://container/prefix`, without I/O.

    `endpoint_url` is not for files, `region` and `keys` (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)
    are for s3 only; absent, each client's sources decide. `largest`, for s3 only: bytes of an
    object that `get` reads; None: no limit.
    Raises StoreMisconfigured for any other address, and where the client is not installed.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise StoreMisconfigured(f"{uri}: a file URI is file:///absolute/path (three slashes)")
        return FileStore(Path(unquote(parts.path)), uri=uri.rstrip("/"))
    if parts.scheme not in ("s3", "gs", "az"):
        raise StoreMisconfigured(
            f"{uri}: only file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix and "
            "az://container/prefix are supported"
        )
    if not parts.netloc:
        raise StoreMisconfigured(
            f"{uri}: the bucket is missing; write {parts.scheme}://bucket/prefix"
        )
    prefix = uri.split("://", 1)[1].partition("/")[2].strip("/")
    # Imported here: boto3 takes 0.1 s to load, and not every image has obstore.
    if parts.scheme == "s3":
        from trainrun.checkpoint.stores.s3 import S3Store  # noqa: PLC0415

        return S3Store(
            parts.netloc,
            prefix,
            uri=uri.rstrip("/"),
            endpoint_url=endpoint_url,
            region=region,
            keys=keys,
            largest=largest,
        )
    try:
        from trainrun.checkpoint.stores.cloud import CloudStore  # noqa: PLC0415
    except ImportError as error:
        raise StoreMisconfigured(
            f"{uri}: {parts.scheme}:// needs the package obstore, which cannot be imported here "
            f"({error}). Install it in the image or on this machine: pip install 'trainrun[stores]'"
        ) from error
    return CloudStore(
        parts.scheme, parts.netloc, prefix, uri=uri.rstrip("/"), endpoint_url=endpoint_url
    )


@dataclass(frozen=True, slots=True)
class RunStore:
    """The folder of a run, or of one of its later generations, in a store."""

    store: ObjectStore
    run_name: str
    """Name of the run's folder below the store's URI."""
    generation: int = 1

    @property
    def folder_name(self) -> str:
        """The folder, relative to the store's URI; unique in the store."""
        return layout.generation_folder(self.run_name, self.generation)

    @property
    def uri(self) -> str:
        """Address of the folder."""
        return layout.run_uri(self.store.uri, self.folder_name)

    def key(self, key: str) -> str:
        """The store's key for a key of this run."""
        return f"{self.folder_name}/{key}"

    def objects(self, prefix: str) -> list[ObjectInfo]:
        """Everything below `prefix`, with keys relative to the run."""
        start = len(self.folder_name) + 1
        return [replace(item, key=item.key[start:]) for item in self.store.list(self.key(prefix))]

    def read(self, cls: type[T], key: str) -> T:
        """Read a record. Raises ObjectNotFound, or CheckpointDamaged where it is unreadable."""
        return read_checksummed(cls, self.store.get(self.key(key)), name=key)

    def find(self, cls: type[T], key: str) -> T | None:
        """Read a record; None where it is absent or unreadable."""
        with contextlib.suppress(CheckpointDamaged, ObjectNotFound):
            return self.read(cls, key)
        return None

    def find_all(self, cls: type[T], keys: Iterable[str]) -> dict[str, T]:
        """Read many records in parallel, by key in this order; unreadable ones are left out."""
        wanted = list(keys)
        with ThreadPoolExecutor(READERS) as pool:
            found = pool.map(lambda key: self.find(cls, key), wanted)
            return {
                key: record for key, record in zip(wanted, found, strict=True) if record is not None
            }

    def write_once(self, key: str, record: object) -> bool:
        """Write a record unless one exists; True when the store now holds exactly this record."""
        return self.put_once(key, add_checksum(record))

    def put_once(self, key: str, data: bytes) -> bool:
        """The same for a record that already has its checksum."""
        return self.store.put_if_absent(self.key(key), data)

    def overwrite(self, key: str, record: object) -> None:
        """Write a record, replacing any that exists."""
        self.store.put(self.key(key), add_checksum(record))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects of this run."""
        self.store.delete([self.key(key) for key in keys])

    def numbers(self, prefix: str) -> list[int]:
        """The numbers of the records below `prefix`, ascending."""
        numbers = (layout.read_number(item.key) for item in self.objects(prefix))
        return sorted(number for number in numbers if number is not None)

    def attempts(self) -> list[int]:
        """The numbers of all claimed attempts, ascending."""
        return self.numbers(layout.ATTEMPTS)

    def resumes(self, attempts: Iterable[int]) -> Resumes:
        """The checkpoint that each of these attempts started from, without unreadable records."""
        return {record.attempt: record.resume for record in self.claims(attempts)}

    def claims(self, attempts: Iterable[int]) -> list[AttemptRecord]:
        """The records of these attempts; unreadable ones are left out."""
        # An unreadable fence fences nothing: the checkpoints behind it are complete anyway.
        found = self.find_all(AttemptRecord, map(layout.attempt_key, attempts))
        return [
            record for key, record in found.items() if key == layout.attempt_key(record.attempt)
        ]

    def folders(self) -> dict[CheckpointId, Folder]:
        """All checkpoints that the listing shows."""
        return group(self.objects(layout.CHECKPOINTS))

    def folder(self, checkpoint: CheckpointId) -> Folder:
        """One checkpoint as the listing shows it."""
        found = group(self.objects(layout.folder(checkpoint)))
        return found.get(checkpoint, Folder(id=checkpoint, sizes={}, modified=0.0))

    def bad(self) -> set[CheckpointId]:
        """The checkpoints that were set aside."""
        names = (
            item.key.removeprefix(layout.BAD).removesuffix(".json")
            for item in self.objects(layout.BAD)
        )
        found = (CheckpointId.named(name) for name in names)
        return {checkpoint for checkpoint in found if checkpoint is not None}

    def is_bad(self, checkpoint: CheckpointId) -> bool:
        """Whether a checkpoint was set aside, even if the listing does not show it yet."""
        try:
            self.store.get(self.key(layout.bad_key(checkpoint)))
        except ObjectNotFound:
            return False
        return True

    def damage(self, folder: Folder, manifest: Manifest) -> str | None:
        """The damage of a checkpoint as object and reason; None: no damage.

        Listings may be late, so damage that a listing shows is checked again by name.
        """
        if manifest.id != folder.id:
            return f"{layout.MANIFEST}: it belongs to {manifest.id.name}"
        for item in manifest.files:
            name = layout.file_name(item.worker, item.name)
            if folder.sizes.get(name) == item.size:
                continue
            there = self.store.size(self.key(layout.folder(folder.id) + name))
            if there is None:
                return f"{name}: missing"
            if there != item.size:
                return f"{name}: {there} bytes, should be {item.size}"
        return None

    def incomplete_listing(self, key: str) -> StoreUnavailable:
        """The error for an object that exists but is missing from the listing."""
        return StoreUnavailable(
            f"{self.uri}/{key} exists but the listing does not show it: the store's listing is "
            "incomplete"
        )

    def manifest(self, checkpoint: CheckpointId) -> Manifest:
        """Read a checkpoint's manifest. Raises ObjectNotFound or CheckpointDamaged."""
        data = self.store.get(self.key(layout.folder(checkpoint) + layout.MANIFEST))
        return read_checksummed(Manifest, data, name=layout.MANIFEST)

    def markers(self, folder: Folder) -> list[DoneMarker]:
        """Read all done markers of a checkpoint. Raises ObjectNotFound or CheckpointDamaged."""
        keys = [layout.folder(folder.id) + layout.marker_name(w) for w in sorted(folder.done)]
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda key: self.read(DoneMarker, key), keys))
