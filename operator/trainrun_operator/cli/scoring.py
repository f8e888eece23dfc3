"""Which checkpoint is the best: by the metric of the run's file, or by the one that is asked for.

Layer: cli. A storage does not say by which metric its run keeps the best.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainrun.checkpoint.inspection import CheckpointInfo
from trainrun.checkpoint.selection import Score
from trainrun.errors import TrainRunError

if TYPE_CHECKING:
    from trainrun_operator.api.run.spec import CheckpointSpec
    from trainrun_operator.cli.sources import Source

BEST = "best"
"""Stands for a step on the command line."""


class UnknownScore(TrainRunError):
    """Nothing says what is the best, or it cannot be read."""


def score_of(spec: CheckpointSpec) -> Score | None:
    """The one that the file of a run names."""
    if spec.score_metric is None or spec.score_order is None:
        return None
    return Score(metric=spec.score_metric, order=spec.score_order)


def wanted_score(asked: str | None, run: Source) -> Score | None:
    """What is asked for as `NAME:Max` or `NAME:Min`, or else what the run's file says.

    Raises UnknownScore.
    """
    if asked is None:
        return run.score
    metric, _, order = asked.rpartition(":")
    if metric and order == "Max":
        return Score(metric=metric, order="Max")
    if metric and order == "Min":
        return Score(metric=metric, order="Min")
    raise UnknownScore(f"--score {asked}: write NAME:Max or NAME:Min, such as loss:Min")


def best(found: Iterable[CheckpointInfo], score: Score | None) -> CheckpointInfo | None:
    """The best good one; None where none has a number for the metric."""
    if score is None:
        return None
    good = {info.id: info for info in found if info.state == "good"}
    values = {
        key: value for key, info in good.items() if (value := score.of(info.metrics)) is not None
    }
    return good[score.best_first(values, values)[0]] if values else None
