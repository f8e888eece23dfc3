"""Where a report goes: stdout as lines or JSON, or a file as a page.

Layer: cli.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from trainrun.errors import InvalidSpec
from trainrun_operator.cli.report.model import Document
from trainrun_operator.cli.report.page import page
from trainrun_operator.cli.report.terminal import lines


def show(report: Document, *, as_json: bool) -> None:
    """Print a report."""
    show_lines(lines(report), report.data, as_json=as_json)


def show_lines(text: Iterable[str], data: object, *, as_json: bool) -> None:
    """Print these lines, or `data` as one JSON object."""
    for line in (json.dumps(data),) if as_json else text:
        click.echo(line)


def write(report: Document, file: Path) -> None:
    """Write the page of a report. Raises InvalidSpec if that fails."""
    write_page(page(report), file, option="--html")
    click.echo(f"written: {file}", err=True)


def write_page(text: str, file: Path, *, option: str) -> None:
    """Write a page, replacing an older one. Raises InvalidSpec, which names the option that asked
    for it."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"{option} {file}: cannot be written: {error.strerror}") from error
