"""`trainrun convert`: write a TrainRun for another operator's job.

Layer: cli. Prints the YAML to stdout, and to stderr a line for everything the user should check.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml

from trainrun.contract.launcher import torch_launch
from trainrun.errors import InvalidSpec
from trainrun_operator.api.loading import InvalidFile, kinds_in, read, read_document
from trainrun_operator.api.resources import TRAINRUN, TrainRun
from trainrun_operator.api.run.launching import folder_problem, launching_of
from trainrun_operator.cli.converting.gang import (
    Fields,
    document_of,
    hidden_launcher,
    metadata_of,
    reason,
    unfilled,
)
from trainrun_operator.cli.converting.kinds import KINDS
from trainrun_operator.cli.converting.known_scripts import own_folder
from trainrun_operator.cli.exit_codes import FAILED, SUCCEEDED
from trainrun_operator.cli.preparation import read_file


class Converted(NamedTuple):
    """A TrainRun made from a job."""

    document: dict[str, Any]
    notes: list[str]
    """What was added that the job does not say, and what was left out."""
    problems: list[str]
    """What the user must change before it can run."""


def convert(file: Path, *, storage: str | None) -> int:
    """Write the TrainRun; returns 0, or 1 if it must be changed to run. Raises InvalidSpec."""
    converted = conversion(read_file(file), source=str(file), storage=storage)
    click.echo(yaml.safe_dump(converted.document, sort_keys=False), nl=False)
    for note in converted.notes:
        click.echo(f"note: {note}", err=True)
    for problem in converted.problems:
        click.echo(f"to be changed: {problem}", err=True)
    return FAILED if converted.problems else SUCCEEDED


def conversion(text: str, *, source: str, storage: str | None) -> Converted:
    """The TrainRun for the job in `text`. Raises InvalidSpec."""
    named = ", ".join(" ".join(kind.head) for kind in KINDS)
    jobs = [kind.head[1] for kind in KINDS]
    document = read_document(text, source=source, kind="job", kinds=jobs)
    head = (document.pop("apiVersion", None), document.pop("kind", None))
    kind = next((kind for kind in KINDS if kind.head == head), None)
    if kind is None:
        raise InvalidSpec(
            f"{source}: cannot convert {head[0]} {head[1]}; convert one of these: {named}"
        )
    document.pop("status", None)
    others = [str(other) for other in kinds_in(text) if other not in jobs]
    notes = [
        f"the {other} in this file is not part of the TrainRun; apply it as before"
        for other in others
    ]
    fields = Fields(document)
    try:
        metadata = metadata_of(fields, notes)
        gang = kind.gang_of(fields, notes)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidSpec(f"{source}: not a valid {head[1]}: {error}") from error
    except InvalidSpec as error:
        raise InvalidSpec(f"{source}: {error}") from error
    trainrun = document_of(metadata, gang, notes, storage=storage)
    _propose_folder(trainrun, notes)
    left = [f"{path} was left out: {reason(path, kind.settled)}" for path in fields.left()]
    return Converted(trainrun, [*notes, *left], _problems(trainrun))


def _propose_folder(trainrun: dict[str, Any], notes: list[str]) -> None:
    """Add the folder of a script that is known by its command, or say why it cannot be used."""
    try:
        run = _read(trainrun)
        found = own_folder(run.spec.workers.template.spec.training.words)
        if found is None:
            return
        name, checkpoint = found[0].name, {"folder": found[1]}
        with_folder = {**trainrun["spec"], "checkpoint": checkpoint}
        spec = _read({**trainrun, "spec": with_folder}).spec
    except InvalidFile:
        return  # a path that only the job's operator or a shell knows, or told as a problem
    if problem := folder_problem(spec.checkpoint.folder, spec.workers):
        notes.append(f"the command looks like {name}, and its saves are not stored: {problem}")
        return
    trainrun["spec"] |= {"checkpoint": checkpoint, "progress": found[0].progress}
    notes.append(
        f"checkpoint.folder and progress are proposals, because the command looks like "
        f"{name}; remove the folder if the script calls trainrun.report(checkpoint=)"
    )


def _read(trainrun: dict[str, Any]) -> TrainRun:
    """Raises InvalidFile."""
    return read(json.loads(json.dumps(trainrun)), TRAINRUN, source="the TrainRun")


def _problems(trainrun: dict[str, Any]) -> list[str]:
    try:
        run = _read(trainrun)
    except InvalidFile as error:
        return list(error.problems)
    if problem := launching_of(run.spec.workers).problem:
        return [problem]
    template = trainrun["spec"]["workers"]["template"]
    if launcher := hidden_launcher(template):
        problem = (
            f"the container's shell starts {launcher} once per process; let the command itself "
            "begin with torchrun or python, and move the rest into the image or an init container"
        )
        return [problem]
    words = run.spec.workers.template.spec.training.words
    launch = torch_launch(words)
    return unfilled(template, launch.arguments if launch else words)
