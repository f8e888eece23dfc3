"""Since when this operator has seen what carries no time of its own: taints, failed pulls.

Layer: worlds/kubernetes; no clock of its own. What goes away and comes back is new again. After a
restart of the operator everything is new: timeouts that depend on it begin anew, none is
shortened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime


class Sightings:
    """Of the workers of one run, by the uid of their pods."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, datetime]] = {}

    def since(self, subject: str, what: str) -> datetime | None:
        """Since when this could be seen at the last update; None if it could not."""
        return self._first.get(subject, {}).get(what)

    def update(self, subject: str, present: Iterable[str], now: datetime) -> Mapping[str, datetime]:
        """This is what can be seen of the subject now; returns since when each can be seen."""
        before = self._first.get(subject, {})
        seen = self._first[subject] = {what: before.get(what, now) for what in present}
        return seen

    def keep(self, subjects: Collection[str]) -> None:
        """Forget all other subjects: their pods are gone."""
        for gone in self._first.keys() - set(subjects):
            del self._first[gone]
