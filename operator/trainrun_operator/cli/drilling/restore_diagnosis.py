"""Which part of the training's state a difference after a resume points at.

Layer: cli; pure. Certain if the script reports a metric of that part (a learning rate, a hash of
the batch); else a guess from the curve, and the text says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainrun.contract.metrics import Metric
from trainrun_operator.cli.drilling.comparing import (
    METRICS,
    Deviation,
    Part,
    Tolerance,
    distance,
    of_state,
)
from trainrun_operator.cli.drilling.remedies import Finding, Kind
from trainrun_operator.cli.drilling.runs import Curve

NEARER = 0.2
"""Part of its distance to the curve where it should be, within which a curve looks like the curve
of the first steps."""
SCATTERED = 0.5
"""Part of the usual size of the differences that their average may be while they still lie on both
sides."""
FEW = 4
"""Steps below which it is not clear on which side differences are."""
FAINT, LOUD = 0.05, 3.0
"""Times the usual change of a curve from step to step by which other batches or random numbers move
it: one that moves less or more has other weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """A run after its resume, and the undisturbed one."""

    run: Curve
    control: Curve
    within: Tolerance
    steps: tuple[int, ...]
    """Steps that are compared, ascending."""
    wrong: frozenset[Part] = frozenset()
    """Parts whose entries in the next checkpoint differ from an undisturbed run's."""
    right: frozenset[Part] = frozenset()
    """Parts whose entries in it all equal those of an undisturbed run."""

    def pairs(self, name: str, steps: Sequence[int]) -> list[tuple[Metric, Metric]]:
        """(in the run, undisturbed) of a metric, by step; `steps`: the undisturbed run's steps."""
        return [
            (self.run[step][name], self.control[other][name])
            for step, other in zip(self.steps, steps, strict=False)
            if name in self.run[step] and name in self.control[other]
        ]

    @property
    def first_steps(self) -> list[int]:
        """Steps of the undisturbed run, ascending."""
        return sorted(self.control)

    def repeats(self, name: str) -> bool:
        """It repeats the values of the first steps."""
        pairs = self.pairs(name, self.first_steps)
        allowed = self.within.allowed.get(name, 0.0)
        return len(pairs) > 1 and all(distance(a, b) <= allowed for a, b in pairs)

    def equal(self, part: Part) -> str:
        """A metric of this part that is equal in all steps; "" if there is none."""
        for name, allowed in self.within.allowed.items():
            pairs = self.pairs(name, self.steps) if of_state(name) == part else []
            if pairs and all(distance(a, b) <= allowed for a, b in pairs):
                return name
        return ""


def findings(after: After, deviations: list[Deviation]) -> list[Finding]:
    """Findings from these deviations, of which there is at least one: one for each part of the
    state that has a metric of its own; if none of those differs, what the first curve looks
    like."""
    parts: dict[Part, Deviation] = {}
    others: list[Deviation] = []
    for deviation in deviations:
        part = of_state(deviation.first.metric)
        if part is None:
            others.append(deviation)
        else:
            parts.setdefault(part, deviation)
    found = [
        _finding(deviation, _by_name(after, deviation, part)) for part, deviation in parts.items()
    ]
    curves = [
        deviation for deviation in others if not isinstance(deviation.first.expected, str | bool)
    ]
    if curves:
        shape = _by_shape(after, curves[0])
        if not found or shape[0] == "WeightsNotLoaded":  # the findings so far may explain the rest
            found.append(_finding(curves[0], shape))
    return found or [_finding(others[0], ("CurvesDiffer", "its values are not numbers"))]


def _finding(deviation: Deviation, why: tuple[Kind, str]) -> Finding:
    return Finding(kind=why[0], text=f"{differs(deviation)}: {why[1]}")


def differs(deviation: Deviation) -> str:
    """The deviation in words."""
    first, largest = deviation.first, deviation.largest
    text = (
        f"{first.metric} differs from an undisturbed run in {deviation.steps} of "
        f"{deviation.compared} steps after the resume, first in step {first.step} "
        f"({_value_text(first.got)} instead of {_value_text(first.expected)})"
    )
    if not math.isfinite(largest.size):
        return text
    return (
        f"{text}, most in step {largest.step} (by {largest.size:.4g}; {deviation.allowed:.4g} is "
        "allowed)"
    )


def _by_name(after: After, deviation: Deviation, part: Part) -> tuple[Kind, str]:
    """What it means that a metric named after this part differs."""
    again, from_the_first = (
        after.repeats(deviation.first.metric),
        deviation.steps == deviation.compared,
    )
    match part:
        case "Rate" if again:
            why = "these are the values of the first steps: the schedule restarted"
            return "LearningRateReset", why
        case "Rate":
            return "LearningRateReset", "the schedule does not continue where it was"
        case "Data" if again:
            return "DataRestarted", "these are the batches of the first steps: the data restarted"
        case "Data":
            return "DataDiffers", "other batches than without a restart"
        case "Random":
            return "RandomNotRestored", "the random generators are not where they were"
        case "Weights" if from_the_first:
            return "WeightsDiffer", (
                "it differs from the first step on, so these are not the saved weights"
            )
        case "Weights":
            why = "it differs in some steps only, so the weights were the saved ones"
            return "OptimizerReset", why


def _by_shape(after: After, deviation: Deviation) -> tuple[Kind, str]:
    name = deviation.first.metric
    if after.repeats(name):
        why = "these are the values of the first steps, as if nothing was loaded"
        return "WeightsNotLoaded", why
    hint = _hint(after)
    if deviation.first.step != after.steps[0]:
        if "Rate" in after.wrong:
            return "LearningRateReset", "the next checkpoint has another state of the schedule"
        return "OptimizerReset", (
            "it is equal in the first step but not after it, so it looks like optimizer or "
            f"schedule rather than weights{hint}"
        )
    wrong = _apart(after.pairs(name, after.steps))
    noise = _noise([after.control[step].get(name) for step in after.first_steps])
    # A curve that scatters about one level is that of the first steps where the draws are.
    if _near_the_start(after, name, wrong) and abs(sum(wrong)) > noise * len(wrong):
        return "WeightsNotLoaded", (
            f"it is much closer to the curve of the first steps, so it looks like new weights{hint}"
        )
    if not wrong or (len(wrong) < FEW and not after.wrong & {"Random", "Data"}):
        return "CurvesDiffer", f"it differs at once: weights, data or random numbers{hint}"
    scattered = FAINT * noise <= _size(wrong) <= LOUD * noise and not _steady(wrong)
    if (scattered or _on_both_sides(wrong)) and not (_same_data(after) and _same_random(after)):
        return _other_draw(after, hint)
    return "WeightsDiffer", (
        "it differs at once, and on one side of the undisturbed curve, so it looks like other "
        f"weights than the saved ones{hint}"
    )


def _other_draw(after: After, hint: str) -> tuple[Kind, str]:
    """Whether the data or the random numbers make a curve scatter."""
    looks = "it differs at once, by as much as from step to step, so it looks like"
    if _same_data(after) or ("Random" in after.wrong and "Data" not in after.wrong):
        why = " (the next checkpoint has others)" if "Random" in after.wrong else hint
        return "RandomNotRestored", f"{looks} random numbers{why}"
    if _same_random(after) or ("Data" in after.wrong and "Random" not in after.wrong):
        why = " (the next checkpoint has another place)" if "Data" in after.wrong else hint
        return "DataDiffers", f"{looks} the order of the data{why}"
    return "DataOrRandomDiffer", f"{looks} random numbers, or the order of the data{hint}"


def _same_data(after: After) -> bool:
    return bool(after.equal("Data"))


def _same_random(after: After) -> bool:
    return bool(after.equal("Random")) or "Random" in after.right


def _steady(wrong: list[float]) -> bool:
    """Always on one side and at about the same distance: other batches or random numbers do not do
    that."""
    least, most = min(map(abs, wrong)), max(map(abs, wrong))
    return len(wrong) > FEW and abs(sum(wrong)) == sum(map(abs, wrong)) and least > most / 2


def _hint(after: After) -> str:
    same = [name for part in METRICS if (name := after.equal(part))]
    if same:
        return f" ({', '.join(same)}: equal)"
    return " (report a batch_hash as well to know more)"


def _apart(pairs: list[tuple[Metric, Metric]]) -> list[float]:
    """How far the run is above the undisturbed one, for finite numbers."""
    found = [
        float(a) - float(b)
        for a, b in pairs
        if not isinstance(a, str | bool) and not isinstance(b, str | bool)
    ]
    return [value for value in found if math.isfinite(value)]


def _near_the_start(after: After, name: str, wrong: list[float]) -> bool:
    from_start = _apart(after.pairs(name, after.first_steps))
    if len(from_start) < FEW or not wrong:
        return False
    return _size(from_start) < NEARER * _size(wrong)


def _on_both_sides(wrong: list[float]) -> bool:
    crossings = sum(a * b < 0 for a, b in pairwise(wrong))
    return crossings > 0 and abs(sum(wrong)) / len(wrong) < SCATTERED * _size(wrong)


def _noise(curve: list[Metric | None]) -> float:
    """Usual distance of a step's value from the middle of its neighbors'."""
    found = [
        float(value) for value in curve if isinstance(value, int | float) and math.isfinite(value)
    ]
    middles = [b - (a + c) / 2 for a, b, c in zip(found, found[1:], found[2:], strict=False)]
    return _size(middles) if middles else 0.0


def _size(values: list[float]) -> float:
    return sum(map(abs, values)) / len(values)


def _value_text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else f"{value!s:.40}"
