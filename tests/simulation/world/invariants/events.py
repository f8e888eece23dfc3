"""Every start, every end of an attempt and the verdict is told as an event, once; nothing is told
again and again.

Layer: simulation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world.invariants.case import Case
    from trainrun_operator.api.run.status import Condition
    from trainrun_operator.core.run.boundary import Event


A_WHILE = 60.0
"""Seconds within which events of one reason are counted."""

MOST_TOLD = 20
"""So many of them say nothing new: somebody tells what he sees in every pass."""


class EventsTold:
    """Judges the history that the run's user reads."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._times: Counter[Event] = Counter()
        self._at_end: Counter[Event] = Counter()
        """Those told since the verdict stands: a wait before it may have had the same words."""
        self._lately: dict[str, list[float]] = {}
        """When, by reason."""
        self._storms: list[str] = []

    def told(self, event: Event) -> None:
        """An event was recorded; the same one at the same time is recorded once."""
        self._times[event] += 1
        if self._verdict() is not None:
            self._at_end[event] += 1
        now = self._case.now
        lately = [at for at in self._lately.get(event.reason, []) if at > now - A_WHILE]
        self._lately[event.reason] = [*lately, now]
        if len(lately) + 1 == MOST_TOLD and not self._case.leaders_overlap:
            self._storms.append(event.reason)

    def closing(self) -> None:
        """Look at the whole history."""
        for reason in self._storms:
            self._case.wrong(f"{reason} was told {MOST_TOLD} times in {A_WHILE:.0f} s")
        for attempt in self._case.records:
            self._once(f"the start of attempt {attempt}", f"attempt {attempt} starts ")
        for attempt in self._case.settled:
            what = "ended" if attempt in self._case.records else "could not start"
            self._once(f"the end of attempt {attempt}", f"attempt {attempt} {what}: ")
        verdict = self._verdict()
        if verdict is not None:
            self._once("the verdict", verdict.message[:60], self._at_end)  # a long one is cut

    def _verdict(self) -> Condition | None:
        found = map(self._case.world.status.condition, ("Complete", "Failed"))
        return next((c for c in found if c is not None and c.status == "True"), None)

    def _once(self, what: str, begins: str, among: Counter[Event] | None = None) -> None:
        """A better explanation may be told on top, each of them once."""
        told = {
            e: times for e, times in (among or self._times).items() if e.message.startswith(begins)
        }
        if not told:
            self._case.wrong(f"{what} was never told")
        for event, times in told.items():
            if times > 1:
                self._case.wrong(f"{what} was told {times} times: {event.message}")
