"""`trainrun checkpoints`: which checkpoints a run's storage holds, and whether they can be read.

Layer: cli. Reads the store only; works without a status file, from any machine.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import click

from trainrun.checkpoint.inspection import CheckpointInfo, list_checkpoints, next_resolution
from trainrun.checkpoint.inspection import verify as verify_checkpoint
from trainrun.checkpoint.ownership import generations, stored_run_id
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import Score
from trainrun.contract.agent_state import Resolution
from trainrun.errors import ObjectNotFound, StoreUnavailable
from trainrun_operator.cli import formatting
from trainrun_operator.cli.exit_codes import FAILED, NO, SUCCEEDED
from trainrun_operator.cli.finding import find_run, find_runs
from trainrun_operator.cli.report.output import show_lines
from trainrun_operator.cli.report.terminal import table
from trainrun_operator.cli.sources import (
    Source,
    UnknownRun,
    best,
    checkpoint_object,
    generation_of,
    never_started,
    own_generation,
    store_of,
    wanted_score,
)

Which = int | Literal["all"] | None
"""Number of a generation; None: the run's own, or the newest if that is not known."""

STATE_COLORS = {"good": "green", "incomplete": "yellow", "fenced": "yellow", "bad": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The checkpoints of one run."""

    at: RunStore
    generations: int
    """How many generations the run's folder has."""
    own: bool
    """The run uses this one, as far as is known."""
    checkpoints: tuple[CheckpointInfo, ...]
    verified: bool
    deleted: tuple[str, ...]
    """Names of those that the run deleted while others were verified."""
    score: Score | None

    @property
    def newest_good(self) -> CheckpointInfo | None:
        """The checkpoint that the next attempt resumes from."""
        good = [info for info in self.checkpoints if info.state == "good"]
        return max(good, key=lambda info: info.id, default=None)

    @property
    def best(self) -> CheckpointInfo | None:
        """The best good checkpoint, if a score is known."""
        return best(self.checkpoints, self.score)


def show_checkpoints(
    where: str, *, which: Which, verify: bool, score: str | None, as_json: bool, **place: str | None
) -> int:
    """Print the checkpoints of each run of `find_runs`; return 1 if `verify` found damage."""
    listings = [
        listing
        for run in find_runs(where, **place)
        for listing in _listings(run, which, verify=verify, score=wanted_score(score, run))
    ]
    for listing in listings:
        if as_json:
            click.echo(json.dumps(_as_json(listing)))
        else:
            for line in _lines(listing):
                click.echo(line)
    damaged = any(info.state == "bad" for listing in listings for info in listing.checkpoints)
    return FAILED if verify and damaged else SUCCEEDED


def _listings(
    source: Source, which: Which, *, verify: bool, score: Score | None
) -> Iterator[Listing]:
    """One listing for each generation that was asked for."""
    all_generations = generations(store_of(source))
    own = own_generation(source) or len(all_generations)
    for at in all_generations if which == "all" else [generation_of(source, which)]:
        listed = list_checkpoints(at)
        if not listed and at.generation == 1 and not at.objects(""):
            raise never_started(source)
        found = tuple(_verified(at, listed) if verify else listed)
        existing = {info.id for info in found}
        yield Listing(
            at=at,
            generations=len(all_generations),
            own=at.generation == own,
            checkpoints=found,
            verified=verify,
            deleted=tuple(info.id.name for info in listed if info.id not in existing),
            score=score,
        )


def _verified(at: RunStore, found: Sequence[CheckpointInfo]) -> Iterator[CheckpointInfo]:
    for number, info in enumerate(found, start=1):
        if sys.stderr.isatty():
            size = formatting.size(info.size_bytes)
            click.echo(f"reading {info.id.name}, {number} of {len(found)}, {size}", err=True)
        with contextlib.suppress(ObjectNotFound):  # retention deleted it meanwhile
            yield verify_checkpoint(at, info.id)


def _lines(listing: Listing) -> Iterator[str]:
    yield click.style(listing.at.uri, bold=True)
    if listing.generations > 1:
        yield f"  generation {listing.at.generation} of {listing.generations}{_the_others(listing)}"
    if listing.deleted:
        yield f"  deleted meanwhile: {', '.join(listing.deleted)}"
    if not listing.checkpoints:
        yield "  no checkpoints" if not listing.deleted else "  the others are newer: list again"
        return
    metric = (listing.score.metric,) if listing.score is not None else ()
    heads = ("", "step", "attempt", "state", "files", "size", "committed", *metric)
    head, *rows = table(heads, (_row(info, listing) for info in listing.checkpoints))
    yield head
    for line, info in zip(rows, listing.checkpoints, strict=True):
        reason = f"  {info.reason}" if info.reason else ""
        yield click.style(f"{line}{reason}", fg=STATE_COLORS[info.state])
    next_one = "the next attempt resumes from this one"
    yield f"  * {next_one if listing.own else 'the newest good one'}"
    if listing.score is not None:
        yield _about_the_best(listing.score, listing.best)
    if listing.verified:
        yield "  every file was read and its checksum compared"


def _the_others(listing: Listing) -> str:
    if not listing.own:
        return ""
    which = "the newest" if listing.at.generation == listing.generations else "this run's"
    return f", {which}; --generation N and --all-generations show the others"


def _about_the_best(score: Score, found: CheckpointInfo | None) -> str:
    if found is None:
        return f"  no good checkpoint has a number for {score.metric!r}"
    return f"  + the best by {score.metric} ({score.order})"


def _row(info: CheckpointInfo, listing: Listing) -> tuple[str, ...]:
    marks = ("*" if info is listing.newest_good else "", "+" if info is listing.best else "")
    return (
        "".join(marks),
        str(info.id.step),
        str(info.id.attempt),
        info.state,
        str(info.files),
        formatting.size(info.size_bytes),
        formatting.stamp(info.modified),
        *((_value(info, listing.score),) if listing.score is not None else ()),
    )


def _value(info: CheckpointInfo, score: Score) -> str:
    value = score.of(info.metrics)
    return "-" if value is None else f"{value:.6g}"


def _as_json(listing: Listing) -> dict[str, object]:
    return {
        "uri": listing.at.uri,
        "generation": listing.at.generation,
        "generations": listing.generations,
        "runId": stored_run_id(listing.at) or None,
        "verified": listing.verified,
        "score": listing.score and asdict(listing.score),
        "checkpoints": [
            {
                **checkpoint_object(info),
                "files": info.files,
                "sizeBytes": info.size_bytes,
                "metrics": dict(info.metrics),
                "metadata": dict(info.metadata),
                "newest": info is listing.newest_good,
                "best": info is listing.best,
            }
            for info in listing.checkpoints
        ],
    }


def show_prospect(where: str, *, generation: int | None, as_json: bool, **place: str | None) -> int:
    """Print in one line whether the run of `find_run` would resume, and from what; return 0 for
    yes, 3 for no, 1 if that is not known."""
    source = find_run(where, **place)
    try:
        run = generation_of(source, generation)
    except UnknownRun as error:
        raise StoreUnavailable(str(error)) from error  # the storage may just not be mounted here
    found = next_resolution(run)
    answer = _answer(found)
    word = {True: "yes", False: "no", None: "not known"}[answer]
    data = _prospect_json(run.uri, found, answer=answer)
    show_lines([f"{word}: {_answer_text(run.uri, found)}"], data, as_json=as_json)
    return FAILED if answer is None else SUCCEEDED if answer else NO


def _answer(found: Resolution) -> bool | None:
    """Whether a run would resume; None: only a retry, or another node, can find out."""
    match found.outcome:
        case "Resolved":
            return found.resume is not None
        case "Finished" | "NoGoodCheckpoint":
            return False
        case _:
            return None


def _answer_text(uri: str, found: Resolution) -> str:
    aside = f"; damaged and newer: {'; '.join(found.set_aside)}" if found.set_aside else ""
    if found.resume is not None:
        at = found.resume
        return f"{uri}: a run resumes from step {at.step} of attempt {at.attempt}{aside}"
    if found.outcome == "Resolved":
        stays = "; earlier generations are not resumed" if found.generation > 1 else ""
        return f"{uri}: nothing was committed, a run starts from scratch{stays}"
    return found.message


def _prospect_json(uri: str, found: Resolution, *, answer: bool | None) -> dict[str, object]:
    at = found.resume
    return {
        "uri": uri,
        "canResume": answer,
        "step": None if at is None else at.step,
        "attempt": None if at is None else at.attempt,
        "name": None if at is None else at.name,
        "outcome": found.outcome,
        "message": _answer_text(uri, found),
        "setAside": list(found.set_aside),
    }
