"""Which part of the training's state a metric, or an entry of a checkpoint, is of, by its name.

Layer: cli; pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

Part = Literal["Rate", "Data", "Random", "Weights"]

METRICS: dict[Part, re.Pattern[str]] = {
    "Rate": re.compile(r"(^|[/_.\-])lr([/_.\-\d]|$)|learning_?rate"),
    "Data": re.compile(r"(batch|data|sample|input)\w*[/_.\-]?(hash|digest|ids?$)"),
    "Random": re.compile(r"(rng|random|seed)\w*[/_.\-]?(hash|digest|state)"),
    "Weights": re.compile(r"(weight|param|model)\w*[/_.\-]?(hash|digest)"),
}
"""Metrics that say for certain what differs."""

ENTRIES: dict[Part, re.Pattern[str]] = {
    "Random": re.compile(r"rng|random|generator|mt19937"),
    "Data": re.compile(
        r"epoch|sampler|loader|cursor|position|place\b|offset|consumed|seen|batch|data\b|index"
    ),
    "Rate": re.compile(r"sched|(^|[._ ])lr\b"),
}
"""Entries that a resumed training counts on from what it has loaded: they differ only where that
was not loaded, while weights differ after anything else does."""


def of_state(metric: str) -> Part | None:
    """The part that a metric is named after."""
    name = metric.lower()
    return next((part for part, pattern in METRICS.items() if pattern.search(name)), None)


_OF_MODEL = re.compile(r"model|module|optim|weight|bias|norm|embed|tracked|exp_avg|momentum")


def parts_of(entries: Iterable[str]) -> set[Part]:
    """The parts that these entries (`file: path`) of checkpoints are of."""
    found: set[Part] = set()
    for entry in entries:
        path = entry.rpartition(": ")[2].lower()
        found |= {part for part, pattern in ENTRIES.items() if pattern.search(path)} - (
            {"Data"} if _OF_MODEL.search(path) else set()
        )
    return found
