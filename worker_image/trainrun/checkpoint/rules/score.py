"""By which metric checkpoints are compared, and which of them is the best.

Layer: pure. Invariants: a checkpoint without a number for the metric (it was not reported, is NaN,
a string or a boolean) is worse than every one that has it; of equal ones the newer is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainrun.contract import metrics as contract_metrics

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId

Order = Literal["Max", "Min"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A metric, and whether its greatest or its least value is the best."""

    metric: str
    order: Order

    def of(self, metrics: Mapping[str, Any]) -> float | None:
        """The value among the metrics of a manifest; None where there is no number."""
        raw = metrics.get(self.metric)
        value = contract_metrics.decode({self.metric: raw}).get(self.metric)
        if isinstance(value, (bool, str)) or value is None or math.isnan(value):
            return None
        return float(value)

    def best_first(
        self, values: Mapping[CheckpointId, float], among: Iterable[CheckpointId]
    ) -> list[CheckpointId]:
        """Sort checkpoints; those that have no entry in `values` come last."""
        sign = 1.0 if self.order == "Max" else -1.0

        def goodness(checkpoint: CheckpointId) -> tuple[bool, float, CheckpointId]:
            value = values.get(checkpoint)
            return value is not None, 0.0 if value is None else sign * value, checkpoint

        return sorted(among, key=goodness, reverse=True)
