"""`trainrun checkpoints get` and `set-aside`: fetch a checkpoint, or exclude one from resumes.

Layer: cli. Needs the store only; works from any machine, while the run is on or after its end.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from trainrun._common.tree import stamp, walk
from trainrun.checkpoint.cache import CachedFile
from trainrun.checkpoint.inspection import CheckpointInfo, list_checkpoints, manifest_to_read
from trainrun.checkpoint.reader import checkpoint_on_node
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import Score
from trainrun.checkpoint.writer import set_aside
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged, TrainRunError
from trainrun_operator.cli import formatting
from trainrun_operator.cli.finding import find_run
from trainrun_operator.cli.sources import BEST, UnknownScore, best, generation_of, wanted_score

LARGE = 100_000_000
"""Bytes from which a file is named while it is read."""


class UnknownCheckpoint(TrainRunError):
    """The run has no such checkpoint, or none that can be used."""


class FolderInTheWay(TrainRunError):
    """The target folder is in use, or it cannot be written."""


def get_checkpoint(
    where: str,
    folder: Path,
    *,
    generation: int | None,
    step: str | None,
    score: str | None,
    **place: str | None,
) -> None:
    """Fetch the files of a checkpoint of the run of `find_run` into a new folder."""
    source = find_run(where, **place)
    run = generation_of(source, generation)
    found = list_checkpoints(run)
    if step == BEST:
        chosen = _best(found, wanted_score(score, source), uri=run.uri)
    else:
        chosen = _chosen(found, step, uri=run.uri)
    try:
        _download(run, chosen.id, folder)
    except CheckpointDamaged as error:
        _check_not_deleted(run, chosen.id, error)
        raise
    size = formatting.size(chosen.size_bytes)
    click.echo(f"{folder}: {chosen.files} files ({size}) of {chosen.id.name}, each verified")
    if chosen.state != "good":
        click.echo(f"note: this checkpoint is {chosen.state}: {chosen.reason}", err=True)


def set_checkpoint_aside(
    where: str, step: str, *, generation: int | None, reason: str, **place: str | None
) -> None:
    """Mark a checkpoint of the run of `find_run` so that no attempt resumes from it."""
    run = generation_of(find_run(where, **place), generation, certain=True)
    chosen = _chosen(list_checkpoints(run), step, uri=run.uri)
    set_aside(run, chosen.id, reason)
    left = [info for info in list_checkpoints(run) if info.state == "good"]
    click.echo(f"{chosen.id.name} is set aside: no attempt will resume from it")
    if left:
        newest = max(left, key=lambda info: info.id)
        click.echo(f"the next attempt resumes from {newest.id.name}, unless a newer one is saved")
    else:
        click.echo("no good checkpoint is left: the next attempt will fail with NoGoodCheckpoint")
    click.echo(f"to undo this, delete {run.uri}/{layout.bad_key(chosen.id)}")


def _best(found: list[CheckpointInfo], score: Score | None, *, uri: str) -> CheckpointInfo:
    if score is None:
        raise UnknownScore(
            f"{uri}: it is not known which checkpoint is best: give the run's YAML file with "
            "checkpoint.scoreMetric, or --score NAME:Max or NAME:Min"
        )
    chosen = best(found, score)
    if chosen is None:
        raise UnknownCheckpoint(
            f"{uri}: no good checkpoint has a number for {score.metric!r}; `trainrun checkpoints "
            "--json` lists their metrics"
        )
    return chosen


def _chosen(found: list[CheckpointInfo], step: str | None, *, uri: str) -> CheckpointInfo:
    """The newest good one, or that of a step: a good one if there is any, of the last attempt."""
    named = CheckpointId.named(step) if step is not None else None
    wanted = [
        info
        for info in found
        if info.state != "incomplete"
        and (step is None or info.id == named or str(info.id.step) == step)
    ]
    good = [info for info in wanted if info.state == "good"]
    if step is None:
        wanted = good
    if not wanted:
        what = "no good checkpoint" if step is None else f"no complete checkpoint of step {step}"
        raise UnknownCheckpoint(f"{uri}: there is {what}; `trainrun checkpoints` lists all")
    return max(good or wanted, key=lambda info: info.id)


def _check_not_deleted(run: RunStore, checkpoint: CheckpointId, error: CheckpointDamaged) -> None:
    """Raises UnknownCheckpoint if the checkpoint only looks damaged because it was deleted
    meanwhile."""
    left = {info.id for info in list_checkpoints(run) if info.state != "incomplete"}
    if checkpoint not in left:
        raise UnknownCheckpoint(
            f"{run.uri}: {checkpoint.name} was deleted during the download, because of "
            "checkpoint.keep; `trainrun checkpoints` lists what is left"
        ) from error


def _report_large(file: CachedFile, _: Path) -> bool:
    """On a terminal, name a file that takes long to read. Returns False: no local copy exists."""
    if file.size >= LARGE and sys.stderr.isatty():
        click.echo(f"reading {file.name}, {formatting.size(file.size)}", err=True)
    return False


def _download(run: RunStore, checkpoint: CheckpointId, folder: Path) -> None:
    """Download, then rename, so that the folder appears complete."""
    manifest = manifest_to_read(run, checkpoint)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderInTheWay(f"{folder} already exists; name a new folder, or an empty one")
    scratch = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".trainrun-", dir=folder.parent))
        files = checkpoint_on_node(run, manifest, cache_dir=scratch).directory(copy=_report_large)
        files.rename(folder)
        stamp(folder, walk(folder), apart=True)
    except OSError as error:
        raise FolderInTheWay(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
