"""A sweep's folder: its log, and its trials' reports of the objective.

Layer: above `NumberedLog`. The log is read incrementally, folded as it is read, and written by the
first process that tries. Pieces of metrics are written once and in order, so every reader gives a
report the same number, however often it reads.
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
    """The view of the records read so far."""
    suggest: Suggest = by_chance
    """Chooses parameters."""
    judging: Judging = field(default_factory=Judging)
    """Which reports were judged."""
    on_record: Callable[[Record], None] = lambda _record: None
    """Called with each record, in order, once it is in the view."""
    volume: int = VOLUME
    """Records that are copied into one object, to make reading the whole log faster."""

    def __post_init__(self) -> None:
        self._log: NumberedLog[Record] = NumberedLog(
            self.folder,
            layout.SWEEP_LOG,
            # If folders of trials exist without a log, the parameters behind their checkpoints and
            # values are lost, and a new log would give these to other parameters.
            witness=f"{layout.SWEEP_TRIALS}{0:05d}/",
            read_checksummed=lambda data, key: read_checksummed(LogEntry, data, name=key).record,
            damaged=self._damaged,
            take=self._take,
            volume=self.volume,
        )

    def read_on(self) -> SweepView:
        """Read all new records and return the view. Raises StoreError, SweepLogDamaged."""
        self._log.read_on()
        return self.view

    def read_before_damage(self) -> SweepLogDamaged | None:
        """Read up to the first missing or damaged record, to save results; the log must not be
        written after that. Returns what is wrong there; None: nothing. Raises StoreError."""
        try:
            self._log.read_before_damage()
        except SweepLogDamaged as damage:
            return damage
        return None

    def leave_out(self, position: int) -> str:
        """Replace a damaged record that held only points by one without points; the damaged object
        is kept next to it. Returns where.

        Raises StoreError, and SweepLogDamaged if the record can be read, or if nothing shows that
        it held only points.
        """
        data, key = self._log.get(position) or b"", self._log.key(position)
        try:
            read_checksummed(LogEntry, data, name=key)
        except CheckpointDamaged:
            pass
        else:
            raise SweepLogDamaged(
                f"{self.folder.uri}/{key} can be read, so it stays. Give the number of the "
                "record that `trainrun sweep trials` names as damaged, if it names one"
            )
        # Keys are sorted: the kind comes before the points.
        if b'"kind":"Reports"' not in data:
            raise SweepLogDamaged(
                f"{self.folder.uri}/{key}: the rest of it does not show that it held only "
                "points of curves, so it is not left out. Put it back from a copy or an older "
                "version of it; or save the earlier results with `trainrun sweep export "
                "--before-damage`, and start again with another spec.storage.sweepName"
            )
        copy = f"{key}.damaged"
        self.folder.store.put(self.folder.key(copy), data)
        self.folder.store.put(self.folder.key(key), add_checksum(LogEntry(Reports())))
        return f"{self.folder.uri}/{copy}"

    def append(self, record: Record) -> bool:
        """Write the next record; False: another process was faster, or may have been.

        Raises StoreError: the record may be written even then.
        """
        if isinstance(record, End):
            self._check_complete()
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
        """Write all records that the targets need; see `trainrun.sweep.clerk.next_record`.

        Raises StoreError, SweepLogDamaged.
        """
        counted = self.read_on().counted_at
        while True:
            # Work is counted once, by the first process that records it.
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

    def _check_complete(self) -> None:
        """Refuse to end a search whose log was deleted: records written since lie in a new folder
        without their beginning, and cannot be read.

        The first and the newest record show it: others may have been written since."""
        for position in (1, self.view.position):
            if self.view.position and self._log.get(position) is None:
                raise self._log.error(position, "it existed, and was deleted")

    def _unused(self, trial: int) -> int:
        """The first incarnation whose folder is free for this trial number, and the first opening
        without a run: 1, unless the log has lost the records of an earlier trial of this number,
        whose parameters are then unknown."""
        first, claims, looked = 1, 0, 0
        while looked < first:
            looked += 1
            found = self.folder.objects(f"{layout.sweep_trial_folder(trial, looked)}/")
            # Each opening that started has claimed a folder, some more than once.
            claims += sum(f"/{layout.OWNERS}" in item.key and ".json" in item.key for item in found)
            if found:
                first = max(looked, claims) + 1
        return first

    def _take(self, record: Record) -> None:
        self.view = apply(self.view, record)
        self.on_record(record)

    def _damaged(self, what: str) -> SweepLogDamaged:
        return SweepLogDamaged(
            f"{what}. The log is the only record of the trials, so TrainRun does not guess what is "
            "missing: put the object back from a copy or an older version of it (`trainrun sweep "
            "leave-out` replaces one that held only points of curves), or start again with another "
            "spec.storage.sweepName; the trials' checkpoints stay below "
            f"{self.folder.uri}/{layout.SWEEP_TRIALS}, and `trainrun sweep export --before-damage` "
            "writes the results before the damage"
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
    """Names of a few other metrics that it has reported; includes the objective if its value was
    not a number."""
    _read: set[str] = field(default_factory=set)
    """Keys of the pieces already read."""
    _resumed: dict[int, int] = field(default_factory=dict)
    _counts: dict[int, int] = field(default_factory=dict)
    """Number of reports of each attempt."""
    _ranks: dict[int, int] = field(default_factory=dict)
    """The rank that counts in each attempt."""
    _pending: list[TrialReport] = field(default_factory=list)
    """Reports from pieces read before the store failed, not returned yet."""

    def read_on(self) -> list[TrialReport]:
        """The reports of all new pieces, in order.

        Raises StoreError; the next call then also returns what was read so far.
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
            self._pending += self._reports(attempt, resumed, data)
        found, self._pending = self._pending, []
        return found

    def heard(self, attempt: int) -> int:
        """Number of the newest report read from an attempt; 0: none."""
        return self._counts.get(attempt, 0)

    def resumed(self, attempt: int) -> int:
        """The step that an attempt resumed from; 0: from scratch, or unknown.

        Raises StoreError.
        """
        if attempt not in self._resumed:
            point = self.run.resumes([attempt]).get(attempt)
            self._resumed[attempt] = 0 if point is None else point.step
        return self._resumed[attempt]

    def _reports(self, attempt: int, resumed: int, data: bytes) -> Iterator[TrialReport]:
        values = list(self._values(data))
        if values:
            # For the whole attempt, the lowest of the ranks that reported it first.
            self._ranks.setdefault(attempt, min(rank for rank, _, _ in values))
        for rank, step, value in values:
            if rank != self._ranks[attempt]:
                continue
            self._counts[attempt] = self.heard(attempt) + 1
            yield TrialReport(
                trial=self.trial,
                incarnation=self.incarnation,
                attempt=attempt,
                resumed=resumed,
                seq=self._counts[attempt],
                step=step,
                value=written(value),
            )

    def _remember(self, metrics: Mapping[str, object]) -> None:
        """Keep names of other metrics, for a message if the objective is misspelled."""
        room = MOST_OTHERS - len(self.others)
        new = [str(name)[:LONGEST_NAME] for name in metrics if name not in self.others]
        self.others += new[:room]

    def _values(self, data: bytes) -> Iterator[tuple[int, int, float]]:
        """Rank, step and value of each report with the metric; unreadable reports are skipped."""
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
