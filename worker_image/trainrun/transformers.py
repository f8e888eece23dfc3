"""Let a Hugging Face Trainer save and resume with the run.

    trainer.add_callback(TrainRunCallback())
    trainer.train(resume_from_checkpoint=resume_path())

Nothing else imports this, and this is the only part that imports transformers, which brings
accelerate.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accelerate.utils import gather_object
from transformers import TrainerCallback

from trainrun.checkpoint_handle import get_checkpoint
from trainrun.context import get_context
from trainrun.reporting import report, staging_directory
from trainrun.save_request import should_save
from trainrun.staging import copy_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainrun.contract.metrics import Metric

__all__ = ["TrainRunCallback", "resume_path"]

PLAIN = (bool, int, float, str)
ONLY_RANK_0 = "trainer_state.json"
"""A file of a Trainer's checkpoint that rank 0 alone writes."""


def resume_path() -> str | None:
    """Return what `Trainer.train(resume_from_checkpoint=...)` resumes from; None: from nothing.

    It is this attempt's checkpoint in a local directory, for reading only. Raises AgentRefused
    where it is damaged, and AgentLost.
    """
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as directory:
        return directory


class TrainRunCallback(TrainerCallback):  # type: ignore[misc]  # its types are not installed
    """Reports a Trainer's steps, logs and checkpoints, and saves before a worker is taken away.

    Steps are the Trainer's `global_step`. A checkpoint that the Trainer has saved is reported as it
    is, with the files of all ranks; it is copied, so `save_total_limit` goes on as ever. Where a
    worker is about to be taken away, the Trainer saves after the step that it is at; with
    `save_strategy="best"` after the next one, without an evaluation, where that step was evaluated
    and is not the best.
    """

    def __init__(self) -> None:
        """Takes no arguments: one for each Trainer."""
        self._metrics: dict[str, Metric] = {}
        self._reported = -1
        self._saved = -1
        self._asked = False
        """Whether the Trainer was told to save before a worker is taken away."""
        self._answered = False
        """Whether it has saved since."""
        self._began = 0
        """When this training began, in the time of the disk that it saves to."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raises ValueError for arguments that cannot work."""
        if args.save_on_each_node:
            raise ValueError(
                "save_on_each_node=True gives every node's files the same names: leave it out, a "
                "checkpoint is read with the files of all nodes"
            )
        if args.save_only_model:
            raise ValueError("save_only_model=True leaves nothing to resume from: leave it out")
        _check_folders(gather_object([_Place.of(args)]))
        self._reported = state.global_step
        if args.local_process_index == 0:
            self._began = _now_on(Path(args.output_dir))

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the step before, which is over now: its log and its checkpoint belong together."""
        self._report(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let the Trainer save where a worker is about to be taken away; once, as that stays so."""
        if should_save() and not self._answered:
            if self._asked:
                # With save_strategy="best" an evaluation has undone it: not a second time.
                control.should_evaluate = False
            self._asked = control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Keep what is logged for the report of this step."""
        self._metrics |= {k: v for k, v in (logs or {}).items() if isinstance(v, PLAIN)}

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the checkpoint that the Trainer has saved."""
        # Ranks write into one folder on each node, and report it when the last of them is done.
        args.distributed_state.wait_for_everyone()
        self._answered = self._asked
        if state.global_step <= self._saved:
            return  # at the end of an epoch a step may be saved twice
        self._saved = state.global_step
        self._report(state.global_step, self._staged(args, f"checkpoint-{state.global_step}"))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the last step."""
        self._report(state.global_step)

    def _report(self, step: int, checkpoint: Path | None = None) -> None:
        if checkpoint is None and step == self._reported and not self._metrics:
            return
        metrics, self._metrics, self._reported = self._metrics, {}, step
        report(metrics, step=step, checkpoint=checkpoint)

    def _staged(self, args: Any, name: str) -> Path:
        """Copy what the ranks of this node have saved; empty where this rank brings nothing."""
        directory = staging_directory()
        if args.local_process_index != 0:
            return directory
        folder = Path(args.output_dir, name)
        # An earlier attempt may have left a folder of the same step: only what is new is of this.
        files = [
            path.relative_to(folder)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.stat().st_mtime_ns >= self._began
        ]
        if args.process_index != 0 and Path(ONLY_RANK_0) in files:
            return directory  # it is on a disk that all nodes share: rank 0 brings all of it
        for file in files:
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            copy_file(folder / file, directory / file)
        return directory


class _Place(NamedTuple):
    """Where a rank saves."""

    node: int
    rank: int
    folder: str

    @classmethod
    def of(cls, args: Any) -> _Place:
        context = get_context()
        return cls(context.node_rank, context.rank, str(Path(args.output_dir).resolve()))


def _check_folders(places: Iterable[_Place]) -> None:
    """Raises ValueError, on every rank alike, where the files of some would not be found."""
    first: dict[int, _Place] = {}
    for place in map(_Place._make, places):
        before = first.setdefault(place.node, place)
        if place.folder != before.folder:
            raise ValueError(
                f"rank {before.rank} has output_dir={before.folder!r} and rank {place.rank} of the "
                f"same worker {place.folder!r}: a checkpoint would lack the files of one. Give the "
                "processes of a worker the same output_dir"
            )


def _now_on(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".trainrun-") as file:
        return Path(file.name).stat().st_mtime_ns
