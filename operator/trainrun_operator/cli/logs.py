"""`trainrun logs`: show the output of a run's processes, attempt by attempt, or follow it.

Layer: cli. Reads from the workers while they exist, else from the run's storage; with the user's
own credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from trainrun.checkpoint.run_store import RunStore
from trainrun.errors import StoreError, TrainRunError
from trainrun_operator.cli.finding import FILES, find_run
from trainrun_operator.cli.log_lines.history import History, LocalLines, stored_slots
from trainrun_operator.cli.log_lines.line import Line, LogItem, Printer, Wanted
from trainrun_operator.cli.sources import (
    ClusterSource,
    RunState,
    Source,
    UnknownRun,
    generation_of,
    never_started,
)


def logs(
    where: str,
    wanted: Wanted,
    *,
    generation: int | None,
    follow: bool,
    as_json: bool,
    **place: str | None,
) -> None:
    """Print the lines of the run that `find_run` finds for `where`."""
    printer = Printer(as_json=as_json)
    source = find_run(where, **place)
    state = source.known_state()
    if not follow or (state is not None and _over(state)):
        items = _history(source, state, wanted, generation)
    elif isinstance(source, ClusterSource):
        _follow_cluster(source, wanted, printer)
        return
    elif state is None and not where.endswith(FILES):
        raise UnknownRun(
            f"{source.storage}/{source.name} gets its lines only when an attempt ends; to follow "
            "the run, give its YAML file or its name in the cluster"
        )
    else:
        items = _follow_local(source, wanted)
    for item in items:
        printer.show(item)


def _over(state: RunState) -> bool:
    """Finished, and no process leads it again."""
    return state.status.finished and state.leader is None


# ----------------------------------------------------------------------------- existing lines


def _history(
    source: Source, state: RunState | None, wanted: Wanted, generation: int | None
) -> Iterator[LogItem]:
    run: RunStore | None = None
    slots: dict[int, list[int]] = {}
    claimed: tuple[int, ...] = ()
    try:
        run = generation_of(source, generation)
        slots, claimed = stored_slots(run), tuple(run.attempts())
    except StoreError as error:
        if state is None:
            raise
        run = None
        click.echo(f"cannot read the storage: {error}", err=True)
    own = generation is None or state is None
    history = History(
        run=run,
        slots=slots,
        live=_live(source, wanted) if own else (),
        claimed=claimed,
        running=state.status.attempt if state is not None and not state.status.finished else None,
        wanted=wanted,
    )
    some = lines = False
    for item in history.items():
        some, lines = True, lines or isinstance(item, Line)
        yield item
    if not some and not claimed and state is None:
        raise never_started(source)
    if not lines:
        attempts = max((*claimed, *slots), default=0)
        _check_wanted(wanted, state, attempts=attempts, size=history.size)
    if not some:
        click.echo("no lines match", err=True)


def _check_wanted(wanted: Wanted, state: RunState | None, *, attempts: int, size: int) -> None:
    """Raises UnknownRun for an attempt or a rank that the run does not have."""
    record = state.status.start_record if state is not None else None
    if record is not None:
        attempts, size = max(attempts, record.attempt), max(size, record.world_size)
    if attempts and wanted.attempt is not None and wanted.attempt > attempts:
        raise UnknownRun(f"there is no attempt {wanted.attempt}: attempts are 1 to {attempts}")
    if size and wanted.ranks and min(wanted.ranks) >= size:
        raise UnknownRun(f"there is no rank {min(wanted.ranks)}: ranks are 0 to {size - 1}")


def _live(source: Source, wanted: Wanted) -> Iterable[Line]:
    if isinstance(source, ClusterSource):
        return _of_pods(source, wanted)
    lines = LocalLines(nodes=source.place.nodes, wanted=wanted).history()
    return (line for line in lines if isinstance(line, Line))


def _of_pods(source: ClusterSource, wanted: Wanted) -> Iterable[Line]:
    from trainrun_operator.cli.log_lines.cluster import ClusterLines  # noqa: PLC0415 - slow

    try:
        return list(ClusterLines(source=source, wanted=wanted).history())
    except TrainRunError as error:
        click.echo(f"cannot read the pods' logs: {error}", err=True)
        return ()


# ----------------------------------------------------------------------------- following


def _follow_local(source: Source, wanted: Wanted) -> Iterator[LogItem]:
    if not source.place.status.exists():
        click.echo(f"waiting for run {source.name} to start on this machine", err=True)

    def over() -> bool:
        state = source.known_state()
        return state is not None and _over(state)

    return LocalLines(nodes=source.place.nodes, wanted=wanted).follow(over=over)


def _follow_cluster(source: ClusterSource, wanted: Wanted, printer: Printer) -> None:
    from trainrun_operator.cli.log_lines.cluster import ClusterLines  # noqa: PLC0415 - slow

    click.echo(f"following run {source.object_name} in {source.namespace}", err=True)
    ClusterLines(source=source, wanted=wanted).follow(printer.show)
