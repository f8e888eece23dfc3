"""`trainrun explain`: what happened to a run or a sweep, what it cost, and what to change.

Layer: cli. Reads the storage and, if there is one, the status, with the user's own credentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainrun.errors import InvalidSpec
from trainrun_operator.cli.explaining import search_report
from trainrun_operator.cli.explaining.life import ExtrasReader, life_of
from trainrun_operator.cli.explaining.run_report import report_of
from trainrun_operator.cli.explaining.search_life import resume_command_of, search_life_of
from trainrun_operator.cli.finding import (
    cluster_name,
    cluster_source,
    find_runs,
    namesakes,
    stored_name,
)
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.report.output import show, write
from trainrun_operator.cli.sources import Source, UnknownRun
from trainrun_operator.cli.sweeping.stored_sweep import (
    FoundSweep,
    ReadSweep,
    find_sweep,
    found_sweep,
    names_sweep,
    read_log,
)
from trainrun_operator.core.sweep.config import TRIALS

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.user_client import Namesakes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The command line of `trainrun explain`."""

    where: str
    storage: str | None
    namespace: str | None
    generation: int | None
    to_json: bool
    html: Path | None


def explain(options: ExplainOptions) -> None:
    """Print the story of each run, or of the sweep, that `where` names."""
    where, storage = options.where, options.storage
    stored = stored_name(where, storage)
    name = None if stored else cluster_name(where, options.namespace)
    if names_sweep(stored or where):
        _explain_sweep(find_sweep(where, storage=storage), options)
    elif name is not None:
        _explain_named(namesakes(name), options)
    else:
        _explain_runs(find_runs(where, storage=storage), options)


def _explain_named(found: Namesakes, options: ExplainOptions) -> None:
    """Explain the run, even if a sweep has the same name: a name always meant a run here."""
    sweep = None if found.sweep is None else found_sweep(found.sweep)
    if found.run is not None:
        _explain_runs([cluster_source(found.run)], options)
    elif sweep is not None:
        _explain_sweep(sweep, options)
    if found.run is not None and sweep is not None:
        note = f"there is a TrainSweep {options.where} too: trainrun explain {sweep.folder.uri}"
        click.echo(f"note: this is the TrainRun; {note}", err=True)


def _explain_runs(found: list[Source], options: ExplainOptions) -> None:
    lives = [life_of(run, generation=options.generation) for run in found]
    if options.html is None:
        for life in lives:
            show(report_of(life), as_json=options.to_json)
        return
    if len(lives) != 1:
        names = ", ".join(life.uri for life in lives)
        raise UnknownRun(f"--html writes the page of one run; name one of them: {names}")
    extras = ExtrasReader().read(found[0], lives[0], generation=options.generation)
    write(report_of(lives[0], extras), options.html)


def _explain_sweep(found: FoundSweep, options: ExplainOptions) -> None:
    if options.generation is not None:
        raise InvalidSpec(
            f"--generation applies to runs, and {options.where} is a sweep: name the folder of a "
            f"trial, such as {found.folder.uri}/{TRIALS}/00000"
        )
    sweep = read_log(found)
    life = search_life_of(sweep, resume_command=_resume_command(sweep, options))
    if options.html is None:
        show(search_report.report_of(life), as_json=options.to_json)
    else:
        write(search_report.report_of(life, pictures=True), options.html)


def _resume_command(sweep: ReadSweep, options: ExplainOptions) -> str:
    if sweep.version is not None or sweep.described is None:
        return resume_command_of(sweep)
    return RunOptions(file=Path(options.where), storage=options.storage).command
