"""`trainrun sweep status|trials|best|can-restore|leave-out`.

Layer: cli. Reads only the log, except for the status of a sweep in a cluster: there the operator's
status is enough, since a user with access to the cluster need not have access to the storage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import StoreError
from trainrun.sweep.search import Objective
from trainrun.sweep.view import SweepView, best
from trainrun_operator.api.sweep.status import TrainSweepStatus, json_object
from trainrun_operator.cli import formatting
from trainrun_operator.cli.exit_codes import NO, SUCCEEDED
from trainrun_operator.cli.report import terminal
from trainrun_operator.cli.report.output import show_lines
from trainrun_operator.cli.sweeping.stored_sweep import (
    FoundSweep,
    ReadSweep,
    UnknownSweep,
    find_sweep,
    load_sweep,
    read_sweep,
)
from trainrun_operator.cli.sweeping.trial_text import (
    Row,
    cells,
    facts,
    heads,
    outcome,
    outcome_in_status,
    parameters,
    status_or_not_led,
    trial_row,
    trial_rows,
    value_at,
)
from trainrun_operator.core.sweep.config import (
    changed_fields,
    immutable_part,
    search_of,
    sweep_config,
)
from trainrun_operator.core.sweep.display import status_of_log

LONGEST_REMARK = 100
"""Characters in a table; `--json` has all of it."""
LAST_ENDED = 5
"""Ended trials that a status lists."""


def show_trials(sweep: ReadSweep, *, as_json: bool) -> None:
    """Print a line for each trial."""
    rows = trial_rows(sweep.view, sweep.objective)
    shown = (json.dumps(row.data) for row in rows) if as_json else table(rows, sweep.objective)
    for line in shown:
        click.echo(line)


def show_best(sweep: ReadSweep, *, as_json: bool) -> int:
    """Print the best trial and its parameters; returns the exit code."""
    found = best(sweep.view, sweep.objective)
    if found is None:
        click.echo(f"no trial in {sweep.uri} has a {sweep.objective.metric} yet", err=True)
        return NO
    row = trial_row(found.trial, sweep.objective)
    value = value_at(sweep.objective, found.own.value, found.own.step)
    lines = (f"trial {row.trial}: {value}", f"  {parameters(row.params, exact=True)}")
    show_lines(lines, row.data, as_json=as_json)
    return SUCCEEDED


def show_can_restore(
    where: str, *, storage: str | None, namespace: str | None, file: Path | None
) -> int:
    """Print in one line whether a sweep can be continued; returns 0 for yes, 3 for no."""
    try:
        sweep = read_sweep(where, storage=storage, namespace=namespace)
        described = sweep.described if file is None else load_sweep(file)
        stored = sweep.view.sessions[0].spec
        changed = (
            [] if described is None else changed_fields(stored, immutable_part(described.spec))
        )
    except UnknownSweep as error:
        click.echo(f"no: {error}")
        return NO
    if changed:
        click.echo(f"no: {sweep.uri} holds a search with another {', '.join(changed)}")
        return NO
    view = sweep.view
    counts = f"{view.asked} trials, {view.count('Open')} open, {view.count('Errored')} errored"
    click.echo(f"yes: {sweep.uri} holds {counts}")
    return SUCCEEDED


def leave_record_out(where: str, record: int, *, storage: str | None, namespace: str | None) -> int:
    """Replace a damaged record with one without points; returns the exit code."""
    log = SweepLog(find_sweep(where, storage=storage, namespace=namespace).folder)
    copy = log.leave_out(record)
    click.echo(f"record {record} is left out; the damaged object is kept as {copy}")
    damage = log.read_before_damage()
    click.echo(f"the log is still damaged: {damage}" if damage else "the log can be read again")
    return SUCCEEDED if damage is None else NO


def table(rows: Iterable[Row], objective: Objective) -> Iterator[str]:
    """Heads and rows as lines of text."""
    return terminal.table(heads(objective), map(_cells, rows))


def _cells(row: Row) -> tuple[str, ...]:
    remark = f"  ({formatting.shortened(row.remark, LONGEST_REMARK)})" if row.remark else ""
    *others, params = cells(row)
    return *others, params + remark


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """A sweep's status, from its log or from the operator."""

    found: FoundSweep
    status: TrainSweepStatus
    objective: Objective
    budget: int | None
    """Trials; None: only the folder was given."""
    view: SweepView | None
    """None: the log could not be read; the operator's status is used."""
    remark: str = ""
    """Why the log could not be read."""


def show_status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> None:
    """Print a sweep's status."""
    standing = _standing(find_sweep(where, storage=storage, namespace=namespace))
    show_lines(_lines(standing), _status_json(standing), as_json=as_json)


def _standing(found: FoundSweep) -> _Standing:
    described, version = found.described, found.version
    budget = None if described is None else sweep_config(described).trials
    try:
        sweep = found.read()
    except (StoreError, UnknownSweep) as error:
        if version is None:
            raise
        return _Standing(
            found=found,
            status=version.status,
            objective=search_of(version.sweep.spec).objective,
            budget=budget,
            view=None,
            # For a sweep without a log the operator's status says why.
            remark=f"the log cannot be read: {error}" if isinstance(error, StoreError) else "",
        )
    status = status_of_log(sweep.view, sweep.objective, trials=budget)
    if version is not None:
        status = _of_operator(version.status, status)
    return _Standing(
        found=found, status=status, objective=sweep.objective, budget=budget, view=sweep.view
    )


def _of_operator(written: TrainSweepStatus, log: TrainSweepStatus) -> TrainSweepStatus:
    """The operator's status, with the fields that the log has newer from the log."""
    return replace(
        written,
        asked=log.asked,
        trials=log.trials,
        best=log.best,
        last_ended=log.last_ended,
        active_seconds=log.active_seconds,
        position=log.position,
    )


def _status_json(standing: _Standing) -> dict[str, object]:
    fields = json_object(standing.status)
    version, budget, view = standing.found.version, standing.budget, standing.view
    if version is None:
        del fields["running"]  # unknown: the log does not hold it
    return {
        "sweep": standing.found.folder.uri,
        **({} if version is None else {"object": version.where}),
        **({} if budget is None else {"budget": budget}),
        **({} if view is None else {"sessions": len(view.sessions)}),
        "status": fields,
        **({"remark": standing.remark} if standing.remark else {}),
    }


def _lines(standing: _Standing) -> Iterator[str]:
    status, version = status_or_not_led(standing.status), standing.found.version
    name = standing.found.folder.uri.rpartition("/")[2] if version is None else version.where
    yield from facts(name, status, standing.objective)
    if status.running:
        yield f"  running      {', '.join(map(str, status.running))}"
    if standing.view is not None:
        yield f"  sessions     {len(standing.view.sessions)}"
    head = "last ended"
    for line in _ended(standing):
        yield f"  {head:<12} {line}"
        head = ""
    for condition in status.conditions:
        if condition.type == "ClerkReady" and condition.status != "True":
            yield f"  no clerk     {condition.reason}: {condition.message}"
    if standing.remark:
        yield f"  {standing.remark}"


def _ended(standing: _Standing) -> Iterator[str]:
    """Lines about the trials that ended last, the newest first."""
    objective, view = standing.objective, standing.view
    if view is None:
        for ended in reversed(standing.status.last_ended[-LAST_ENDED:]):
            yield f"trial {ended.trial} {ended.state}: {outcome_in_status(ended, objective)}"
        return
    found = [trial for trial in view.trials.values() if not trial.open]
    found.sort(key=lambda trial: trial.told_after)
    for trial in reversed(found[-LAST_ENDED:]):
        yield f"trial {trial.number} {trial.state}: {outcome(trial, objective)}"
