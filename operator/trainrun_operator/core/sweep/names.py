"""What the runs of trials, and their folders, are called.

Layer: core, pure. A run is named after the opening, so that one that failed can stay for its logs
while the next one works; a folder after the incarnation, so that the next opening finds the
checkpoints.
"""

from __future__ import annotations

from trainrun.sweep.view import TrialView


def run_name(sweep: str, trial: TrialView) -> str:
    """`lr-search-00042`, and for later openings `lr-search-00042-o2`."""
    return f"{sweep}-{trial.number:05}" + (f"-o{trial.opening}" if trial.opening > 1 else "")


def folder_name(trial: TrialView) -> str:
    """`00042`, and for later incarnations `00042-i2`."""
    return f"{trial.number:05}" + (f"-i{trial.incarnation}" if trial.incarnation > 1 else "")
