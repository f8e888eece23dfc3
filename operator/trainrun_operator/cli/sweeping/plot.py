"""`trainrun sweep plot`: a sweep as one page to open in a browser, to send, to keep.

Layer: cli. Reads the log alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.report.output import write_page
from trainrun_operator.cli.sweeping.reading import ReadSweep, read_sweep


def plot(
    where: str,
    *,
    storage: str | None,
    namespace: str | None,
    before_damage: bool,
    output: Path | None,
) -> int:
    """Write the page, by default `<sweep name>.html` here; returns the exit code."""
    try:
        page = _page_maker()
        sweep = read_sweep(where, storage=storage, namespace=namespace, before_damage=before_damage)
        file = Path(f"{sweep.name}.html") if output is None else output
        write_page(page(sweep), file, option="--output")
    except TrainRunError as error:
        return refused(error)
    click.echo(str(file))
    return SUCCEEDED


def _page_maker() -> Callable[[ReadSweep], str]:
    try:
        from trainrun_operator.cli.sweeping.plot_page import page  # noqa: PLC0415 - a second or two
    except ImportError as error:
        raise InvalidSpec(
            f"sweep plot needs Optuna and plotly, which cannot be loaded here ({error}): "
            'pip install "trainrun[plot]"'
        ) from error
    return page
