"""The work of a sweep's clerk, but for its line to the operator: one round of it.

Layer: runtime. Everything it knows it has from the store, so it may die at any moment, and two may
live. By the last orders it goes on without an operator: trials that are too bad are told as such.
Who chooses the parameters of trials stands here by the name of a sampler, then what the folders of
trials tell and what of them is not needed any more, then the round.
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
"""Seconds for which trials count as at work while neither the operator nor a report says so."""

_log = logging.getLogger("trainrun.sweep")


def suggest_of(sampler: SamplerName, *, where: str = "spec.sampler.name") -> Suggest:
    """What chooses parameters by this sampler; to be kept, since it is faster the next time.

    Raises InvalidSpec where its library is missing.
    """
    match sampler:
        case "Random" | "Grid":
            return by_chance
        case "CmaEs":
            return _by_cmaes(where)
        case "TPE" | "QMC":
            return _by_optuna(sampler, where)


# Both libraries take a second to load, which others need not wait.


def _by_cmaes(where: str) -> Suggest:
    try:
        # For one of its other methods it would load this, which takes another second.
        with _left_out("scipy.stats"):
            from trainrun._samplers.cma_sampler import CmaSampler  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSpec(f"{where}: {_without('CmaEs', 'cmaes', error)}") from error
    return CmaSampler()


@contextmanager
def _left_out(module: str) -> Iterator[None]:
    """Whoever imports this module meanwhile is told that there is none, unless it is loaded."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # Python's sign for that
    try:
        yield
    finally:
        sys.modules.pop(module, None)


def _by_optuna(sampler: SamplerName, where: str) -> Suggest:
    if sampler == "QMC" and importlib.util.find_spec("scipy") is None:
        raise InvalidSpec(
            f"{where}: QMC needs scipy, which is not here: pip install 'trainrun[sweep]'; in a "
            "cluster, an operator's image built with --build-arg QMC=1"
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


class Stopwatch:
    """Of one sweep."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._at = clock()
        self._running = False

    def seconds(self, *, running: bool) -> float:
        """So many by now; from here on trials are at work, or none is."""
        now = self._clock()
        if self._running:
            self._seconds += now - self._at
        self._at, self._running = now, running
        return self._seconds

    def less(self, seconds: float) -> None:
        """So many stand in a record now."""
        self._seconds -= seconds


class ClerkWork:
    """Of one clerk of one sweep."""

    def __init__(
        self,
        folder: RunStore,
        *,
        sweep_uid: str,
        clock: Callable[[], float] = time.monotonic,
        volume: int = VOLUME,
    ) -> None:
        """`folder` is the sweep's, `volume` as a `SweepLog` has it."""
        self._uid = sweep_uid
        self._records: list[LogEntry] = []
        """The whole log: operators begin with nothing."""
        self._log = SweepLog(folder, on_record=self._keep, volume=volume)
        self._folders = TrialFolders(folder)
        self._retired = RetiredFolders(folder)
        self._sampler: Suggest | None = None
        """Made with the first orders: it can never be another one."""
        self._clock = clock
        self._worked = Stopwatch(clock)
        self._at_work = clock()
        """When somebody has said so last."""
        self._trouble: ClerkUnknown | None = None
        self._search: tuple[dict[str, Any], Search] | None = None
        """The last one, and the spec that it was read from."""
        self.orders = ClerkOrders()
        """What it goes by, until others come."""

    @property
    def view(self) -> SweepView:
        """What the log says, as far as it was read."""
        return self._log.view

    def hear(self, orders: ClerkOrders) -> None:
        """From now on it goes by these."""
        self.orders, self._at_work = orders, self._clock()

    @property
    def busy(self) -> bool:
        """Something may come to be stored, or could not be done."""
        return bool(self._log.view.count("Open") or self._trouble)

    def settle(self) -> None:
        """Read the log, and bring it to what is wanted; what stands in the way is told."""
        try:
            self.do()
        except (StoreError, SweepLogDamaged, InvalidSpec) as error:
            self._trouble = ClerkUnknown(reason=_reason(error), message=str(error))
        else:
            self._trouble = None

    def do(self) -> None:
        """The same, where whoever calls sees to what stands in the way. Raises StoreError,
        SweepLogDamaged, InvalidSpec."""
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
        """What the operator is told."""
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
        # Whoever has said so may be gone since, and the trials may have ended.
        running = self.orders.working and now - self._at_work < BELIEVED
        active = self._worked.seconds(running=running)
        view = self._log.settle(targets, search, active=active, stored=stored)
        if view.counted_at != counted:
            self._worked.less(active)

    def _searched(self, spec: dict[str, Any]) -> Search:
        """What this spec searches. Raises InvalidSpec where it is that of another version."""
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
