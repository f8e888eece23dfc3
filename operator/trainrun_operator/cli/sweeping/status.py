"""`trainrun sweep status`: where a sweep stands, as far as its log says.

Layer: cli. Reads the log alone, but for the budget, which only the file has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from trainrun.errors import TrainRunError
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.api.sweep.status_json import json_object
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.sweeping.loading import load_sweep
from trainrun_operator.cli.sweeping.reading import ReadSweep, read_sweep
from trainrun_operator.cli.sweeping.texts import facts, outcome
from trainrun_operator.core.sweep.config import sweep_config
from trainrun_operator.core.sweep.display import status_of_log

LAST_ENDED = 5
"""Trials that are told of."""


def show_status(where: str, *, storage: str | None, as_json: bool) -> int:
    """Print how a sweep fares; returns the exit code."""
    try:
        sweep = read_sweep(where, storage=storage)
        file = Path(where)
        trials = sweep_config(load_sweep(file)).trials if file.is_file() else None
    except TrainRunError as error:
        return refused(error)
    status = status_of_log(sweep.view, sweep.objective, trials=trials)
    if as_json:
        click.echo(json.dumps(_as_json(sweep, status, budget=trials)))
    else:
        for line in _lines(sweep, status):
            click.echo(line)
    return SUCCEEDED


def _as_json(
    sweep: ReadSweep, status: TrainSweepStatus, *, budget: int | None
) -> dict[str, object]:
    known = {} if budget is None else {"budget": budget}
    fields = json_object(status)
    del fields["running"]  # which the log cannot tell
    return {"sweep": sweep.uri, **known, "sessions": len(sweep.view.sessions), "status": fields}


def _lines(sweep: ReadSweep, status: TrainSweepStatus) -> Iterator[str]:
    yield from facts(sweep.uri.rpartition("/")[2], status, sweep.objective)
    yield f"  sessions     {len(sweep.view.sessions)}"
    ended = [trial for trial in sweep.view.trials.values() if not trial.open]
    ended.sort(key=lambda trial: trial.told_after)
    head = "last ended"
    for trial in reversed(ended[-LAST_ENDED:]):
        told = outcome(trial, sweep.objective)
        yield f"  {head:<12} trial {trial.number} {trial.state}: {told}"
        head = ""
