"""`trainrun run` of a TrainSweep: exit codes, who is told what, what is said before and after.

Layer: cli.
"""

from __future__ import annotations

import asyncio
import logging
import sys

import click

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.cli.exit_codes import FAILED, INTERRUPTED, SUCCEEDED
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.run_options import RunOptions
from trainrun_operator.cli.sweeping.as_json import SweepJson
from trainrun_operator.cli.sweeping.lines import SweepLines
from trainrun_operator.cli.sweeping.local_sweep import LocalSweep
from trainrun_operator.cli.sweeping.news import SweepSink
from trainrun_operator.cli.sweeping.preparation import SweepPreparation, prepare_sweep
from trainrun_operator.cli.sweeping.texts import summary
from trainrun_operator.core.sweep.config import search_of
from trainrun_operator.worlds.local.driver_lock import acquire


def run_sweep(options: RunOptions) -> int:
    """Run or continue; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        prepared = prepare_sweep(
            options.file,
            replicas=options.replicas,
            storage=options.storage,
            faults=options.faults,
        )
        lock = acquire(prepared.place.lock, run=prepared.name)
    except TrainRunError as error:
        return refused(error)
    except OSError as error:
        what = error.filename or options.file
        return refused(
            InvalidSpec(f"{what}: {error.strerror}: the storage's folder must be writable")
        )
    try:
        return _lead(prepared, options)
    except TrainRunError as error:
        return refused(error)
    finally:
        lock.release()


def _lead(prepared: SweepPreparation, options: RunOptions) -> int:
    prepared.make_places()
    if options.as_json:
        lines = SweepJson(sys.stdout)
        status = _run(prepared, lines)
        code = _exit_code(status)
        lines.finish(status, exit_code=code)
        return code
    objective = search_of(prepared.sweep.spec).objective
    status = _shown(prepared, options)
    click.echo("")
    for line in summary(prepared.name, status, objective, continue_with=options.command):
        click.echo(line)
    return _exit_code(status)


def _shown(prepared: SweepPreparation, options: RunOptions) -> TrainSweepStatus:
    objective = search_of(prepared.sweep.spec).objective
    if not options.drawn:
        color, verbose = options.colored, options.verbose
        return _run(
            prepared, SweepLines(sys.stdout, objective=objective, color=color, verbose=verbose)
        )
    from rich.console import Console  # noqa: PLC0415 - 30 ms that other outputs do not need
    from rich.logging import RichHandler  # noqa: PLC0415

    from trainrun_operator.cli.sweeping.table import SweepTable  # noqa: PLC0415

    console = Console(no_color=not options.colored)
    # Lines of the log go above the table, not through it.
    logging.basicConfig(handlers=[RichHandler(console=console, show_path=False)], force=True)
    with SweepTable(console, name=prepared.name, objective=objective) as table:
        return _run(prepared, table)


def _run(prepared: SweepPreparation, sink: SweepSink) -> TrainSweepStatus:
    for note in prepared.notes:
        sink.say(note)
    sweep = LocalSweep(prepared, uid=prepared.identity.uid(), sink=sink)
    return asyncio.run(sweep.lead())


def _exit_code(status: TrainSweepStatus) -> int:
    match status.phase:
        case "Succeeded":
            return SUCCEEDED
        case "Failed":
            return FAILED
        case _:  # suspended by the file, or stopped by somebody: unfinished either way
            return INTERRUPTED
