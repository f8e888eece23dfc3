"""A log in which all tasks of a program are done, as if they had run."""

from __future__ import annotations

import base64
import hashlib
import itertools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainrun.tasks.calls import Call
from trainrun.tasks.records import Batch, Began, Dispatched, Done, Output, Record


@dataclass
class Collected:
    """Stands in for a program: takes calls and runs none."""

    calls: list[Call] = field(default_factory=list)

    def call(self, call: Call) -> None:
        self.calls.append(call)


def batches(calls: list[Call], size: int) -> Iterator[Batch]:
    """`size` tasks in each; the n-th has returned n."""
    began = Began(session="seed")
    yield Batch(session="seed", records=(began,))
    numbered = iter(enumerate(calls))
    while some := list(itertools.islice(numbered, size)):
        records = itertools.chain.from_iterable(_done(call, value) for value, call in some)
        yield Batch(session="seed", records=tuple(records))


def _done(call: Call, value: int) -> tuple[Record, Record]:
    data = pickle.dumps(value, protocol=5)
    output = Output(
        digest=hashlib.sha256(data).hexdigest(),
        size=len(data),
        inline=base64.b64encode(data).decode(),
    )
    begun = Dispatched(
        key=call.key,
        generation=1,
        number=1,
        worker=0,
        function=call.function,
        arguments=call.shown,
        parents=call.parents,
        code=call.code,
    )
    done = Done(key=call.key, generation=1, number=1, worker=0, seconds=0.0, outputs=(output,))
    return begun, done
