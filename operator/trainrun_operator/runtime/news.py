"""What happens during a run, told to whoever shows it: plain lines, JSON, a live view.

Layer: runtime. Emitting never blocks and never fails the pass that emits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from trainrun_operator.core.run.observation import WorkerFact
from trainrun_operator.core.run.plan import Event, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """An entry of the run's history (a Kubernetes Event in a cluster)."""

    time: datetime
    """UTC."""
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A pass ended with nothing to write first: this is the state of affairs."""

    time: datetime
    """UTC."""
    plan: Plan
    workers: tuple[WorkerFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One line that a worker printed, with its rank's prefix where a process printed it."""

    worker: str
    line: str


RunNews = Happened | Passed | Output


class EventSink(Protocol):
    """Somebody who wants to know."""

    def emit(self, news: RunNews) -> None:
        """Take note; returns at once."""


class Everyone:
    """Passes everything on to several sinks, in order."""

    def __init__(self, sinks: Iterable[EventSink]) -> None:
        self._sinks = tuple(sinks)

    def emit(self, news: RunNews) -> None:
        """Tell everyone."""
        for sink in self._sinks:
            sink.emit(news)
