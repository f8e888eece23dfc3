"""What checkpoints cost a training: medians of interleaved rounds, with their bounds.

    make bench-checkpoint-save [ROUNDS=7] [MEGABYTES=400]

Exits with 1 if a figure misses its "must". Layer: benchmarks.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import statistics
import sys
import time
from dataclasses import dataclass

import torch
from torch import nn

from trainrun._process import session
from trainrun.torch import State

WIDTH = 1024
EVERY = 2.0
"""Seconds between two saves."""


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
    figures = [
        stall_of_a_save(given.rounds, given.megabytes),
        loop_with_saves(given.rounds, given.megabytes),
    ]
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
    net, optimizer, state = training(size)
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
        seconds=f"{stall * 1000:.0f} ({min(stalls) * 1000:.0f} to {max(stalls) * 1000:.0f}) / "
        f"{statistics.median(copies) * 1000:.0f} ms, "
        f"then {statistics.median(waits):.2f} s of writing",
        good=ratio <= 2.0 or stall <= 0.1,
    )


def loop_with_saves(rounds: int, megabytes: int) -> Figure:
    """A step of a loop that saves without waiting every EVERY seconds, against one without."""
    net, optimizer, state = training(megabytes * 1_000_000)
    inputs, saves = torch.ones(64, WIDTH), itertools.count(1_000)  # a later step each time

    def seconds_of_a_step(*, saving: bool) -> float:
        begun, saved, steps = time.perf_counter(), time.perf_counter(), 0
        while (now := time.perf_counter()) - begun < 5 * EVERY:
            net(inputs).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if saving and now - saved >= EVERY:
                state.save(next(saves), wait=False)
                saved = now
        took = (time.perf_counter() - begun) / steps
        session.current().await_background()
        return took

    seconds_of_a_step(saving=True)  # allocates
    pairs = [
        (seconds_of_a_step(saving=True), seconds_of_a_step(saving=False)) for _ in range(rounds)
    ]
    ratios = [saving / without for saving, without in pairs]
    return Figure(
        what=f"a step of a loop that saves {megabytes} MB every {EVERY:g} s / without saves",
        measured=statistics.median(ratios),
        must=1.10,
        aim=1.03,
        seconds=f"{min(ratios):.2f} to {max(ratios):.2f}, "
        f"steps of {statistics.median(without for _, without in pairs) * 1000:.0f} ms",
        good=statistics.median(ratios) <= 1.10,
    )


def training(size: int) -> tuple[nn.Module, torch.optim.Optimizer, State]:
    """A model whose weights and optimizer have about `size` bytes."""
    layers = max(1, size // (3 * 4 * (WIDTH * WIDTH + WIDTH)))  # weights and two moments of Adam
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    optimizer = torch.optim.Adam(net.parameters())
    return net, optimizer, State(model=net, optimizer=optimizer, rng=True)


if __name__ == "__main__":
    sys.exit(main())
