"""By which rules trials can be ended before their time; `trainrun.sweep.stopping` applies them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Asha:
    """Asynchronous successive halving: at each rung only the best part of those that have got so
    far goes on."""

    min_resource: int = 1
    """Step of the first rung."""
    reduction_factor: int = 4
    """Of so many one goes on; and the next rung is so many times as far."""
    skipped: int = 0
    """Rungs at the beginning that nobody is judged at."""


@dataclass(frozen=True)
class Hyperband:
    """Several ASHAs side by side, which begin to judge later and later: who learns slowly gets a
    chance, too. Each trial belongs to one of them."""

    max_resource: int
    """Steps of a whole trial."""
    min_resource: int = 1
    reduction_factor: int = 3


@dataclass(frozen=True)
class Percentile:
    """Its best value so far is worse than this percentile of those of trials that have succeeded,
    at the same step."""

    percentile: float = 50.0
    """Of the best ones: 25 ends three of four. 50: the median."""
    startup_trials: int = 5
    """Trials that have to have succeeded before anything is ended."""
    warmup_steps: int = 0
    interval_steps: int = 1
    """Judged once in so many steps."""
    min_trials: int = 1
    """Trials that have to have reported the step."""


@dataclass(frozen=True)
class Threshold:
    """A value beyond these bounds, or that is no number."""

    lower: float = -math.inf
    upper: float = math.inf
    warmup_steps: int = 0
    interval_steps: int = 1


EarlyStopping = Asha | Hyperband | Percentile | Threshold
