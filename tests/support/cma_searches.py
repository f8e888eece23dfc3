"""Searches by CMA-ES over functions whose best point is known."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.support.sweeps import a_search, a_view, told
from trainrun._samplers.cma_sampler import CmaSampler
from trainrun.sweep import clerk
from trainrun.sweep.records import Ask, Targets, Tell, written
from trainrun.sweep.search import FloatRange, IntRange, OneOf, Parameter, Search
from trainrun.sweep.view import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainrun.sweep.view import SweepView

SPACE = (
    Parameter("x", FloatRange(-5.0, 5.0)),
    Parameter("lr", FloatRange(1e-5, 0.1, log=True)),
    Parameter("layers", IntRange(2, 12, step=2)),
    Parameter("width", IntRange(1, 512, log=True)),
    Parameter("dropout", FloatRange(0.0, 0.3, step=0.1)),
    Parameter("kind", OneOf((1, True, "one", 1.5))),
    Parameter("extra", FloatRange(0.0, 1.0), when=(("kind", ("one",)),)),
)
CUBE = tuple(Parameter(name, FloatRange(-10.0, 10.0)) for name in "abcd")


def search_of(space: tuple[Parameter, ...] = SPACE, **changes: Any) -> Search:
    return replace(a_search(), **{"space": space, "sampler": "CmaEs", "seed": 7, **changes})


def loss(params: Mapping[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + abs(math.log10(params["lr"]) + 3) + params["layers"])


def bowl(params: Mapping[str, Any]) -> float:
    wanted = {"a": 3.0, "b": -6.0, "c": 0.5, "d": 7.0}
    return float(sum((params[name] - wanted[name]) ** 2 for name in wanted))


def ask(view: SweepView, search: Search, sampler: CmaSampler | None = None) -> Ask:
    """By one that knows nothing, where none is given."""
    targets = Targets(session=view.sessions[-1], asked=view.asked + 1)
    record = clerk.next_record(view, targets, search, suggest=sampler or CmaSampler())
    assert isinstance(record, Ask)
    assert record.fallback == ""
    return record


def ended(number: int, value: float, **changes: Any) -> Tell:
    return told(number, value=written(value), step=1, **changes)


def searched(
    search: Search,
    trials: int,
    of: Callable[[Mapping[str, Any]], float] = loss,
    *,
    at_once: int = 1,
) -> SweepView:
    """With so many at work at the same time, each for a time of its own."""
    view, sampler, dice = a_view(), CmaSampler(), random.Random(3)
    working: list[tuple[float, int]] = []
    now = 0.0
    for number in range(trials):
        if len(working) == at_once:
            now, first = heapq.heappop(working)
            view = apply(view, ended(first, of(view.trials[first].params)))
        view = apply(view, ask(view, search, sampler))
        heapq.heappush(working, (now + dice.uniform(1, 3), number))
    for _, number in sorted(working):
        view = apply(view, ended(number, of(view.trials[number].params)))
    return view


def best(view: SweepView) -> float:
    return min(it.value for it in view.trials.values() if it.value is not None)
