"""`trainrun sweep status`: where a sweep stands, as its log says, and its operator if it has one.

Layer: cli. Of a sweep in a cluster the operator's own words are enough: whoever may look there need
not have the keys of the storage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import click

from trainrun.errors import StoreError, TrainRunError
from trainrun.sweep.search import Objective
from trainrun.sweep.view import SweepView
from trainrun_operator.api.sweep.status import EndedTrial, TrainSweepStatus, json_object
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.sweeping.reading import FoundSweep, UnknownSweep, find_sweep
from trainrun_operator.cli.sweeping.texts import facts, led, outcome, outcome_told
from trainrun_operator.core.sweep.config import search_of, sweep_config
from trainrun_operator.core.sweep.display import status_of_log

LAST_ENDED = 5
"""Trials that are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Where a sweep stands."""

    found: FoundSweep
    status: TrainSweepStatus
    objective: Objective
    budget: int | None
    """Trials; None: only the folder is known."""
    view: SweepView | None
    """None: the log could not be read, and the operator's words are all there is."""
    remark: str = ""
    """Why."""


def show_status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> int:
    """Print how a sweep fares; returns the exit code."""
    try:
        it = _standing(find_sweep(where, storage=storage, namespace=namespace))
    except TrainRunError as error:
        return refused(error)
    if as_json:
        click.echo(json.dumps(_as_json(it)))
    else:
        for line in _lines(it):
            click.echo(line)
    return SUCCEEDED


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
            remark=_why(error),
        )
    status = status_of_log(sweep.view, sweep.objective, trials=budget)
    if version is not None:
        status = _of_operator(version.status, status)
    return _Standing(
        found=found, status=status, objective=sweep.objective, budget=budget, view=sweep.view
    )


def _why(error: StoreError | UnknownSweep) -> str:
    """Why there is no log to read; of nothing begun the operator says why."""
    return f"the log cannot be read: {error}" if isinstance(error, StoreError) else ""


def _of_operator(said: TrainSweepStatus, log: TrainSweepStatus) -> TrainSweepStatus:
    """What only the operator knows, and the rest from the log, which is a little newer."""
    return replace(
        said,
        asked=log.asked,
        trials=log.trials,
        best=log.best,
        last_ended=log.last_ended,
        active_seconds=log.active_seconds,
        position=log.position,
    )


def _as_json(it: _Standing) -> dict[str, object]:
    fields = json_object(it.status)
    version = it.found.version
    if version is None:
        del fields["running"]  # which the log cannot tell
    return {
        "sweep": it.found.folder.uri,
        **({} if version is None else {"object": version.where}),
        **({} if it.budget is None else {"budget": it.budget}),
        **({} if it.view is None else {"sessions": len(it.view.sessions)}),
        "status": fields,
        **({"remark": it.remark} if it.remark else {}),
    }


def _lines(it: _Standing) -> Iterator[str]:
    status, version = led(it.status), it.found.version
    name = it.found.folder.uri.rpartition("/")[2] if version is None else version.where
    yield from facts(name, status, it.objective)
    if status.running:
        yield f"  running      {', '.join(map(str, status.running))}"
    if it.view is not None:
        yield f"  sessions     {len(it.view.sessions)}"
    head = "last ended"
    for told in _ended(it):
        yield f"  {head:<12} {told}"
        head = ""
    for condition in status.conditions:
        if condition.type == "ClerkReady" and condition.status != "True":
            yield f"  no clerk     {condition.reason}: {condition.message}"
    if it.remark:
        yield f"  {it.remark}"


def _ended(it: _Standing) -> Iterator[str]:
    """The trials that have ended last, the newest first."""
    if it.view is None:
        for ended in reversed(it.status.last_ended[-LAST_ENDED:]):
            yield _told(ended, it.objective)
        return
    found = [trial for trial in it.view.trials.values() if not trial.open]
    found.sort(key=lambda trial: trial.told_after)
    for trial in reversed(found[-LAST_ENDED:]):
        yield f"trial {trial.number} {trial.state}: {outcome(trial, it.objective)}"


def _told(ended: EndedTrial, objective: Objective) -> str:
    return f"trial {ended.trial} {ended.state}: {outcome_told(ended, objective)}"
