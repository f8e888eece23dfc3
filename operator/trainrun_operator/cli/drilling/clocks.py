"""Metrics that tell about the machine rather than about the training, and differ from run to run.

Layer: cli; pure. By whole words of their names: `loss_per_step` is no `per_s`, `beta` no `eta`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun.contract.metrics import Metric

DIGITS = 6
"""Behind the point. No clock says the same twice where it says more than these."""

_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z]+")
_MEMORY = re.compile(r"_(?:v?ram|[cg]pu_?mem(?:ory)?|mem(?:ory)?)_(?!.*loss)")
_TIME = re.compile(
    r"_(?:(?:run|wall|up|step|iter|batch|epoch|data|train|load|cpu|gpu)?time|timers?|timestamp"
    r"|ms|[mnu]?secs?|(?:milli|micro|nano)?seconds|eta|elapsed|duration|latency"
    r"|per_s|per_second|s_per|speed|throughput|util|utili[sz]ation|[kmgtp]?flops|[mh]fu"
    r")_(?!.*loss)"  # what is a loss in the end is none: duration_loss
)


_TRAINING = re.compile(
    r"loss|perplex|ppl|accura|objective|_(?:acc|top\d|err|error|errors|reward|return|score|norm|grad"
    r"|auc|f1|bleu|rouge|r?mse|mae|nll|bp[bc]|ce|kl|elbo|wer|cer|m?ap|m?iou|dice|psnr|ssim|fid"
    r"|entropy|cost)_"
)
_COUNT = re.compile(r"_(?:epochs?|steps?|iters?|tokens|samples|progress|seen|lr|learning_?rate)_")


def about_training(name: str) -> bool:
    """Whether a metric is named after what is trained: a loss, a score, a gradient."""
    return _TRAINING.search(_words(name)) is not None


def about_progress(name: str) -> bool:
    """Whether a metric is named after what follows from the step alone, as a learning rate."""
    return _COUNT.search(_words(name)) is not None


def about_memory(name: str) -> bool:
    """Whether a metric is named after memory of the machine."""
    return _MEMORY.search(_words(name)) is not None


def about_time(name: str) -> bool:
    """Whether a metric is named after time, or what is measured by it."""
    return _TIME.search(_words(name)) is not None


def about_machine(name: str) -> bool:
    """Either of them."""
    return about_time(name) or about_memory(name)


def computed(values: Iterable[Metric]) -> bool:
    """Whether values that two runs have told alike come from no clock."""
    return any(isinstance(value, float) and round(value, DIGITS) != value for value in values)


def _words(name: str) -> str:
    """`_train_tokens_per_sec_` of `train/tokensPerSec`."""
    return f"_{_BOUNDARY.sub('_', name).lower()}_"
