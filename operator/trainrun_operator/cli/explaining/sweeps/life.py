"""A search's life put together: its log, and the lives of the trials that had trouble.

Layer: cli. The log alone tells of every trial. Folders of trials are read only where something went
wrong, at most MOST_READ of them: a search of a thousand trials is told as fast as one of ten.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from trainrun.checkpoint.run_store import READERS
from trainrun.contract import layout
from trainrun.errors import StoreError, TrainRunError
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.cli.explaining.life import Life, life_of
from trainrun_operator.cli.sources import LocalSource, Source, StorageSource, UnknownRun
from trainrun_operator.cli.sweeping.reading import ReadSweep
from trainrun_operator.core.sweep.config import (
    TRIALS,
    changed_fields,
    folder_name,
    immutable_part,
    run_name,
)
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.place import place_of

MOST_READ = 20
"""Trials of which the folder is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLife:
    """Everything that is known of a search."""

    sweep: ReadSweep
    lives: Mapping[int, Life]
    """Of the trials that had trouble, by number, as far as their folders were read."""
    go_on: str
    """The command that goes on with it."""
    leader: int | None
    """Process of this machine that leads it; None: none does."""
    written: datetime | None
    """When the newest record was written, by the store's clock; None: not asked, or not known."""
    remarks: tuple[str, ...] = ()
    """What could not be read, or was left out."""

    @property
    def view(self) -> SweepView:
        """What the log says."""
        return self.sweep.view

    def folder_of(self, trial: TrialView) -> str:
        """Address of the folder of this trial."""
        return f"{self.sweep.uri}/{TRIALS}/{folder_name(trial)}"


def search_life_of(sweep: ReadSweep, *, go_on: str) -> SearchLife:
    """Read what is needed beside the log. Raises StoreError."""
    troubled = troubled_trials(sweep.view)
    lives, trouble = _lives(sweep, troubled[:MOST_READ])
    place = place_of(sweep.folder.store.uri, sweep.folder.run_name, environ=os.environ)
    leader = leader_of(place.lock)
    return SearchLife(
        sweep=sweep,
        lives=lives,
        go_on=go_on,
        leader=None if leader is None else leader.pid,
        written=_written(sweep) if sweep.view.end is None else None,
        remarks=(*_of_operator(sweep), *_changed(sweep), *_left_out(len(troubled)), *trouble),
    )


def troubled_trials(view: SweepView) -> list[TrialView]:
    """Those that errored, diverged or were restarted: open ones first, then the newest ends."""
    found = [trial for trial in view.trials.values() if _troubled(trial)]
    return sorted(found, key=lambda it: (not it.open, -it.told_after, -it.number))


def _troubled(trial: TrialView) -> bool:
    restarted = trial.restarts or (trial.open and newest_attempt(trial) > 1)
    return trial.state in ("Errored", "Diverged") or bool(restarted)


def newest_attempt(trial: TrialView) -> int:
    """As far as the log knows of it; 0: of none."""
    return max((*trial.heard, *trial.resumed), default=0)


def _lives(sweep: ReadSweep, trials: list[TrialView]) -> tuple[dict[int, Life], tuple[str, ...]]:
    """What the folders of these tell, many at once, and why one could not be read."""
    with ThreadPoolExecutor(READERS) as pool:
        found = [*zip(trials, pool.map(_attempted(sweep), trials), strict=True)]
    lives = {trial.number: it for trial, it in found if isinstance(it, Life)}
    failed = [(trial.number, it) for trial, it in found if isinstance(it, TrainRunError)]
    if not failed:
        return lives, ()
    number, error = failed[0]
    others = f" (and {len(failed) - 1} more)" if failed[1:] else ""
    return lives, (f"the folder of trial {number}{others} could not be read: {error}",)


def _attempted(sweep: ReadSweep) -> Callable[[TrialView], Life | TrainRunError | None]:
    def read(trial: TrialView) -> Life | TrainRunError | None:
        try:
            return life_of(_source(sweep, trial))
        except UnknownRun:  # it failed before it had a folder
            return None
        except TrainRunError as error:
            return error

    return read


def _source(sweep: ReadSweep, trial: TrialView) -> Source:
    """The run of a trial: its folder, and what this machine knows of it if it has led it."""
    uri = f"{sweep.uri}/{TRIALS}"
    name = sweep.folder.run_name if sweep.described is None else sweep.described.metadata.name
    place = place_of(uri, run_name(name, trial), environ=os.environ)
    at = None if sweep.described is None else sweep.described.spec.storage
    stored = StorageSource(
        name=folder_name(trial),
        storage=uri,
        endpoint_url=None if at is None else at.endpoint_url,
        region=None if at is None else at.region,
        place=place,
    )
    return LocalSource(stored=stored) if place.status.exists() else stored


def _written(sweep: ReadSweep) -> datetime | None:
    try:
        times = [it.modified for it in sweep.folder.objects(layout.SWEEP_LOG)]
    except StoreError:
        return None
    newest = max(times, default=0.0)
    return datetime.fromtimestamp(newest, UTC) if newest else None


def _changed(sweep: ReadSweep) -> Iterator[str]:
    """What of the spec is not as it was when the search was begun."""
    if sweep.described is None:
        return
    fields = changed_fields(sweep.view.sessions[0].spec, immutable_part(sweep.described.spec))
    if fields:
        names = ", ".join(f"spec.{field}" for field in fields)
        what = "file" if sweep.version is None else "TrainSweep"
        yield (
            f"the {what} describes another search than the log ({names}): it will be refused as "
            "SpecChanged; take that back, or use another storage.sweepName"
        )


def _of_operator(sweep: ReadSweep) -> Iterator[str]:
    """What stands in the way in a cluster."""
    conditions = () if sweep.version is None else sweep.version.status.conditions
    for it in conditions:
        if it.type == "ClerkReady" and it.status != "True":
            yield f"{it.type} is {it.status} ({it.reason}): {it.message}"


def _left_out(troubled: int) -> Iterator[str]:
    if troubled > MOST_READ:
        yield (
            f"{troubled} trials errored, diverged or were restarted; the folders of the newest "
            f"{MOST_READ} were read, the others are told from the log alone"
        )
