"""`trainrun drill`: the recovery of a run rehearsed on this machine, before it is needed.

Layer: cli. The run's own storage, name and trackers are not touched.
"""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.api.duration import Duration
from trainrun_operator.cli.drilling.as_json import as_json
from trainrun_operator.cli.drilling.rehearsal import Rehearsal, ScriptFails
from trainrun_operator.cli.drilling.text import lines
from trainrun_operator.cli.drilling.trial import Ground
from trainrun_operator.cli.exit_codes import FAILED, FOUND, NOT_REHEARSED, SUCCEEDED
from trainrun_operator.cli.preparation import prepare
from trainrun_operator.cli.refusal import refused

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.rehearsed import Drill


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """The command line of `trainrun drill`."""

    file: Path
    replicas: int | None = None
    until: int | None = None
    within: str = "5m"
    as_json: bool = False


def drill(options: DrillOptions) -> int:
    """Rehearse; returns the exit code."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
    try:
        held = _hold(options)
    except ScriptFails as error:
        click.echo(f"error: {error}", err=True)
        return FAILED
    except TrainRunError as error:
        return refused(error)
    code = FOUND if held.findings else SUCCEEDED if held.complete else NOT_REHEARSED
    if options.as_json:
        click.echo(json.dumps(as_json(held, exit_code=code)))
    else:
        for line in lines(held):
            click.echo(line)
    return code


def _hold(options: DrillOptions) -> Drill:
    within = _seconds(options.within)
    # As it stands, so that every mistake in it is told first; this starts and writes nothing.
    prepared = prepare(options.file, replicas=options.replicas, storage=None, faults=())
    for note in prepared.notes:
        _say(note)
    with tempfile.TemporaryDirectory(prefix="trainrun-drill-", ignore_cleanup_errors=True) as made:
        rehearsal = Rehearsal(
            run=prepared.run,
            ground=Ground(file=options.file, replicas=options.replicas, folder=Path(made)),
            until=options.until,
            within=within,
            say=_say,
        )
        return rehearsal.hold()


def _seconds(text: str) -> float:
    try:
        seconds = Duration(text).seconds
    except ValueError as error:
        raise InvalidSpec(f"--within {text}: {error}") from error
    if not seconds:
        raise InvalidSpec("--within: no time is too little; the default is 5m")
    return seconds


def _say(text: str) -> None:
    click.echo(f"trainrun: {text}", err=True)
