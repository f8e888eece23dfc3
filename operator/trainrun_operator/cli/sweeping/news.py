"""What happens during a local sweep, told to whoever shows it: plain lines, JSON, a table.

Layer: cli. Emitting never blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from trainrun.sweep.space import Scalar
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.cli.sweeping.rows import Row
from trainrun_operator.runtime.news import RunNews


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial works from now on, for the first time or again."""

    trial: int
    params: Mapping[str, Scalar]
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTrial:
    """Something happened to the run of a trial."""

    trial: int
    news: RunNews


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """The log says how a trial has ended."""

    trial: TrialView
    leads: bool
    """It is the best one so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLooked:
    """A look at the sweep: this is the state of affairs."""

    status: TrainSweepStatus
    rows: tuple[Row, ...]
    """By number."""


SweepNews = TrialStarted | OfTrial | TrialEnded | SweepLooked


class SweepSink(Protocol):
    """Somebody who wants to know."""

    def emit(self, news: SweepNews) -> None:
        """Take note; returns at once."""

    def say(self, text: str) -> None:
        """Tell the user something that is no event of the sweep."""
