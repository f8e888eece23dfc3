"""One sweep as a row of the list: from its status in a cluster, else from its log in a storage.

Layer: cli; the log is read, the rest is pure.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.view import SweepView, best
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.cli.formatting import counted
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.sweeping.trial_text import number, status_or_not_led
from trainrun_operator.cli.viewing.rows import NO_END, TONES, RunRow
from trainrun_operator.core.sweep.config import TRIALS, objective_of
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.place import place_of

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion

ENDED = ("Succeeded", "Failed")


def sweep_row(version: SweepVersion) -> RunRow:
    """The row of a TrainSweep."""
    sweep, metadata, at = version.sweep, version.sweep.metadata, version.sweep.spec.storage
    source = Source(
        name=sweep.sweep_name,
        storage=at.uri,
        endpoint_url=at.endpoint_url,
        region=at.region,
        place=place_of(at.uri, sweep.sweep_name, environ=os.environ),
    )
    row = RunRow(
        kind="cluster",
        sweep=True,
        name=metadata.name,
        namespace=metadata.namespace,
        source=source,
        uid=metadata.uid,
        version=str(version.raw["metadata"]["resourceVersion"]),
    )
    return _with_status(row, status_or_not_led(version.status), metric=sweep.spec.objective.metric)


def _with_status(row: RunRow, status: TrainSweepStatus, *, metric: str) -> RunRow:
    found = status.best
    return replace(
        row,
        phase=status.phase,
        reason=status.reason,
        tone=TONES.get(status.phase, "plain"),
        active=status.phase not in ENDED,
        step=f"{status.trials.text or '0'} trials",
        best="" if found is None else f"best {metric} {number(float(found.value))}",
        at_step=status.asked,
        failures=status.trials.errored,
    )


def logged_sweep(source: Source) -> RunRow | None:
    """The sweep in this folder; None: there is no log of one. Raises StoreError."""
    log = SweepLog(source.checkpoints())
    log.read_before_damage()
    if not log.view.sessions:
        return None
    row = RunRow(kind="stored", sweep=True, name=source.name, source=source)
    return _with_log(row, log.view, led=leader_of(source.place.lock) is not None)


def _with_log(row: RunRow, view: SweepView, *, led: bool) -> RunRow:
    """`led`: by a process of this machine."""
    goal = objective_of(view.sessions[0].spec)
    end, found = view.end, best(view, goal)
    phase = end.record.verdict if end is not None else "Running" if led else NO_END
    asked = counted(view.asked, "trial")
    return replace(
        row,
        phase=phase,
        reason="" if end is None else end.record.reason,
        tone=TONES.get(phase, "plain"),
        active=led and end is None,
        step=asked if end is not None else f"{asked}, {view.count('Open')} open",
        best="" if found is None else f"best {goal.metric} {number(found.own.value)}",
        at_step=view.asked,
        failures=view.count("Errored"),
    )


def trial_row(sweep: RunRow, folder: str) -> RunRow:
    """The row of a trial in this folder of a sweep, which the list does not have."""
    uri = f"{sweep.uri}/{TRIALS}"
    place = place_of(uri, folder, environ=os.environ)
    within = f"{sweep.source.within}{sweep.source.name}/{TRIALS}/"
    source = replace(sweep.source, name=folder, storage=uri, place=place, within=within)
    return RunRow(
        kind="stored",
        name=f"{sweep.name}/{folder}",
        namespace=sweep.namespace,
        source=source,
        phase=NO_END,
    )
