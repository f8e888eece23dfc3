"""`trainrun run`: what it prints before, during and after the run, and its exit codes.

Layer: cli.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import click

from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli.exit_codes import (
    FAILED,
    FAULT_NEVER_STRUCK,
    INTERRUPTED,
    NEVER_MET,
    SUCCEEDED,
)
from trainrun_operator.cli.leading import RunOptions, lead_alone
from trainrun_operator.cli.lines import JsonLines, PlainLines, Timeline
from trainrun_operator.cli.local_run import LocalRun
from trainrun_operator.cli.preparation import (
    Preparation,
    finished_message,
    holds_sweep,
    open_run,
    prepare,
)
from trainrun_operator.cli.report.terminal import lines
from trainrun_operator.cli.status import never_met, report_of
from trainrun_operator.runtime.line_writers import lines_of_stdout
from trainrun_operator.runtime.run_events import Fanout
from trainrun_operator.worlds.local.faults import Fault
from trainrun_operator.worlds.local.place import StoredRun

Say = Callable[[str], None]
"""Prints a message that is not an event of the run."""


def run_locally(options: RunOptions) -> int:
    """Run or continue; returns the exit code."""
    if holds_sweep(options.file):
        from trainrun_operator.cli.sweeping.local_sweep import run_sweep  # noqa: PLC0415 - seldom

        return run_sweep(options)
    return lead_alone(prepare, _run_or_say_finished, options)


def _run_or_say_finished(prepared: Preparation, options: RunOptions) -> int:
    # In JSON mode stdout holds JSON and nothing else.
    def say(text: str) -> None:
        click.echo(f"trainrun: {text}", err=options.as_json)

    opened = open_run(prepared)
    if opened.stored.status.is_true("Complete"):
        say(finished_message(prepared, opened.stored.status))
        code = _end(opened.stored.status, prepared.faults, because="the run had already succeeded")
        if options.as_json:
            JsonLines(lines_of_stdout()).finish(opened.stored.status, exit_code=code)
        return code
    for remark in (*prepared.notes, opened.remark):
        if remark:
            say(remark)
    with _page(prepared, options) as address:
        if address:
            say(f"page: {address}")
        if options.as_json:
            return _run_as_json(prepared, opened.stored, say=say)
        return _run_for_people(prepared, opened.stored, options, say=say)


def _page(prepared: Preparation, options: RunOptions) -> AbstractContextManager[str]:
    """The address of the page about it; empty: none is wanted."""
    if not options.page:
        return nullcontext("")
    from trainrun_operator.cli.page import page_beside  # noqa: PLC0415 - aiohttp costs 0.2 s

    return page_beside(prepared)


def _run_as_json(prepared: Preparation, stored: StoredRun, *, say: Say) -> int:
    lines = JsonLines(lines_of_stdout())
    run = LocalRun(prepared=prepared, stored=stored, events=lines)
    status = asyncio.run(run.lead(say=say))
    code = _end(status, run.never_struck)
    lines.finish(status, exit_code=code)
    return code


def _run_for_people(
    prepared: Preparation, stored: StoredRun, options: RunOptions, *, say: Say
) -> int:
    workers = prepared.run.spec.workers
    timeline = Timeline(replicas=workers.replicas, per_worker=prepared.processes_per_worker)
    color = options.colored
    if options.drawn:
        run, status = _lead_live(prepared, stored, timeline, color=color)
    else:
        lines = PlainLines(lines_of_stdout(), color=color, verbose=options.verbose)
        run = LocalRun(prepared=prepared, stored=stored, events=Fanout([timeline, lines]))
        status = asyncio.run(run.lead(say=say))
    for line in _report(prepared, options, status, timeline):
        click.echo(line, color=color)
    return _end(status, run.never_struck)


def _lead_live(
    prepared: Preparation, stored: StoredRun, timeline: Timeline, *, color: bool
) -> tuple[LocalRun, TrainRunStatus]:
    # Imported only here: it takes 30 ms.
    from trainrun_operator.cli.live import LiveView, console_to_draw_on  # noqa: PLC0415

    per_worker = prepared.processes_per_worker
    console = console_to_draw_on(color=color)
    with LiveView(console, name=prepared.name, timeline=timeline, per_worker=per_worker) as view:
        run = LocalRun(prepared=prepared, stored=stored, events=Fanout([timeline, view]))
        return run, asyncio.run(run.lead(say=view.say))


def _report(
    prepared: Preparation, options: RunOptions, status: TrainRunStatus, timeline: Timeline
) -> Iterator[str]:
    yield ""
    continue_with = _how_to_continue(prepared, options)
    yield from lines(report_of(prepared.name, status, continue_with=continue_with))
    yield ""
    yield from timeline.draw()


def _how_to_continue(prepared: Preparation, options: RunOptions) -> str:
    # The same command alone would find spec.suspend still true.
    first = f"spec.suspend: false in {options.file}, then " if prepared.run.spec.suspend else ""
    return first + options.command


def _end(status: TrainRunStatus, never_struck: Sequence[Fault], *, because: str = "") -> int:
    """The exit code; prints an error for each fault that never struck."""
    for fault in never_struck:
        why = because or _why_not(fault, status)
        click.echo(f'error: --fault "{fault}" never struck: {why}', err=True)
    if never_met(status):
        return NEVER_MET
    if status.is_true("Complete"):
        return FAULT_NEVER_STRUCK if never_struck else SUCCEEDED
    if status.is_true("Failed"):
        return FAILED
    # Suspended by the file, or interrupted: unfinished either way.
    return INTERRUPTED


def _why_not(fault: Fault, status: TrainRunStatus) -> str:
    step = status.progress.step
    if fault.after is not None:
        return f"rank {fault.rank} was not running when it was due; use an earlier time"
    if step is None:
        return "no rank reported a step; use after=30s instead of step="
    if step < fault.step:
        return f"no rank reported step {fault.step}; the last one was {step}"
    return f"rank {fault.rank} was not running when it was due; use a step before {step}"
