"""What a trial has reported of the objective, as its folder tells it: read on, piece by piece.

Layer: rules over `RunStore`. Invariant: pieces of metrics are written once and in order, so a
report has the same number whoever reads it, and however often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun.checkpoint.metrics_log import records_of
from trainrun.contract import layout
from trainrun.contract.metrics import decode
from trainrun.sweep.records import TrialReport, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainrun.checkpoint.stores.run_store import RunStore

MOST_OTHERS = 8
LONGEST_NAME = 64


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
