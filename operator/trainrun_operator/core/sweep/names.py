"""What the runs of trials, and their folders, are called.

Layer: core, pure. A run is named after the opening, so that one that failed can stay for its logs
while the next one works; a folder after the incarnation, so that the next opening finds the
checkpoints.
"""

from __future__ import annotations

from trainrun.contract import layout
from trainrun.sweep.view import TrialView


def run_name(sweep: str, trial: TrialView) -> str:
    """`lr-search-00042`, and for later openings `lr-search-00042-o2`."""
    return f"{sweep}-{trial.number:05}" + (f"-o{trial.opening}" if trial.opening > 1 else "")


def folder_name(trial: TrialView) -> str:
    """`00042`, and for later incarnations `00042-i2`."""
    folder = layout.sweep_trial_folder(trial.number, trial.incarnation)
    return folder.removeprefix(layout.SWEEP_TRIALS)


def displaced(trial: TrialView) -> str:
    """What to say of a trial that could not get the folder of its number; empty: it has got it."""
    if trial.first == 1:
        return ""
    return (
        f"trial {trial.number} begins in the new folder {folder_name(trial)}: {trial.number:05} "
        "holds a trial whose records the log has lost, and stays as it is"
    )
