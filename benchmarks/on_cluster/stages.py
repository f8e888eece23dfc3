"""Where the seconds of a recovery go: detect, decide, pods, barrier, spawn.

From the log of the operator, which names every stage when it begins, and from the status.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from statistics import median

from tests.e2e.support.installation import Installation

STAGES = ("detect", "decide", "pods", "barrier", "spawn")


def stages(
    installation: Installation, *, run: str, broken: float, spawned: float, attempt: int
) -> dict[str, float]:
    """Seconds of each stage of the restart that led to `attempt`; {} if the log does not tell."""
    lines = [
        (_time(entry["timestamp"]), entry["message"].removeprefix(f"{run}: "))
        for entry in _entries(installation.log())
        if entry["message"].startswith(f"{run}: ")
    ]
    after = [(at, text) for at, text in lines if broken <= at <= spawned + 1]
    ended = _first(after, f"attempt {attempt - 1} ended")
    gathering = _first(after, "Gathering:")
    resolving = _first(after, "Resolving:")
    started = _first(after, f"Started: attempt {attempt} ")
    if ended is None or started is None:
        return {}
    decided = gathering or resolving or ended
    placed = resolving or decided
    return {
        "detect": ended - broken,
        "decide": decided - ended,
        "pods": placed - decided,
        "barrier": started - placed,
        "spawn": spawned - started,
    }


def tell_stages(rounds: Sequence[dict[str, float]]) -> None:
    """One line with the median of each stage."""
    found = [each for each in rounds if each]
    if found:
        medians = (f"{name} {median(each[name] for each in found):.2f}" for name in STAGES)
        print("    " + ", ".join(medians), flush=True)


def _entries(log: str) -> list[dict[str, str]]:
    found = []
    for line in log.splitlines():
        _, _, text = line.partition("{")
        try:
            found.append(json.loads("{" + text))
        except ValueError:
            continue  # a traceback
    return [entry for entry in found if "timestamp" in entry and "message" in entry]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _first(lines: Sequence[tuple[float, str]], what: str) -> float | None:
    return next((at for at, text in lines if what in text), None)
