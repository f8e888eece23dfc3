"""What a sweep searches, by whom and for what: all that the clerk has to know of the spec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainrun.sweep.space import Parameter, Scalar
from trainrun.sweep.stopping_rules import EarlyStopping

if TYPE_CHECKING:
    from collections.abc import Iterable

SamplerName = Literal["Random", "Grid", "TPE", "CmaEs", "QMC"]
Goal = Literal["minimize", "maximize"]
ValueOf = Literal["last", "best"]


@dataclass(frozen=True)
class Objective:
    """The metric that counts, and what of it."""

    metric: str
    goal: Goal = "minimize"
    value: ValueOf = "last"
    """Which of a trial's values is its own: that of the last step, or the best one."""
    target: float | None = None
    """The search is over once a trial's own value is as good as this."""
    stop_on_nan: bool = True
    """Two steps whose value is not a number end a trial."""

    def better(self, one: float, other: float) -> bool:
        """Whether `one` is strictly better; not a number is better than nothing."""
        if math.isnan(one) or math.isnan(other):
            return False
        return one < other if self.goal == "minimize" else one > other

    def reached(self, value: float) -> bool:
        """Whether `value` is as good as the target."""
        if self.target is None or math.isnan(value):
            return False
        return not self.better(self.target, value)

    def best(self, values: Iterable[float]) -> float | None:
        """The best of them, the first among equals; None where none is a number."""
        numbers = [value for value in values if not math.isnan(value)]
        if not numbers:
            return None
        return min(numbers) if self.goal == "minimize" else max(numbers)


@dataclass(frozen=True)
class Search:
    """The immutable part of a sweep, as the clerk needs it."""

    space: tuple[Parameter, ...]
    objective: Objective
    sampler: SamplerName = "Random"
    seed: int = 0
    first: tuple[dict[str, Scalar], ...] = ()
    """Tried first; what one of them does not say is drawn."""
    fixed: tuple[tuple[str, Scalar], ...] = ()
    """Handed to every trial."""
    early_stopping: EarlyStopping | None = None
    """By which trials are ended before their time; it may change."""
