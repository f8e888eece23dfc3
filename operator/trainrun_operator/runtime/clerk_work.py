"""One round of work of a sweep's clerk, without its connection to the operator.

Layer: runtime. The clerk gets everything from the store, so it may die at any moment, and two may
live. Without an operator it follows the last orders, and still ends bad trials early. This module
has, in this order: the samplers by name, the folders of trials and their cleanup, the round.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from trainrun.checkpoint.numbered_log import VOLUME
from trainrun.checkpoint.ownership import of_other_params
from trainrun.checkpoint.retention import clear_checkpoints
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.sweep_log import SweepLog, TrialReports
from trainrun.contract import layout
from trainrun.errors import (
    InvalidSpec,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    SweepLogDamaged,
)
from trainrun.sweep.clerk import Suggest
from trainrun.sweep.records import EndedRun, LogEntry, Record, Targets, TrialReport
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.search import SamplerName, Search
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.sweep.spec import TrainSweepSpec
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.clerking import (
    REFUSED,
    ClerkOrders,
    ClerkState,
    piece,
)
from trainrun_operator.core.sweep.config import search_of

BELIEVED = 60.0
"""Seconds for which trials count as at work without a sign from the operator or a report."""

_log = logging.getLogger("trainrun.sweep")


def suggest_of(sampler: SamplerName, *, where: str = "spec.sampler.name") -> Suggest:
    """The function that chooses parameters with this sampler. Reuse it: later calls are faster.

    Raises InvalidSpec if its library is missing.
    """
    match sampler:
        case "Random" | "Grid":
            return by_chance
        case "CmaEs":
            return _by_cmaes(where)
        case "TPE" | "QMC":
            return _by_optuna(sampler, where)


# Both libraries take a second to load, which other samplers do not need.


def _by_cmaes(where: str) -> Suggest:
    try:
        # cmaes would import this for another method, which takes a second more.
        with _left_out("scipy.stats"):
            from trainrun._samplers.cma_sampler import CmaSampler  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSpec(f"{where}: {_without('CmaEs', 'cmaes', error)}") from error
    return CmaSampler()


@contextmanager
def _left_out(module: str) -> Iterator[None]:
    """Imports of this module fail meanwhile, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # makes Python's import fail
    try:
        yield
    finally:
        sys.modules.pop(module, None)


def _by_optuna(sampler: SamplerName, where: str) -> Suggest:
    if sampler == "QMC" and importlib.util.find_spec("scipy") is None:
        raise InvalidSpec(
            f"{where}: QMC needs scipy, which is not installed: pip install 'trainrun[sweep]'; in "
            "a cluster, use an operator's image built with --build-arg QMC=1"
        )
    try:
        from trainrun._samplers.optuna_study import OptunaSampler  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSpec(f"{where}: {without_optuna(sampler, error)}") from error
    return OptunaSampler()


def without_optuna(who: str, error: ImportError) -> str:
    """Why `who` cannot work here, and the remedy."""
    return _without(who, "Optuna", error)


def _without(who: str, library: str, error: ImportError) -> str:
    return (
        f"{who} needs {library}, which cannot be loaded here ({error}): "
        "pip install 'trainrun[sweep]'"
    )


def trial_folder(sweep: RunStore, trial: TrialView) -> RunStore:
    """The folder of a trial's incarnation, below the folder of its sweep."""
    folder = layout.sweep_trial_folder(trial.number, trial.incarnation)
    return RunStore(sweep.store, f"{sweep.run_name}/{folder}")


@dataclass
class _Folder:
    reports: TrialReports
    unrecorded: list[TrialReport] = field(default_factory=list)
    """Reports that the log may lack."""


@dataclass
class TrialFolders:
    """The folders of a sweep's open trials."""

    sweep: RunStore
    """The sweep's own folder."""
    _folders: dict[tuple[int, int], _Folder] = field(default_factory=dict)
    """By trial and incarnation."""

    def read_on(self, view: SweepView, metric: str) -> tuple[TrialReport, ...]:
        """All reports of open trials that the log lacks. Raises StoreError."""
        open_trials = [trial for trial in view.trials.values() if trial.open]
        found = [self._read(trial, metric) for trial in open_trials]
        open_keys = {(trial.number, trial.incarnation) for trial in open_trials}
        self._folders = {key: folder for key, folder in self._folders.items() if key in open_keys}
        return tuple(report for reports in found for report in reports)

    def complete(self, targets: Targets, view: SweepView) -> Targets:
        """`targets` with what the folders of ended runs show; all their reports were read after the
        order came. Raises StoreError."""
        return replace(targets, ended=tuple(self._completed(run, view) for run in targets.ended))

    def _read(self, trial: TrialView, metric: str) -> list[TrialReport]:
        folder = self._of(trial, metric)
        folder.unrecorded += folder.reports.read_on()
        folder.unrecorded = [
            report
            for report in folder.unrecorded
            if report.seq > trial.heard.get(report.attempt, 0)
        ]
        return folder.unrecorded

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
    """Deletes checkpoints of a sweep's ended trials. A new process checks each cleared folder once
    more."""

    def __init__(self, sweep: RunStore) -> None:
        """`sweep` is the sweep's own folder."""
        self._sweep = sweep
        self._cleared: set[tuple[int, int]] = set()
        """By trial and incarnation."""

    def clear(self, targets: Targets, view: SweepView) -> None:
        """Delete checkpoints that are no longer needed. If the store does not allow that, they
        stay, as with `checkpoint.keep`, and the sweep continues. Raises StoreError."""
        for number in targets.cleared:
            trial = view.trials.get(number)
            if trial is None or trial.open:
                continue  # the order came from another log
            for incarnation in range(trial.first, trial.incarnation + 1):
                if (number, incarnation) not in self._cleared:
                    self._clear(replace(trial, incarnation=incarnation))
                    self._cleared.add((number, incarnation))

    def _clear(self, trial: TrialView) -> None:
        run = trial_folder(self._sweep, trial)
        if of_other_params(run, json.dumps(dict(trial.params))):
            return  # the folder belongs to a trial that the log does not know
        try:
            clear_checkpoints(run)
        except StoreDenied as error:
            _log.warning("%s: the checkpoints stay: %s", run.uri, error)


class Stopwatch:
    """Measures a sweep's active time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._at = clock()
        self._running = False

    def seconds(self, *, running: bool) -> float:
        """Seconds measured so far. From now on time counts if `running`."""
        now = self._clock()
        if self._running:
            self._seconds += now - self._at
        self._at, self._running = now, running
        return self._seconds

    def less(self, seconds: float) -> None:
        """Subtract seconds that a record has counted."""
        self._seconds -= seconds


class ClerkWork:
    """The work of one clerk of one sweep."""

    def __init__(
        self,
        folder: RunStore,
        *,
        sweep_uid: str,
        clock: Callable[[], float] = time.monotonic,
        volume: int = VOLUME,
    ) -> None:
        """`folder` is the sweep's folder; `volume` as in `SweepLog`."""
        self._uid = sweep_uid
        self._records: list[LogEntry] = []
        """The whole log: new operators start with nothing."""
        self._log = SweepLog(folder, on_record=self._keep, volume=volume)
        self._folders = TrialFolders(folder)
        self._retired = RetiredFolders(folder)
        self._sampler: Suggest | None = None
        """Made with the first orders; a sweep's sampler never changes."""
        self._clock = clock
        self._worked = Stopwatch(clock)
        self._at_work = clock()
        """When the operator, or a report, last showed that trials are at work."""
        self._trouble: ClerkUnknown | None = None
        self._search: tuple[dict[str, Any], Search] | None = None
        """The last search, with its spec."""
        self.orders = ClerkOrders()
        """The newest orders."""

    @property
    def view(self) -> SweepView:
        """The view of the log, as far as it was read."""
        return self._log.view

    def hear(self, orders: ClerkOrders) -> None:
        """Follow these orders from now on."""
        self.orders, self._at_work = orders, self._clock()

    @property
    def busy(self) -> bool:
        """Whether trials may still store reports, or the last round failed."""
        return bool(self._log.view.count("Open") or self._trouble)

    def settle(self) -> None:
        """Read the log and write what is wanted; `state` reports any trouble."""
        try:
            self.do()
        except (StoreError, SweepLogDamaged, InvalidSpec) as error:
            self._trouble = ClerkUnknown(reason=_reason(error), message=str(error))
        else:
            self._trouble = None

    def do(self) -> None:
        """The same, but errors go to the caller. Raises StoreError, SweepLogDamaged,
        InvalidSpec."""
        orders = self.orders
        self._log.read_on()
        if orders.targets is None:
            return
        search = self._searched(orders.spec)
        if self._sampler is None:
            self._sampler = self._log.suggest = suggest_of(search.sampler)
        stored = self._folders.read_on(self._log.view, search.objective.metric)
        self._write(self._folders.complete(orders.targets, self._log.view), search, stored)
        self._retired.clear(orders.targets, self._log.view)

    def state(self) -> ClerkState:
        """The message for the operator."""
        known = min(self.orders.known, len(self._records))
        return ClerkState(
            sweep_uid=self._uid,
            position=self._log.view.position,
            sent_after=known,
            records=piece(tuple(self._records[known:])),
            trouble=self._trouble,
            seen=self.orders.digest,
        )

    def _write(self, targets: Targets, search: Search, stored: tuple[TrialReport, ...]) -> None:
        counted, now = self._log.view.counted_at, self._clock()
        if stored:
            self._at_work = now
        # The operator may be gone since, and the trials may have ended.
        running = self.orders.working and now - self._at_work < BELIEVED
        active = self._worked.seconds(running=running)
        view = self._log.settle(targets, search, active=active, stored=stored)
        if view.counted_at != counted:
            self._worked.less(active)

    def _searched(self, spec: dict[str, Any]) -> Search:
        """The search in this spec. Raises InvalidSpec if the spec has another version."""
        if self._search is None or self._search[0] != spec:
            try:
                self._search = spec, search_of(TrainSweepSpec.model_validate(spec))
            except ValueError as error:
                raise InvalidSpec(f"this clerk cannot read the spec: {error}") from error
        return self._search[1]

    def _keep(self, record: Record) -> None:
        self._records.append(LogEntry(record))


def _reason(error: StoreError | SweepLogDamaged | InvalidSpec) -> str:
    match error:
        case SweepLogDamaged():
            return "LogDamaged"
        case InvalidSpec():
            return "ClerkUnable"
        case StoreDenied() | StoreMisconfigured():
            return REFUSED
        case StoreError():
            return "StorageUnavailable"
