"""Staged steps of one worker, and ranks that bring files for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainrun.agent.checkpoints.staged import StagedSteps
from trainrun.contract.messages import Report


def staging(*ranks: int) -> StagedSteps:
    return StagedSteps(ranks or (0, 1))


def bring(
    steps: StagedSteps,
    rank: int,
    step: int,
    *,
    after_save: bool = False,
    now: float = 0.0,
    **more: Any,
) -> bool:
    report = Report(step=step, left="new", **more)
    wanted = steps.bring(rank, report, Path(f"{rank}/{step}"), after_save=after_save, now=now)
    steps.reports(rank, step)
    return wanted
