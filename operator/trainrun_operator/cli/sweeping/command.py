"""`trainrun run` of a TrainSweep: exit codes, who is told what, what is said before and after.

Layer: cli.
"""

from __future__ import annotations

import asyncio
from functools import partial

import click

from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.cli.exit_codes import FAILED, INTERRUPTED, SUCCEEDED
from trainrun_operator.cli.leading import lead_alone
from trainrun_operator.cli.run_options import RunOptions
from trainrun_operator.cli.sweeping.as_json import SweepJson
from trainrun_operator.cli.sweeping.lines import SweepLines
from trainrun_operator.cli.sweeping.local_sweep import LocalSweep
from trainrun_operator.cli.sweeping.news import SweepSink
from trainrun_operator.cli.sweeping.preparation import SweepPreparation, prepare_sweep
from trainrun_operator.cli.sweeping.texts import summary
from trainrun_operator.cli.sweeping.watched_file import WatchedFile
from trainrun_operator.core.sweep.config import search_of
from trainrun_operator.runtime.written_lines import lines_of_stdout


def run_sweep(options: RunOptions) -> int:
    """Run or continue; returns the exit code."""
    return lead_alone(prepare_sweep, _lead, options)


def _lead(prepared: SweepPreparation, options: RunOptions) -> int:
    prepared.make_places()
    if options.as_json:
        lines = SweepJson(lines_of_stdout())
        status = _run(prepared, options, lines)
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
        lines = lines_of_stdout()
        sink = SweepLines(lines, objective=objective, color=color, verbose=verbose)
        return _run(prepared, options, sink)
    # 30 ms that other outputs do not need.
    from trainrun_operator.cli.redrawn import console_to_draw_on  # noqa: PLC0415
    from trainrun_operator.cli.sweeping.table import SweepTable  # noqa: PLC0415

    console = console_to_draw_on(color=options.colored)
    with SweepTable(console, name=prepared.name, objective=objective) as table:
        return _run(prepared, options, table)


def _run(prepared: SweepPreparation, options: RunOptions, sink: SweepSink) -> TrainSweepStatus:
    for note in prepared.notes:
        sink.say(note)
    replicas, storage = options.replicas, options.storage
    again = partial(prepare_sweep, options.file, replicas=replicas, storage=storage, faults=())
    file = WatchedFile(prepared, again)
    sweep = LocalSweep(prepared, uid=prepared.identity.uid(), sink=sink, file=file)
    return asyncio.run(sweep.lead())


def _exit_code(status: TrainSweepStatus) -> int:
    match status.phase:
        case "Succeeded":
            return SUCCEEDED
        case "Failed":
            return FAILED
        case _:  # suspended by the file, or stopped by somebody: unfinished either way
            return INTERRUPTED
