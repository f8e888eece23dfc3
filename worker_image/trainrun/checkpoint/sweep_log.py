"""A sweep's log in its folder: read on, written by whoever is first, folded as it is read.

Layer: above `RunStore`. Invariants: record n is written only by somebody who has read all before
it, and only where none is; a log that has a hole, or a record that cannot be read, is never
guessed at.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from trainrun.checkpoint.rules.records import seal, unseal
from trainrun.checkpoint.stores.run_store import READERS
from trainrun.checkpoint.sweep_volumes import VOLUME, Binder, parts, read_volume, volumes_among
from trainrun.contract import layout
from trainrun.errors import CheckpointDamaged, ObjectNotFound, SweepLogDamaged
from trainrun.sweep.clerk import next_record
from trainrun.sweep.fold import apply
from trainrun.sweep.records import Ask, End, LogEntry, Record
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.stopping import Judging
from trainrun.sweep.view import SweepView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainrun.checkpoint.stores.run_store import RunStore
    from trainrun.sweep.clerk import Suggest
    from trainrun.sweep.records import TrialReport
    from trainrun.sweep.search import Search
    from trainrun.sweep.targets import Targets

IN_A_ROW = 16
"""Records that a thread reads in a row: to hand one over costs more than to read it from a disk."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record of the log."""

    record: Record
    data: bytes
    """As it stands in the store."""
    bound: bool = False
    """It is the last one of a volume."""


@dataclass
class SweepLog:
    """The log in the folder of a sweep, as far as this process has read it."""

    folder: RunStore
    view: SweepView = field(default_factory=SweepView)
    """What it says so far."""
    suggest: Suggest = by_chance
    """Chooses parameters."""
    judging: Judging = field(default_factory=Judging)
    """Which reports were judged."""
    on_record: Callable[[Record], None] = lambda _record: None
    """Is told of each, in order, once the view knows it."""
    volume: int = VOLUME
    """Records that are copied into one object, for whoever reads them all."""

    def __post_init__(self) -> None:
        self._binder = Binder(self.folder, self.volume)

    def read_on(self) -> SweepView:
        """Everything that stands in the log now. Raises StoreError, SweepLogDamaged."""
        if self.view.position == 0:
            # All of them before the first is taken: who asks again must not find a log that ends
            # where the hole is.
            for listed in tuple(self._listed()):
                self._take(listed)
        # A listing may be late; what is asked for by its name is there or not.
        while (data := self._get(position := self.view.position + 1)) is not None:
            self._take(StoredRecord(self._unsealed(position, data), data))
        return self.view

    def read_before_damage(self) -> SweepLogDamaged | None:
        """What stands before the first record that is missing or damaged: for whoever saves
        results, and never to be written after. Returns what is wrong there; None: nothing is.
        Raises StoreError."""
        try:
            for listed in self._listed():
                self._take(listed)
            self.read_on()
        except SweepLogDamaged as damage:
            return damage
        return None

    def append(self, record: Record) -> bool:
        """Write the next record; False: somebody was faster, or nothing is known of who was.

        Raises StoreError: then it may have been written all the same.
        """
        if isinstance(record, End):
            self._check_kept()
        if isinstance(record, Ask):
            record = replace(record, first=self._unused(record.trial))
        key, entry = layout.sweep_record_key(self.view.position + 1), LogEntry(record)
        if not self.folder.write_once(key, entry):
            return False
        self._take(StoredRecord(record, seal(entry)))
        self._binder.bind()
        return True

    def settle(
        self,
        targets: Targets,
        search: Search,
        *,
        active: float = 0.0,
        stored: tuple[TrialReport, ...] = (),
    ) -> SweepView:
        """Write all that the targets want; see `trainrun.sweep.clerk.next_record`.

        Raises StoreError, SweepLogDamaged.
        """
        counted = self.read_on().counted_at
        while True:
            # Work is counted once, by whoever is first.
            left = active if self.view.counted_at == counted else 0.0
            record = next_record(
                self.view,
                targets,
                search,
                active=left,
                stored=stored,
                suggest=self.suggest,
                judging=self.judging,
            )
            if record is None:
                return self.view
            if not self.append(record):
                self.read_on()

    def _check_kept(self) -> None:
        """No search ends on a log that somebody has taken away: what was written since lies in a
        new folder, without its beginning, and nobody can read it.

        The first and the newest one tell: others may have been written since."""
        for position in (1, self.view.position):
            if self.view.position and self._get(position) is None:
                raise self._damaged(position, "it was there, and is gone")

    def _unused(self, trial: int) -> int:
        """The first incarnation of which a trial with this number can have the folder, and the
        first opening of which no run was begun: 1, but where the log has lost the records of a
        trial that was asked before, with parameters that nobody knows any more."""
        first, claims, looked = 1, 0, 0
        while looked < first:
            looked += 1
            found = self.folder.objects(f"{layout.sweep_trial_folder(trial, looked)}/")
            # Each opening that was begun has claimed a folder, some more than once.
            claims += sum(f"/{layout.OWNERS}" in it.key and ".json" in it.key for it in found)
            if found:
                first = max(looked, claims) + 1
        return first

    def _check_begun(self) -> None:
        """Folders of trials without a log: their checkpoints and values are those of parameters
        that nobody knows any more, and a new log would give them to others."""
        first = f"{layout.SWEEP_TRIALS}{0:05d}/"
        # Asked for once more: somebody may have begun between the two looks.
        if self.folder.objects(first) and self._get(1) is None:
            raise self._damaged(1, f"it is missing, and {first} is there")

    def _check_copies(self, keys: list[str], last: int) -> None:
        """A copy of records that are gone would be taken for one of those that follow."""
        for copied in filter(None, map(layout.read_sweep_volume, keys)):
            if copied[-1] > last and self._get(copied[-1]) is None:
                copy = layout.sweep_volume_key(copied[0], copied[-1])
                raise self._damaged(
                    copied[-1],
                    f"it is missing, and {copy} holds a copy of it (delete the copy, too, to go on "
                    "without the records that are lost)",
                )

    def _listed(self) -> Iterator[StoredRecord]:
        """From the first one on. Many are read at once: one after the other a long log would take
        minutes from a distant store."""
        keys = [it.key for it in self.folder.objects(layout.SWEEP_LOG)]
        last = max(filter(None, map(layout.read_number, keys)), default=0)
        self._check_copies(keys, last)
        if last == 0:
            self._check_begun()
        volumes = volumes_among(keys, last)
        ends = {positions[-1] for positions in volumes.values()}
        wanted = parts(volumes, last, size=min(IN_A_ROW, 1 + last // READERS))
        with ThreadPoolExecutor(READERS) as pool:
            found = chain.from_iterable(pool.map(lambda it: self._part(it, volumes), wanted))
            for position, data in enumerate(found, start=1):
                yield self._there(position, data, last, bound=position in ends)

    def _part(self, positions: range, volumes: dict[int, range]) -> list[bytes | None]:
        """These records, from their volume where there is one that can be used."""
        is_volume = positions.start in volumes
        copied = read_volume(self.folder, positions) if is_volume else None
        return [*copied] if copied else [self._get(position) for position in positions]

    def _there(self, position: int, data: bytes | None, last: int, *, bound: bool) -> StoredRecord:
        if data is None:
            raise self._damaged(position, f"it is missing, and record {last} is there")
        try:
            return StoredRecord(self._unsealed(position, data), data, bound=bound)
        except SweepLogDamaged:
            own = self._get(position)  # where that was a copy, it may be the copy that is damaged
            if own in (None, data):
                raise
            return StoredRecord(self._unsealed(position, own), own, bound=bound)

    def _take(self, written: StoredRecord) -> None:
        self.view = apply(self.view, written.record)
        self._binder.take(written.data, bound=written.bound)
        self.on_record(written.record)

    def _get(self, position: int) -> bytes | None:
        key = layout.sweep_record_key(position)
        try:
            return self.folder.store.get(self.folder.key(key))
        except ObjectNotFound:
            return None

    def _unsealed(self, position: int, data: bytes) -> Record:
        """Not by the threads that read: they would only take turns, at a price."""
        key = layout.sweep_record_key(position)
        try:
            return unseal(LogEntry, data, name=key).record
        except CheckpointDamaged as error:
            raise self._damaged(position, str(error).removeprefix(f"{key}: ")) from error

    def _damaged(self, position: int, why: str) -> SweepLogDamaged:
        return SweepLogDamaged(
            f"{self.folder.uri}/{layout.sweep_record_key(position)}: {why}. The log is all that is "
            "known of the trials, and nothing of it is guessed: put the object back from a copy or "
            "an older version of it, or begin anew with another spec.storage.sweepName; what the "
            f"trials have saved stays below {self.folder.uri}/{layout.SWEEP_TRIALS}, and `trainrun "
            "sweep export --before-damage` writes what was told before"
        )
