"""All lines that can be had of a run now: from its storage, and from its workers what is not there.

Layer: cli. In the order of attempts. What a worker that was lost had not stored is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainrun_operator.cli.log_lines.line import Gap, Line, Shown, Wanted
from trainrun_operator.cli.log_lines.output import named
from trainrun_operator.cli.log_lines.stored import StoredLines, deleted


@dataclass(slots=True, kw_only=True)
class History:
    """Of one run."""

    stored: StoredLines | None
    """None: the storage cannot be read."""
    live: Iterable[Line]
    """What the workers that are still there have printed."""
    claimed: tuple[int, ...] = ()
    """Attempts that were begun, as far as the storage tells."""
    running: int | None = None
    """The attempt that is under way; None: none is."""
    wanted: Wanted
    _live: dict[int | None, list[Line]] = field(default_factory=dict)

    def shown(self) -> Iterator[Shown]:
        """Everything. Raises StoreError."""
        by_attempt: dict[int | None, list[Line]] = defaultdict(list)
        for line in self.live:
            by_attempt[line.attempt].append(line)
        self._live = by_attempt
        numbers = {n for n in by_attempt if n is not None} | set(self.claimed) | set(self._slots)
        newest = max(numbers, default=0)
        if gone := [n for n in deleted(sorted(numbers), newest) if n not in self._slots]:
            yield from self._deleted(gone)
        for attempt in sorted(numbers - set(gone)):
            if self.wanted.attempt in (None, attempt):
                yield from self._of(attempt)
        yield from self._not_told(None)

    @property
    def _slots(self) -> dict[int, list[int]]:
        return self.stored.slots if self.stored is not None else {}

    def _of(self, attempt: int) -> Iterator[Shown]:
        if self.stored is not None:
            yield from self.stored.of(attempt)
        yield from self._not_told(attempt)
        if self.stored is not None and attempt != self.running:
            yield from self._lost(self.stored, attempt)

    def _not_told(self, attempt: int | None) -> Iterator[Line]:
        told = self.stored.told if self.stored is not None else set()
        for line in self._live.get(attempt, []):
            if attempt is None or (attempt, line.rank) not in told:
                yield line

    def _lost(self, stored: StoredLines, attempt: int) -> Iterator[Gap]:
        seen = {line.rank for line in self._live.get(attempt, [])}
        if attempt not in self._slots:
            if not seen:
                yield Gap(
                    attempt=attempt,
                    text="nothing is stored of it: its workers were lost before they could store "
                    "their last lines, or it never ran",
                )
            return
        for slot, ranks in stored.lacks(attempt):
            if not ranks & seen and self.wanted.has(attempt, ranks):
                yield Gap(
                    attempt=attempt,
                    text=f"nothing is stored of slot {slot} ({named(ranks)}): its worker was lost "
                    "before it could store its last lines",
                )

    def _deleted(self, attempts: list[int]) -> Iterator[Gap]:
        first, last = attempts[0], attempts[-1]
        which = f"attempt {first}" if first == last else f"attempts {first} to {last}"
        if self.wanted.attempt is None or self.wanted.attempt in attempts:
            yield Gap(
                attempt=last,
                text=f"the lines of {which} were deleted: the newest 20 attempts keep theirs",
            )
