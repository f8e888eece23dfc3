"""Where a report goes: to stdout as lines or as JSON, and into a file as a page.

Layer: cli.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainrun.errors import InvalidSpec
from trainrun_operator.cli.report.model import Document
from trainrun_operator.cli.report.page import page
from trainrun_operator.cli.report.terminal import lines


def show(report: Document, *, as_json: bool) -> None:
    """Print it."""
    for line in (json.dumps(report.data),) if as_json else lines(report):
        click.echo(line)


def write(report: Document, file: Path) -> None:
    """Write its page. Raises InvalidSpec where that cannot be."""
    write_page(page(report), file, option="--html")
    click.echo(f"written: {file}", err=True)


def write_page(text: str, file: Path, *, option: str) -> None:
    """In place of one that is there already: it was of an earlier moment. Raises InvalidSpec, which
    names the option that asked for it."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"{option} {file}: cannot be written: {error.strerror}") from error
