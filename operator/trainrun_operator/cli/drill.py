"""`trainrun drill`: rehearse the recovery of a run, on this machine or in a cluster.

Layer: cli. The run's own storage, name and trackers are not touched.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainrun.errors import InvalidSpec
from trainrun_operator.api.duration import Duration
from trainrun_operator.api.run.launching import TEMPLATE, launching_of
from trainrun_operator.cli.drilling.drill_report import report_of
from trainrun_operator.cli.drilling.local_environment import local_environment
from trainrun_operator.cli.drilling.rehearsal import Rehearsal, ScriptFails
from trainrun_operator.cli.exit_codes import FAILED, FOUND, NOT_REHEARSED, SUCCEEDED
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.preparation import load_file, prepare
from trainrun_operator.cli.report.output import show, write

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from trainrun_operator.api.resources import TrainRun
    from trainrun_operator.cli.drilling.rehearsal import DrillEnvironment
    from trainrun_operator.cli.drilling.verdicts import Drill

MOST_PICTURES = 6
"""Metrics that a page draws, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """The command line of `trainrun drill`."""

    file: Path
    replicas: int | None = None
    until: int | None = None
    within: str | None = None
    """None: five minutes here, fifteen in a cluster."""
    cluster: bool = False
    """Rehearse with TrainRuns in the cluster of the user's kubeconfig."""
    everything: bool = False
    """Also the faults that test TrainRun."""
    as_json: bool = False
    html: Path | None = None
    """File for a page of the report."""


def drill(options: DrillOptions) -> int:
    """Rehearse; returns the exit code."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
    try:
        rehearsed = _rehearse(options)
        code = FOUND if rehearsed.findings else SUCCEEDED if rehearsed.complete else NOT_REHEARSED
        if options.html is not None:
            write(report_of(rehearsed, exit_code=code, pictures=MOST_PICTURES), options.html)
    except ScriptFails as error:
        click.echo(f"error: {error}", err=True)
        return FAILED
    # A picture is for people at a terminal.
    pictures = 1 if sys.stdout.isatty() else 0
    show(report_of(rehearsed, exit_code=code, pictures=pictures), as_json=options.as_json)
    return code


def _rehearse(options: DrillOptions) -> Drill:
    within = _seconds(options.within or ("15m" if options.cluster else "5m"))
    if options.html is not None and not options.html.parent.is_dir():
        raise InvalidSpec(f"--html {options.html}: the folder {options.html.parent} does not exist")
    run, place = _in_cluster(options) if options.cluster else _here(options)
    with place as environment:
        rehearsal = Rehearsal(
            run=run,
            environment=environment,
            until=options.until,
            within=within,
            say=_say,
            everything=options.everything,
        )
        return rehearsal.make_runs()


def _here(options: DrillOptions) -> tuple[TrainRun, AbstractContextManager[DrillEnvironment]]:
    run = load_file(options.file, replicas=options.replicas)
    if (folder := run.spec.checkpoint.folder) is not None and not folder.carry:
        raise InvalidSpec(
            f"{options.file}: checkpoint.folder.carry is false, so no save is stored that a drill "
            "could lose. To see the script resume, start it with `trainrun run` and "
            '--fault "kill rank=0 after=60s"'
        )
    if folder is not None and run.spec.workers.replicas > 1:
        raise InvalidSpec(
            f"{options.file}: all workers of this machine would save into one folder. Rehearse "
            "checkpoint.folder with one of them: --replicas 1"
        )
    # Check the file as it is, to report every mistake in it first; this starts and writes nothing.
    prepared = prepare(RunOptions(file=options.file, replicas=options.replicas))
    for note in prepared.notes:
        _say(note)
    return prepared.run, local_environment(options.file, replicas=options.replicas)


def _in_cluster(options: DrillOptions) -> tuple[TrainRun, AbstractContextManager[DrillEnvironment]]:
    # Imports aiohttp and the client library: half a second that a local drill saves.
    from trainrun_operator.cli.drilling.cluster_environment import cluster_environment  # noqa: PLC0415

    run = load_file(options.file, replicas=options.replicas)
    if run.spec.checkpoint.folder is not None:
        raise InvalidSpec(
            f"{options.file}: checkpoint.folder is rehearsed on one machine only. Leave out "
            "--cluster"
        )
    problem = launching_of(run.spec.workers).problem
    if problem:
        raise InvalidSpec(f"{options.file}: spec.{TEMPLATE}: {problem}")
    return run, cluster_environment(run, say=_say)


def _seconds(text: str) -> float:
    try:
        seconds = Duration(text).seconds
    except ValueError as error:
        raise InvalidSpec(f"--within {text}: {error}") from error
    if not seconds:
        raise InvalidSpec("--within: must be longer than 0s; the default is 5m")
    return seconds


def _say(text: str) -> None:
    click.echo(f"trainrun: {text}", err=True)
