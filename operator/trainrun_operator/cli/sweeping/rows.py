"""A sweep as a table: every trial with its parameters and what it has come to, as its log says.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainrun.sweep.results import standing
from trainrun.sweep.search import Objective
from trainrun.sweep.space import Scalar
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.cli.sweeping.texts import first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A trial as it is now."""

    trial: int
    state: str
    """The one that the log gives; of an open trial that this machine leads `Running`, `Saving`,
    `Saved`, or `Ending` until the log has its end."""
    params: Mapping[str, Scalar]
    value: float | None
    step: int | None
    restarts: int
    remark: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """For programs. A value that JSON does not have is text: `"nan"`."""
        value = self.value
        odd = value is not None and not math.isfinite(value)
        return {**asdict(self), "params": dict(self.params), "value": str(value) if odd else value}


def rows_of(view: SweepView, objective: Objective) -> tuple[Row, ...]:
    """By number."""
    return tuple(row_of(trial, objective) for trial in view.trials.values())


def row_of(trial: TrialView, objective: Objective) -> Row:
    """One trial."""
    own = standing(trial, objective)
    return Row(
        trial=trial.number,
        state=trial.state,
        params=trial.params,
        value=None if own is None else own.value,
        step=None if own is None else own.step,
        restarts=trial.restarts,
        remark=_remark(trial),
    )


def _remark(trial: TrialView) -> str:
    if trial.state in ("Open", "Succeeded"):
        return "" if trial.duplicate_of is None else f"same as trial {trial.duplicate_of}"
    return first_line(f"{trial.reason}: {trial.message}" if trial.message else trial.reason)
