"""A sweep's folder: its log, and what its trials have reported of the objective.

Layer: above `NumberedLog`. The log is read on, written by whoever is first, and folded as it is
read. Pieces of metrics are written once and in order, so a report has the same number whoever reads
it, and however often.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.metrics_log import records_of
from trainrun.checkpoint.numbered_log import VOLUME, NumberedLog
from trainrun.checkpoint.records import add_checksum, read_checksummed
from trainrun.contract import layout
from trainrun.contract.metrics import decode
from trainrun.errors import CheckpointDamaged, SweepLogDamaged
from trainrun.sweep.clerk import next_record
from trainrun.sweep.records import Ask, End, LogEntry, Record, Reports, TrialReport, written
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.stopping import Judging
from trainrun.sweep.view import SweepView, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainrun.checkpoint.run_store import RunStore
    from trainrun.sweep.clerk import Suggest
    from trainrun.sweep.records import Targets
    from trainrun.sweep.search import Search

MOST_OTHERS = 8
LONGEST_NAME = 64


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
        self._log: NumberedLog[Record] = NumberedLog(
            self.folder,
            layout.SWEEP_LOG,
            # Folders of trials without a log: their checkpoints and values are those of parameters
            # that nobody knows any more, and a new log would give them to others.
            witness=f"{layout.SWEEP_TRIALS}{0:05d}/",
            read_checksummed=lambda data, key: read_checksummed(LogEntry, data, name=key).record,
            damaged=self._damaged,
            take=self._take,
            volume=self.volume,
        )

    def read_on(self) -> SweepView:
        """Everything that stands in the log now. Raises StoreError, SweepLogDamaged."""
        self._log.read_on()
        return self.view

    def read_before_damage(self) -> SweepLogDamaged | None:
        """What stands before the first record that is missing or damaged: for whoever saves
        results, and never to be written after. Returns what is wrong there; None: nothing is.
        Raises StoreError."""
        try:
            self._log.read_before_damage()
        except SweepLogDamaged as damage:
            return damage
        return None

    def leave_out(self, position: int) -> str:
        """Put a record without points in the place of a damaged one that held nothing else; what
        is left of that is kept beside it. Returns where.

        Raises StoreError, and SweepLogDamaged where it can be read, or nothing tells that it held
        only points.
        """
        data, key = self._log.get(position) or b"", self._log.key(position)
        try:
            read_checksummed(LogEntry, data, name=key)
        except CheckpointDamaged:
            pass
        else:
            raise SweepLogDamaged(
                f"{self.folder.uri}/{key}: it can be read, and stays. Give the number of the "
                "record that `trainrun sweep trials` names as damaged, if it names one"
            )
        # Keys are sorted: the kind stands before the points.
        if b'"kind":"Reports"' not in data:
            raise SweepLogDamaged(
                f"{self.folder.uri}/{key}: nothing is left of it that tells that it held only "
                "points of curves, so it is not left out. Put it back from a copy or an older "
                "version of it; or save what was told before with `trainrun sweep export "
                "--before-damage`, and begin anew with another spec.storage.sweepName"
            )
        kept = f"{key}.damaged"
        self.folder.store.put(self.folder.key(kept), data)
        self.folder.store.put(self.folder.key(key), add_checksum(LogEntry(Reports())))
        return f"{self.folder.uri}/{kept}"

    def append(self, record: Record) -> bool:
        """Write the next record; False: somebody was faster, or nothing is known of who was.

        Raises StoreError: then it may have been written all the same.
        """
        if isinstance(record, End):
            self._check_kept()
        if isinstance(record, Ask):
            record = replace(record, first=self._unused(record.trial))
        return self._log.append(record, add_checksum(LogEntry(record)))

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
            if self.view.position and self._log.get(position) is None:
                raise self._log.error(position, "it was there, and is gone")

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

    def _take(self, record: Record) -> None:
        self.view = apply(self.view, record)
        self.on_record(record)

    def _damaged(self, what: str) -> SweepLogDamaged:
        return SweepLogDamaged(
            f"{what}. The log is all that is known of the trials, and nothing of it is guessed: "
            "put the object back from a copy or an older version of it (`trainrun sweep leave-out` "
            "goes on without one that only held points of curves), or begin anew with another "
            "spec.storage.sweepName; what the trials have saved stays below "
            f"{self.folder.uri}/{layout.SWEEP_TRIALS}, and `trainrun sweep export --before-damage` "
            "writes what was told before"
        )


@dataclass
class TrialReports:
    """One incarnation of a trial, as far as this process has read it."""

    run: RunStore
    """The trial's folder."""
    trial: int
    incarnation: int
    metric: str
    others: list[str] = field(default_factory=list)
    """Names of what it has reported that is not the objective, a few; that of the objective is
    among them where it was no number."""
    _read: set[str] = field(default_factory=set)
    """Keys of the pieces that were read."""
    _resumed: dict[int, int] = field(default_factory=dict)
    _heard: dict[int, int] = field(default_factory=dict)
    """Reports of each attempt."""
    _ranks: dict[int, int] = field(default_factory=dict)
    """The rank that counts in each attempt."""
    _found: list[TrialReport] = field(default_factory=list)
    """Of pieces that were read before the store failed; nobody has them yet."""

    def read_on(self) -> list[TrialReport]:
        """The reports of all pieces that are new, in their order.

        Raises StoreError; what was read until then comes with the next call.
        """
        pieces = sorted(
            (place, item.key)
            for item in self.run.objects(layout.METRICS)
            if item.key not in self._read and (place := layout.read_metrics(item.key)) is not None
        )
        for (attempt, _), key in pieces:
            data = self.run.store.get(self.run.key(key))
            resumed = self.resumed(attempt)
            self._read.add(key)
            self._found += self._reports(attempt, resumed, data)
        found, self._found = self._found, []
        return found

    def heard(self, attempt: int) -> int:
        """Number of the newest report of an attempt that was read; 0: none."""
        return self._heard.get(attempt, 0)

    def resumed(self, attempt: int) -> int:
        """The step that an attempt went on from; 0: from nothing, or nobody knows.

        Raises StoreError.
        """
        if attempt not in self._resumed:
            point = self.run.resumes([attempt]).get(attempt)
            self._resumed[attempt] = 0 if point is None else point.step
        return self._resumed[attempt]

    def _reports(self, attempt: int, resumed: int, data: bytes) -> Iterator[TrialReport]:
        values = list(self._values(data))
        if values:
            # The lowest rank of those that were first to report it, for the whole attempt.
            self._ranks.setdefault(attempt, min(rank for rank, _, _ in values))
        for rank, step, value in values:
            if rank != self._ranks[attempt]:
                continue
            self._heard[attempt] = self.heard(attempt) + 1
            yield TrialReport(
                trial=self.trial,
                incarnation=self.incarnation,
                attempt=attempt,
                resumed=resumed,
                seq=self._heard[attempt],
                step=step,
                value=written(value),
            )

    def _remember(self, metrics: Mapping[str, object]) -> None:
        """What is reported instead of the objective, for who has misspelled it."""
        room = MOST_OTHERS - len(self.others)
        new = [str(name)[:LONGEST_NAME] for name in metrics if name not in self.others]
        self.others += new[:room]

    def _values(self, data: bytes) -> Iterator[tuple[int, int, float]]:
        """Rank, step and value of each report that has the metric; what cannot be read is none."""
        for record in records_of(data):
            try:
                metrics = decode(record["metrics"])
                value = metrics.get(self.metric)
                rank, step = int(record["rank"]), int(record["step"])
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                continue
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield rank, step, float(value)
            else:
                self._remember(metrics)
