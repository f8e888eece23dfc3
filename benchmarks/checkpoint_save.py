"""What checkpoints cost a training: medians of interleaved rounds, with their bounds.

    make bench-checkpoint-save [ROUNDS=7] [MEGABYTES=400]

Exits with 1 if a figure misses its "must". Layer: benchmarks.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from dataclasses import dataclass

import torch
from torch import nn

from trainrun._process import session
from trainrun.torch import State

WIDTH = 1024


@dataclass(frozen=True)
class Figure:
    """A row of the table."""

    what: str
    measured: float
    must: float
    aim: float
    seconds: str
    good: bool


def main() -> int:
    """Measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=400)
    given = parser.parse_args()
    torch.set_num_threads(1)
    figures = [stall_of_a_save(given.rounds, given.megabytes)]
    print("| what | must | aim | measured | medians | |\n|---|---|---|---|---|---|")
    for each in figures:
        verdict = "good" if each.good else "MISSED"
        print(
            f"| {each.what} | {each.must:g} | {each.aim:g} | {each.measured:.2f} "
            f"| {each.seconds} | {verdict} |"
        )
    return 0 if all(each.good for each in figures) else 1


def stall_of_a_save(rounds: int, megabytes: int) -> Figure:
    """How long `save(wait=False)` holds up the loop, against copying as many bytes once, warm."""
    size = megabytes * 1_000_000
    layers = max(1, size // (3 * 4 * (WIDTH * WIDTH + WIDTH)))  # weights and two moments of Adam
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    optimizer = torch.optim.Adam(net.parameters())
    state = State(model=net, optimizer=optimizer, rng=True)
    source, target = torch.ones(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    stalls, copies, waits = [], [], []
    for step in range(1, rounds + 2):
        net(torch.ones(1, WIDTH)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        begun = time.perf_counter()
        ctypes.memmove(target.data_ptr(), source.data_ptr(), size)
        copied = time.perf_counter()
        state.save(step, wait=False)
        saved = time.perf_counter()
        session.current().await_background()  # so that each save finds a machine at rest
        if step > 1:  # the first one allocates
            copies.append(copied - begun)
            stalls.append(saved - copied)
            waits.append(time.perf_counter() - saved)
    ratio = statistics.median(a / b for a, b in zip(stalls, copies, strict=True))
    stall = statistics.median(stalls)
    return Figure(
        what=f"stall of save(wait=False), {megabytes} MB / a warm memcpy of it",
        measured=ratio,
        must=2.0,
        aim=1.3,
        seconds=f"{stall * 1000:.0f} / {statistics.median(copies) * 1000:.0f} ms, "
        f"then {statistics.median(waits):.2f} s of writing",
        good=ratio <= 2.0 or stall <= 0.1,
    )


if __name__ == "__main__":
    sys.exit(main())
