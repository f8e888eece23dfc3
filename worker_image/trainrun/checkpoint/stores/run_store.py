"""The part of a store that belongs to one generation of a run: `<uri>/<runName>/`, and its records.

Layer: between `ObjectStore` (bytes) and the rules. Keys given here are relative to the run's
folder, or to that of a later generation below it, which is like a run's own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from trainrun.checkpoint.rules.records import AttemptRecord, DoneMarker, Manifest, seal, unseal
from trainrun.checkpoint.rules.selection import Folder, Resumes, damage, group, wrong_size
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged, ObjectNotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainrun.checkpoint.rules.listing import ObjectInfo
    from trainrun.checkpoint.stores.store import ObjectStore

T = TypeVar("T")

READERS = 8
"""Small objects read at once: enough to hide the latency of a distant store."""


@dataclass(frozen=True, slots=True)
class RunStore:
    """The folder of a run in a store, or of one of its later generations."""

    store: ObjectStore
    run_name: str
    """Name of the run's folder below the store's URI."""
    generation: int = 1

    @property
    def folder_name(self) -> str:
        """The folder, relative to the store's URI: what tells this one from every other."""
        return layout.generation_folder(self.run_name, self.generation)

    @property
    def uri(self) -> str:
        """Address of the folder."""
        return layout.run_uri(self.store.uri, self.folder_name)

    def key(self, key: str) -> str:
        """The store's key for a key of this run."""
        return f"{self.folder_name}/{key}"

    def checkpoint_uri(self, checkpoint: CheckpointId) -> str:
        """Address of a checkpoint's folder."""
        return layout.checkpoint_uri(self.uri, checkpoint)

    def objects(self, prefix: str) -> list[ObjectInfo]:
        """Everything below `prefix`, with keys relative to the run."""
        start = len(self.folder_name) + 1
        return [replace(item, key=item.key[start:]) for item in self.store.list(self.key(prefix))]

    def read(self, cls: type[T], key: str) -> T:
        """Read a record. Raises ObjectNotFound, or CheckpointDamaged where it is not readable."""
        return unseal(cls, self.store.get(self.key(key)), name=key)

    def write_once(self, key: str, record: object) -> bool:
        """Write a record where none is; True when exactly this record stands there now."""
        return self.put_once(key, seal(record))

    def put_once(self, key: str, data: bytes) -> bool:
        """The same with a record that is sealed already."""
        return self.store.put_if_absent(self.key(key), data)

    def overwrite(self, key: str, record: object) -> None:
        """Write a record over whatever is there."""
        self.store.put(self.key(key), seal(record))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects of this run."""
        self.store.delete([self.key(key) for key in keys])

    def attempts(self) -> list[int]:
        """The numbers of all attempts that were claimed, ascending."""
        numbers = (layout.read_number(item.key) for item in self.objects(layout.ATTEMPTS))
        return sorted(number for number in numbers if number is not None)

    def resumes(self, attempts: Iterable[int]) -> Resumes:
        """What each of these attempts started from; unreadable records are left out."""
        return {record.attempt: record.resume for record in self.claims(attempts)}

    def claims(self, attempts: Iterable[int]) -> list[AttemptRecord]:
        """The records of these attempts; unreadable ones are left out."""
        wanted = list(attempts)
        if len(wanted) == 1:
            records = [self._attempt(wanted[0])]
        else:
            with ThreadPoolExecutor(READERS) as pool:
                records = list(pool.map(self._attempt, wanted))
        return [record for record in records if record is not None]

    def _attempt(self, attempt: int) -> AttemptRecord | None:
        try:
            record = self.read(AttemptRecord, layout.attempt_key(attempt))
        except (CheckpointDamaged, ObjectNotFound):
            # A fence that cannot be read is left open: what lies behind it is whole all the same.
            return None
        return record if record.attempt == attempt else None

    def folders(self) -> dict[CheckpointId, Folder]:
        """All checkpoints that the listing shows."""
        return group(self.objects(layout.CHECKPOINTS))

    def folder(self, checkpoint: CheckpointId) -> Folder:
        """What the listing shows of one checkpoint."""
        found = group(self.objects(layout.folder(checkpoint)))
        return found.get(checkpoint, Folder(id=checkpoint, sizes={}))

    def bad(self) -> set[CheckpointId]:
        """The checkpoints that were set aside."""
        names = (
            item.key.removeprefix(layout.BAD).removesuffix(".json")
            for item in self.objects(layout.BAD)
        )
        found = (CheckpointId.named(name) for name in names)
        return {checkpoint for checkpoint in found if checkpoint is not None}

    def is_bad(self, checkpoint: CheckpointId) -> bool:
        """Whether a checkpoint was set aside, whatever the listing shows yet."""
        try:
            self.store.get(self.key(layout.bad_key(checkpoint)))
        except ObjectNotFound:
            return False
        return True

    def damage(self, folder: Folder, manifest: Manifest) -> str | None:
        """What is wrong with a checkpoint, object and reason; None: nothing.

        What the listing shows to be wrong is asked for by its name, since listings may be late.
        """
        shown = damage(folder, manifest)
        if shown is None or manifest.id != folder.id:
            return shown
        names = {layout.file_name(item.worker, item.name): item.size for item in manifest.files}
        doubtful = (name for name, size in names.items() if folder.sizes.get(name) != size)
        found = (
            wrong_size(
                name, self.store.size(self.key(layout.folder(folder.id) + name)), names[name]
            )
            for name in doubtful
        )
        return next(filter(None, found), None)

    def incomplete_listing(self, key: str) -> StoreUnavailable:
        """What is raised where the listing does not show an object that is there."""
        return StoreUnavailable(
            f"{self.uri}/{key} exists but the listing does not show it: the store's listing is "
            "incomplete"
        )

    def manifest(self, checkpoint: CheckpointId) -> Manifest:
        """Read a checkpoint's manifest. Raises ObjectNotFound or CheckpointDamaged."""
        data = self.store.get(self.key(layout.folder(checkpoint) + layout.MANIFEST))
        return unseal(Manifest, data, name=layout.MANIFEST)

    def markers(self, folder: Folder) -> list[DoneMarker]:
        """Read all done markers of a checkpoint. Raises ObjectNotFound or CheckpointDamaged."""
        keys = [layout.folder(folder.id) + layout.marker_name(w) for w in sorted(folder.done)]
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda key: self.read(DoneMarker, key), keys))
