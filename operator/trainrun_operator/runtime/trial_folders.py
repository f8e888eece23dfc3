"""The folders of a sweep's trials: what they tell of reports, what of them is not needed any more.

Layer: runtime.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace

from trainrun.checkpoint.ownership import of_other_params
from trainrun.checkpoint.retention import clear_checkpoints
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.sweep_log import TrialReports
from trainrun.contract import layout
from trainrun.errors import StoreDenied
from trainrun.sweep.records import TrialReport
from trainrun.sweep.targets import EndedRun, Targets
from trainrun.sweep.view import SweepView, TrialView

_log = logging.getLogger("trainrun.sweep")


def trial_folder(sweep: RunStore, trial: TrialView) -> RunStore:
    """That of a trial's incarnation, below the folder of its sweep."""
    folder = layout.sweep_trial_folder(trial.number, trial.incarnation)
    return RunStore(sweep.store, f"{sweep.run_name}/{folder}")


@dataclass
class _Folder:
    reports: TrialReports
    unheard: list[TrialReport] = field(default_factory=list)
    """Those that the log may not have."""


@dataclass
class TrialFolders:
    """Those of one sweep."""

    sweep: RunStore
    """The sweep's own folder."""
    _folders: dict[tuple[int, int], _Folder] = field(default_factory=dict)
    """By trial and incarnation."""

    def read_on(self, view: SweepView, metric: str) -> tuple[TrialReport, ...]:
        """All that open trials have reported and the log does not hold. Raises StoreError."""
        open_trials = [trial for trial in view.trials.values() if trial.open]
        found = [self._read(trial, metric) for trial in open_trials]
        known = {(trial.number, trial.incarnation) for trial in open_trials}
        self._folders = {key: it for key, it in self._folders.items() if key in known}
        return tuple(report for reports in found for report in reports)

    def complete(self, targets: Targets, view: SweepView) -> Targets:
        """Say of runs that have ended what their folders say: all that they have reported was read
        since the order came. Raises StoreError."""
        return replace(targets, ended=tuple(self._completed(run, view) for run in targets.ended))

    def _read(self, trial: TrialView, metric: str) -> list[TrialReport]:
        folder = self._of(trial, metric)
        folder.unheard += folder.reports.read_on()
        folder.unheard = [it for it in folder.unheard if it.seq > trial.heard.get(it.attempt, 0)]
        return folder.unheard

    def _of(self, trial: TrialView, metric: str) -> _Folder:
        key = (trial.number, trial.incarnation)
        if key not in self._folders:
            reports = TrialReports(
                run=trial_folder(self.sweep, trial),
                trial=trial.number,
                incarnation=trial.incarnation,
                metric=metric,
            )
            self._folders[key] = _Folder(reports)
        return self._folders[key]

    def _completed(self, run: EndedRun, view: SweepView) -> EndedRun:
        trial = view.trials.get(run.trial)
        folder = trial and self._folders.get((trial.number, trial.incarnation))
        if not folder or not run.attempt:
            return run
        reports = folder.reports
        return replace(
            run,
            seq=reports.heard(run.attempt),
            resumed=reports.resumed(run.attempt),
            metrics=tuple(reports.others),
        )


class RetiredFolders:
    """Those of one sweep; who begins anew looks once at each folder that was cleared before."""

    def __init__(self, sweep: RunStore) -> None:
        """`sweep` is the sweep's own folder."""
        self._sweep = sweep
        self._cleared: set[tuple[int, int]] = set()
        """By trial and incarnation."""

    def clear(self, targets: Targets, view: SweepView) -> None:
        """Delete the checkpoints of trials that are not needed any more; where that is not allowed
        they stay, as with `checkpoint.keep`, and nothing waits for it. Raises StoreError."""
        for number in targets.cleared:
            trial = view.trials.get(number)
            if trial is None or trial.open:
                continue  # of another log than the one that the order came from
            for incarnation in range(trial.first, trial.incarnation + 1):
                if (number, incarnation) not in self._cleared:
                    self._clear(replace(trial, incarnation=incarnation))
                    self._cleared.add((number, incarnation))

    def _clear(self, trial: TrialView) -> None:
        run = trial_folder(self._sweep, trial)
        if of_other_params(run, json.dumps(dict(trial.params))):
            return  # it errored at the folder of a trial that the log does not know
        try:
            clear_checkpoints(run)
        except StoreDenied as error:
            _log.warning("%s: its checkpoints stay: %s", run.uri, error)
