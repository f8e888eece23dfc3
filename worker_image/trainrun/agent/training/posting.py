"""What a framework has posted in one attempt, and when the training ends if it goes on so.

Layer: agent, pure. The protocol is Kubeflow Trainer's: a percentage, an estimate of the time left
and metrics, among them `current_step` and `total_steps` from a Hugging Face Trainer. The estimate
is made anew here: theirs divides the time since the start of the process by all steps of the run,
so that after a resume it is far too short.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainrun.contract import metrics
from trainrun.contract.evidence import Posted
from trainrun.contract.wire import LARGEST_INTEGER, LARGEST_NUMBER

STEP, TOTAL = "current_step", "total_steps"
"""The metrics that tell how far it is."""
WHOLE = 100
"""Per cent, which a Trainer posts when it ends."""


class NoPost(ValueError):
    """What was posted is not in the protocol: says what was expected."""


@dataclass(slots=True, kw_only=True)
class Posting:
    """Of one attempt."""

    posted: Posted | None = None
    """What is known now; None before the first post."""
    _first: tuple[float, float] | None = None
    """When the training was first seen at a place of its way, and that place, 0 to 1."""

    def take(self, body: bytes, now: float) -> None:
        """Take a post into account. Raises NoPost."""
        percent, values = _read(body)
        step, total = _whole(values.pop(STEP, None)), _whole(values.pop(TOTAL, None))
        before = self.posted or Posted()
        if step is None and total is not None and percent == 0:
            before, self._first = Posted(), None  # a training begins, perhaps the next one
        step = before.step if step is None else step
        total = before.total if total is None else total
        done = _done(step, total, percent)
        ended = percent == WHOLE
        self.posted = Posted(
            step=step,
            total=total,
            percent=WHOLE if ended else None if done is None else int(WHOLE * done),
            metrics=_kept(values) or before.metrics,
            remaining=0.0 if ended else None if done is None else self._remaining(done, now),
        )

    def _remaining(self, done: float, now: float) -> float | None:
        if self._first is None or done < self._first[1]:
            self._first = (now, done)
        since, begin = self._first
        if done <= begin:
            return None
        left = (1.0 - done) / (done - begin) * (now - since)
        return round(left, 1) if left <= LARGEST_NUMBER else None


def _read(body: bytes) -> tuple[int | None, dict[str, object]]:
    """The percentage, and the metrics."""
    try:
        status = json.loads(body)["trainerStatus"]
        metrics_ = {m["name"]: m["value"] for m in status.get("metrics") or ()}
        percent = status.get("progressPercentage")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoPost('{"trainerStatus": {"progressPercentage", "metrics"}} was expected') from error
    known = isinstance(percent, int) and 0 <= percent <= WHOLE
    return percent if known else None, {str(name): value for name, value in metrics_.items()}


def _done(step: int | None, total: int | None, percent: int | None) -> float | None:
    """How much of the training is done, 0 to 1. A percentage counts where there are no steps: a
    Trainer that resumes begins at 0 per cent."""
    if total is not None:
        return None if step is None or total == 0 else min(step / total, 1.0)
    return None if percent is None else percent / WHOLE


def _whole(value: object) -> int | None:
    number = _number(value)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number if 0 <= number <= LARGEST_INTEGER else None


def _kept(values: Mapping[str, object]) -> dict[str, Any]:
    read = {name: found for name, value in values.items() if (found := _number(value)) is not None}
    kept: dict[str, Any] = json.loads(metrics.to_json(read))
    return kept


def _number(value: object) -> metrics.Metric | None:
    """A metric, which travels as a text."""
    if not isinstance(value, str):
        return value if isinstance(value, (int, float)) else None
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return value
