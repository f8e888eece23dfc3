"""Early stopping as a user writes it: the name of a rule, and its options.

Layer: api.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainrun_operator.api.base import Model, refuse
from trainrun_operator.api.sweep.checks import Problem

StoppingName = Literal["ASHA", "Hyperband", "Median", "Percentile", "Threshold"]
Steps = Annotated[int, Field(ge=1, le=2**53)]
Bound = Annotated[float, Field(allow_inf_nan=False)]

JUDGED = frozenset({"startup_trials", "warmup_steps", "interval_steps", "min_trials"})
KNOWN: dict[StoppingName, frozenset[str]] = {
    "ASHA": frozenset({"min_resource", "reduction_factor"}),
    "Hyperband": frozenset({"min_resource", "max_resource", "reduction_factor"}),
    "Median": JUDGED,
    "Percentile": JUDGED | {"percentile"},
    "Threshold": frozenset({"lower", "upper", "warmup_steps", "interval_steps"}),
}
"""The options of each rule."""
NEEDED: dict[StoppingName, tuple[str, ...]] = {
    "Hyperband": ("max_resource",),
    "Percentile": ("percentile",),
}
"""The options without a default."""


class StoppingOptions(Model):
    """How strict the rule is; each rule uses some of these options."""

    min_resource: Steps | None = None
    """ASHA, Hyperband: step of the first rung. Default 1."""
    max_resource: Steps | None = None
    """Hyperband: steps of a full trial. Required there."""
    reduction_factor: Annotated[int, Field(ge=2, le=1000)] | None = None
    """ASHA, Hyperband: one in this many trials at a rung continues, and the next rung is this many
    times as far. Default 4; for Hyperband 3."""
    percentile: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percentile: a trial's best value so far must be within this percentile of the best. 25 ends
    three of four. Required there."""
    startup_trials: Annotated[int, Field(ge=0, le=99_999)] | None = None
    """Median, Percentile: trials that must have succeeded before. Default 5."""
    warmup_steps: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Median, Percentile, Threshold: no trial ends before this step. Default 0."""
    interval_steps: Steps | None = None
    """Median, Percentile, Threshold: steps between two judgements. Default 1."""
    min_trials: Annotated[int, Field(ge=1, le=99_999)] | None = None
    """Median, Percentile: trials that must have reported the step. Default 1."""
    lower: Bound | None = None
    """Threshold: a value below this ends the trial. Default: none."""
    upper: Bound | None = None
    """Threshold: a value above this ends the trial. Default: none."""


class EarlyStoppingSpec(Model):
    """Ends trials early because others were better at the same step."""

    name: StoppingName
    """ASHA: at each rung only the best part continues. Hyperband: several ASHAs, each of which
    begins to judge later. Median, Percentile: ends trials that are worse than succeeded ones.
    Threshold: ends trials beyond fixed bounds, or whose value is not a number."""
    options: StoppingOptions = StoppingOptions()
    """How strict it is."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self._problems())
        return self

    def _problems(self) -> Iterator[Problem]:
        given = self.options.model_fields_set
        aliases = {n: f.alias or n for n, f in StoppingOptions.model_fields.items()}
        for option in sorted(given - KNOWN[self.name]):
            yield ("options", aliases[option]), f"must be absent with {self.name}"
        for option in NEEDED.get(self.name, ()):
            if option not in given:
                yield ("options", aliases[option]), f"must be given with {self.name}"
        low, high = self.options.min_resource or 1, self.options.max_resource
        if high is not None and high < low:
            yield ("options", "maxResource"), f"must not be below minResource ({low})"
        if self.name == "Threshold" and not given & {"lower", "upper"}:
            yield ("options", "upper"), "must be given with Threshold unless lower is given"
        least, most = self.options.lower, self.options.upper
        if least is not None and most is not None and most < least:
            # Every value would be beyond one of the bounds.
            yield ("options", "upper"), f"must not be below lower ({least:g})"
