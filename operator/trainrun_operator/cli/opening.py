"""What a new `trainrun run` finds of its run: nothing, something to continue, or a finished one.

Layer: cli. The storage alone says what is good; the status file beside it remembers budgets and
incidents. Where somebody removed the run from a file storage, the file is out of date and dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli import wording
from trainrun_operator.cli.preparation import Preparation
from trainrun_operator.core.run.config import config_of
from trainrun_operator.core.run.stages.resting import raised
from trainrun_operator.worlds.local.place import StatusFile, StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A run that is to be led, or that is over."""

    stored: StoredRun
    remark: str = ""
    """What the user should know before it goes on."""
    finished: bool = False


def open_run(prepared: Preparation) -> Opened:
    """Read or create the run's status file. Raises StatusUnreadable and StatusConflict."""
    file = StatusFile(prepared.place.status)
    spec = prepared.run.to_json_object()
    stored = file.read()
    if stored is None:
        return Opened(stored=file.create(spec))
    folder = _run_folder(prepared)
    if folder is not None and stored.status.attempt > 0 and not folder.exists():
        file.path.unlink()
        return Opened(stored=file.create(spec), remark=f"{folder} is gone: starting from nothing")
    if stored.status.is_true("Complete"):
        if prepared.run.spec.storage.on_existing != "StartFresh":
            return Opened(stored=stored, finished=True)
        # Another TrainRun of this file, as after deleting and applying it in a cluster.
        file.path.unlink()
        return Opened(stored=file.create(spec), remark=_anew(stored.status))
    if stored.spec != spec:
        stored = replace(stored, spec=spec, generation=stored.generation + 1)
    why = raised(stored.status, config_of(prepared.run), generation=stored.generation)
    remark = _remark(stored.status, why=why)
    if stored.status.is_true("Failed") and not why:
        # Budgets and history are those of the run that failed. The numbering goes on, and what is
        # known to be committed stays known: a store that shows nothing of it is not a new one.
        old = stored.status
        fresh = TrainRunStatus(
            attempt=old.attempt,
            checkpoint=old.checkpoint,
            storage_generation=old.storage_generation,
            run_id=old.run_id,
            chapters=old.chapters,
            story=old.story,
            spent=old.spent,
        )
        stored = replace(stored, status=fresh)
    return Opened(stored=file.replace(stored), remark=remark)


def _run_folder(prepared: Preparation) -> Path | None:
    parts = urlsplit(prepared.run.spec.storage.uri)
    return Path(unquote(parts.path)) / prepared.name if parts.scheme == "file" else None


def _anew(status: TrainRunStatus) -> str:
    kept = f"; what it saved stays, last {status.checkpoint.uri}" if status.checkpoint else ""
    return f"the run has succeeded before{kept}. A new one begins from nothing (onExisting)"


def _remark(status: TrainRunStatus, *, why: str) -> str:
    failed = status.condition("Failed")
    if failed is not None and failed.status == "True":
        how = "with fresh budgets"
        if why:
            how = f"with what it has used of its budgets, since {why}"
        return (
            f"the run failed before ({failed.reason}); it continues from its newest good "
            f"checkpoint {how}"
        )
    if status.attempt == 0:
        return ""
    return f"continuing after attempt {status.attempt} from the newest good checkpoint"


def finished_message(prepared: Preparation, status: TrainRunStatus) -> str:
    """What to say about a run that has succeeded before."""
    saved = f"; its last checkpoint is {status.checkpoint.uri}" if status.checkpoint else ""
    return (
        f"run {prepared.name} has succeeded already (step {wording.step_of(status)}{saved}). To "
        "train again set storage.onExisting: StartFresh, or use another storage.runName or storage"
    )
