"""A pod deleted with force, until all ranks have made an optimizer step again: warm against cold.

Each round is a fresh gang of three PyTorch ranks on three nodes, with standbys and without, in
turns. With them the two that stay have one ready, and the replacement preloads while the gang
gathers.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks.on_cluster.figures import tell
from benchmarks.on_cluster.gang import PAUSE
from benchmarks.on_cluster.trainers import RANKS, STAGES, Trainers
from testbed.faults import pods
from tests.e2e.support.bed import Bed

LIMIT = 0.8
NOTED = 15.0
"""Seconds after the first step within which the status says how it came about."""


def recovery(bed: Bed, name: str, folder: Path, *, turn: int, warm: bool) -> dict[str, float]:
    """Seconds from the deletion until the last rank came to each stage."""
    trainers = Trainers.start(bed, name, folder=folder, warm=warm)
    trainers.stepped(1)
    trainers.wait_for_standbys()
    time.sleep(PAUSE)
    # The attempt that is struck: on a busy machine there may have been another before.
    struck = trainers.run.status["attempt"]
    victim = trainers.pod(turn % RANKS)
    deleted = time.time()
    pods.delete(bed.cluster, victim, namespace=bed.namespace, grace_seconds=0)
    reached = trainers.stepped(struck + 1)
    if warm:
        print(f"    {_warm_ranks(trainers, struck)} of {RANKS} ranks began warm", flush=True)
    return {stage: moment - deleted for stage, moment in reached.items()}


def _warm_ranks(trainers: Trainers, struck: int) -> int:
    """As the status says it, which follows the step."""
    deadline = time.monotonic() + NOTED
    while not (found := trainers.warm_ranks(struck)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def tell_rounds(warm: list[dict[str, float]], cold: list[dict[str, float]]) -> None:
    """What came out of all rounds."""
    for name, rounds in (("warm", warm), ("cold", cold)):
        tell(f"pod deleted with force -> first step, {name}", [each["step"] for each in rounds])
        shown = (f"{stage} {median(each[stage] for each in rounds):.2f}" for stage in STAGES)
        print(f"    {', '.join(shown)}", flush=True)
    ratios = [a["step"] / b["step"] for a, b in zip(warm, cold, strict=True)]
    tell("    ratio, warm over the cold one of its round", ratios, limit=LIMIT, unit="times")
