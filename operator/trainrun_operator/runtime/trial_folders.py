"""The folders of a sweep's trials, and what of them is not needed any more.

Layer: runtime.
"""

from __future__ import annotations

from trainrun.checkpoint import RunStore
from trainrun.checkpoint.trial_retention import clear_checkpoints
from trainrun.sweep.targets import Targets
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.core.sweep.names import folder_name
from trainrun_operator.core.sweep.trial import TRIALS


def trial_folder(sweep: RunStore, trial: TrialView) -> RunStore:
    """That of a trial's incarnation, below the folder of its sweep."""
    return RunStore(sweep.store, f"{sweep.run_name}/{TRIALS}/{folder_name(trial)}")


class RetiredFolders:
    """Those of one sweep; who begins anew looks once at each folder that was cleared before."""

    def __init__(self, sweep: RunStore) -> None:
        """`sweep` is the sweep's own folder."""
        self._sweep = sweep
        self._cleared: set[str] = set()

    def clear(self, targets: Targets, view: SweepView) -> None:
        """Delete the checkpoints of trials that are not needed any more. Raises StoreError."""
        for number in targets.cleared:
            trial = view.trials.get(number)
            if trial is None or trial.open:
                continue  # of another log than the one that the order came from
            run = trial_folder(self._sweep, trial)
            if run.run_name not in self._cleared:
                clear_checkpoints(run)
                self._cleared.add(run.run_name)
