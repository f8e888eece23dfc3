"""`trainrun checkpoints --can-resume`: would a run with this storage resume, and from what?

Layer: cli. Asks the store alone, and changes nothing there.
"""

from __future__ import annotations

import json

import click

from trainrun.checkpoint.inspection import next_resolution
from trainrun.contract.agent_state import Resolution
from trainrun.errors import TrainRunError
from trainrun_operator.cli.exit_codes import FAILED, NO, SUCCEEDED
from trainrun_operator.cli.finding import find_run
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.which_generation import generation_of


def show_prospect(
    where: str,
    *,
    storage: str | None,
    namespace: str | None,
    generation: int | None,
    as_json: bool,
) -> int:
    """Say it in one line; returns 0 for yes, 3 for no, 1 where that cannot be told."""
    try:
        run = generation_of(find_run(where, storage=storage, namespace=namespace), generation)
        found = next_resolution(run)
    except TrainRunError as error:
        return refused(error)
    answer = _answer(found)
    if as_json:
        click.echo(json.dumps(_as_json(run.uri, found, answer=answer)))
    else:
        word = {True: "yes", False: "no", None: "not known"}[answer]
        click.echo(f"{word}: {_why(run.uri, found)}")
    return FAILED if answer is None else SUCCEEDED if answer else NO


def _answer(found: Resolution) -> bool | None:
    """Whether a run would resume; None: it would have to ask again, or another node."""
    match found.outcome:
        case "Resolved":
            return found.resume is not None
        case "Finished" | "NoGoodCheckpoint":
            return False
        case _:
            return None


def _why(uri: str, found: Resolution) -> str:
    aside = f"; damaged and newer: {'; '.join(found.set_aside)}" if found.set_aside else ""
    if found.resume is not None:
        at = found.resume
        return f"{uri}: a run resumes from step {at.step} of attempt {at.attempt}{aside}"
    if found.outcome == "Resolved":
        stays = "; earlier generations are not resumed" if found.generation > 1 else ""
        return f"{uri}: nothing was committed, a run starts from nothing{stays}"
    return found.message


def _as_json(uri: str, found: Resolution, *, answer: bool | None) -> dict[str, object]:
    at = found.resume
    return {
        "uri": uri,
        "canResume": answer,
        "step": None if at is None else at.step,
        "attempt": None if at is None else at.attempt,
        "name": None if at is None else at.name,
        "outcome": found.outcome,
        "message": _why(uri, found),
        "setAside": list(found.set_aside),
    }
