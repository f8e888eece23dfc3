"""Staged steps of one worker, and ranks that bring files for them."""

from __future__ import annotations

from pathlib import Path

from trainrun.agent.checkpoints.staged import StagedSteps


def staging(*ranks: int) -> StagedSteps:
    return StagedSteps(ranks or (0, 1))


def bring(steps: StagedSteps, rank: int, step: int, **more: object) -> bool:
    values = {"metrics": {}, "whole": False, "after_save": False, "now": 0.0, **more}
    wanted = steps.bring(rank, step, Path(f"{rank}/{step}"), **values)  # type: ignore[arg-type]
    steps.reports(rank, step)
    return wanted
