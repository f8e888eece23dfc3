"""How long the steps of trainings take in 24 hours: ways in which real ones differ.

Each trace is endless; a pause is one in which no step ends. `idle`: its processes use no CPU then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MINUTE, HOUR = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class Step:
    """One that is reported after so many seconds."""

    seconds: float
    idle: bool = False
    """The longer part of it is a wait without CPU and I/O."""
    restarts: bool = False
    """Before it the processes were started anew: it is the first one of an attempt."""


Trace = Callable[[random.Random], Iterator[Step]]


def around(rng: random.Random, seconds: float, part: float = 0.1) -> float:
    return rng.uniform(1.0 - part, 1.0 + part) * seconds


def steps_for(rng: random.Random, total: float, each: float) -> Iterator[Step]:
    passed = 0.0
    while passed < total:
        step = Step(around(rng, each))
        passed += step.seconds
        yield step


def steady(rng: random.Random) -> Iterator[Step]:
    yield Step(20.0)
    while True:
        yield Step(around(rng, 0.7))


def evaluation_every_hour(rng: random.Random) -> Iterator[Step]:
    """Without a long_section()."""
    yield Step(30.0)
    while True:
        yield from steps_for(rng, HOUR, 0.8)
        yield Step(rng.uniform(4.0, 6.0) * MINUTE)


def compiling(rng: random.Random) -> Iterator[Step]:
    """At the start, for two other shapes soon after it, and for the evaluation."""
    yield Step(9.0 * MINUTE)
    yield from steps_for(rng, 20.0, 0.6)
    yield Step(4.0 * MINUTE)
    yield from steps_for(rng, 30.0, 0.6)
    yield Step(2.5 * MINUTE)
    yield from steps_for(rng, 2.0 * HOUR, 0.6)
    yield Step(6.0 * MINUTE)
    while True:
        yield Step(around(rng, 0.6))


def slow_storage(rng: random.Random) -> Iterator[Step]:
    """Now and then a read takes very long, and everybody waits."""
    yield Step(60.0)
    while True:
        yield from steps_for(rng, rng.expovariate(1 / 200.0), 2.0)
        yield Step(min(4.0 * rng.paretovariate(1.6), 4.0 * MINUTE), idle=True)


def growing_sequences(rng: random.Random) -> Iterator[Step]:
    yield Step(90.0)
    passed = 0.0
    while True:
        step = Step(around(rng, 0.5 + 30.0 * passed / (24.0 * HOUR)))
        passed += step.seconds
        yield step


def hiccups_of_the_loader(rng: random.Random) -> Iterator[Step]:
    yield Step(25.0)
    while True:
        yield from steps_for(rng, rng.uniform(100.0, 300.0), 0.6)
        yield Step(rng.uniform(3.0, 50.0), idle=True)


def long_checkpoints(rng: random.Random) -> Iterator[Step]:
    """The training waits for one each half an hour, and for an export every six hours."""
    yield Step(45.0)
    while True:
        for _ in range(12):
            yield from steps_for(rng, HOUR / 2, 1.2)
            yield Step(rng.uniform(1.0, 2.5) * MINUTE)
        yield Step(10.0 * MINUTE)


def epochs(rng: random.Random) -> Iterator[Step]:
    """At their ends the loader's processes are started anew, and the data is shuffled."""
    yield Step(40.0)
    while True:
        yield from steps_for(rng, 25.0 * MINUTE, 0.9)
        yield Step(rng.uniform(40.0, 100.0))


def warm_restarts(rng: random.Random) -> Iterator[Step]:
    """An attempt of two hours or so after the other; some end before their first evaluation."""
    while True:
        yield Step(rng.uniform(2.0, 6.0) * MINUTE, restarts=True)
        for _ in range(rng.randrange(4)):
            yield from steps_for(rng, HOUR, 1.0)
            yield Step(rng.uniform(3.0, 4.5) * MINUTE)
        yield from steps_for(rng, rng.uniform(1.0, 40.0) * MINUTE, 1.0)


def bucketed_batches(rng: random.Random) -> Iterator[Step]:
    yield Step(50.0)
    while True:
        yield Step(around(rng, rng.choices([0.5, 3.0, 20.0], [70, 29, 1])[0]))


def one_report_an_epoch(rng: random.Random) -> Iterator[Step]:
    while True:
        yield Step(around(rng, 20.0 * MINUTE, 0.2))


TRACES: dict[str, Trace] = {
    trace.__name__: trace
    for trace in (
        steady,
        evaluation_every_hour,
        compiling,
        slow_storage,
        growing_sequences,
        hiccups_of_the_loader,
        long_checkpoints,
        epochs,
        warm_restarts,
        bucketed_batches,
        one_report_an_epoch,
    )
}
