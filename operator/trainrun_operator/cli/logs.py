"""`trainrun logs`: what the processes of a run have printed, attempt by attempt, and print now.

Layer: cli. From the workers while they are there, else from the run's storage; with the user's own
credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

from trainrun.checkpoint.run_store import RunStore
from trainrun.errors import StoreError, TrainRunError
from trainrun_operator.cli.finding import FILES, find_run
from trainrun_operator.cli.log_lines.history import History, LocalLines, stored_slots
from trainrun_operator.cli.log_lines.line import Line, Printer, Shown, Wanted
from trainrun_operator.cli.sources import (
    ClusterSource,
    RunState,
    Source,
    UnknownRun,
    generation_of,
    nothing_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsOptions:
    """What was asked for."""

    where: str
    storage: str | None
    namespace: str | None
    generation: int | None
    wanted: Wanted
    follow: bool
    as_json: bool


def logs(options: LogsOptions) -> None:
    """Print the lines."""
    printer = Printer(as_json=options.as_json)
    source = find_run(options.where, storage=options.storage, namespace=options.namespace)
    state = source.known_state()
    if isinstance(source, ClusterSource) and options.follow and not _over(source.known):
        _follow_cluster(source, options, printer)
        return
    for shown in _shown(source, state, options):
        printer.show(shown)


def _shown(source: Source, state: RunState | None, options: LogsOptions) -> Iterator[Shown]:
    if not options.follow or (state is not None and _over(state)):
        return _history(source, state, options)
    if state is None and not options.where.endswith(FILES):
        raise UnknownRun(
            f"{source.storage}/{source.name} is a storage, where lines come when an attempt has "
            "ended: to follow a run give its YAML file, or its name in the cluster"
        )
    return _follow_local(source, options)


def _over(state: RunState) -> bool:
    """Finished, and nobody leads it (again)."""
    return state.status.finished and state.leader is None


# ------------------------------------------------------------------------------ what there is


def _history(source: Source, state: RunState | None, options: LogsOptions) -> Iterator[Shown]:
    run: RunStore | None = None
    slots: dict[int, list[int]] = {}
    claimed: tuple[int, ...] = ()
    try:
        run = generation_of(source, options.generation)
        slots, claimed = stored_slots(run), tuple(run.attempts())
    except StoreError as error:
        if state is None:
            raise
        run = None
        click.echo(f"the storage cannot be read: {error}", err=True)
    own = options.generation is None or state is None
    history = History(
        run=run,
        slots=slots,
        live=_live(source, options) if own else (),
        claimed=claimed,
        running=state.status.attempt if state is not None and not state.status.finished else None,
        wanted=options.wanted,
    )
    some = lines = False
    for shown in history.shown():
        some, lines = True, lines or isinstance(shown, Line)
        yield shown
    if not some and not claimed and state is None:
        raise nothing_of(source)
    if not lines:
        _check_asked(
            options.wanted, state, attempts=max((*claimed, *slots), default=0), size=history.size
        )
    if not some:
        click.echo("no such lines are there", err=True)


def _check_asked(wanted: Wanted, state: RunState | None, *, attempts: int, size: int) -> None:
    """Raises UnknownRun for an attempt or ranks that the run has not."""
    record = state.status.start_record if state is not None else None
    if record is not None:
        attempts, size = max(attempts, record.attempt), max(size, record.world_size)
    if attempts and wanted.attempt is not None and wanted.attempt > attempts:
        raise UnknownRun(f"there is no attempt {wanted.attempt}: attempts are 1 to {attempts}")
    if size and wanted.ranks and min(wanted.ranks) >= size:
        raise UnknownRun(f"there is no rank {min(wanted.ranks)}: ranks are 0 to {size - 1}")


def _live(source: Source, options: LogsOptions) -> Iterable[Line]:
    if isinstance(source, ClusterSource):
        return _of_pods(source, options)
    lines = LocalLines(nodes=source.place.nodes, wanted=options.wanted).history()
    return (line for line in lines if isinstance(line, Line))


def _of_pods(source: ClusterSource, options: LogsOptions) -> Iterable[Line]:
    from trainrun_operator.cli.log_lines.cluster import ClusterLines  # noqa: PLC0415 - slow

    try:
        return list(ClusterLines(source=source, wanted=options.wanted).history())
    except TrainRunError as error:
        click.echo(f"the pods' logs cannot be read: {error}", err=True)
        return ()


# -------------------------------------------------------------------------------- what comes


def _follow_local(source: Source, options: LogsOptions) -> Iterator[Shown]:
    if not source.place.status.exists():
        click.echo(f"waiting for run {source.name} to be started on this machine", err=True)

    def over() -> bool:
        state = source.known_state()
        return state is not None and _over(state)

    return LocalLines(nodes=source.place.nodes, wanted=options.wanted).follow(over=over)


def _follow_cluster(source: ClusterSource, options: LogsOptions, printer: Printer) -> None:
    from trainrun_operator.cli.log_lines.cluster import ClusterLines  # noqa: PLC0415 - slow

    click.echo(f"following run {source.object_name} in {source.namespace}", err=True)
    ClusterLines(source=source, wanted=options.wanted).follow(printer.show)
