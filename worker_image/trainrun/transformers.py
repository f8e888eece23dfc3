"""Saves and resumes a Hugging Face Trainer with the run.

    trainer.add_callback(TrainRunCallback())
    trainer.train(resume_from_checkpoint=resume_path())

No other module imports this one; only it imports transformers, which brings accelerate.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, broadcast, gather_object
from transformers import TrainerCallback

from trainrun._common.tree import copy_over
from trainrun._process.checkpoint_handle import get_checkpoint
from trainrun._process.context import get_context
from trainrun._process.reporting import report, should_save, staging_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainrun.contract.metrics import Metric

__all__ = ["TrainRunCallback", "resume_path"]

PLAIN = (bool, int, float, str)
ONLY_RANK_0 = "trainer_state.json"
"""A file of a Trainer's checkpoint that only rank 0 writes."""
BEST = Path("trainrun", "best")
"""Folder in a checkpoint for the files of the best one; a top-level folder of weights would count
as a PEFT adapter."""
NOT_OF_THE_MODEL = ("optimizer", "scheduler", "scaler", "rng_state")
"""Name prefixes of files that only a resume needs."""
DATA_PARALLEL = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
"""Types with which each rank has the whole model."""


def resume_path() -> str | None:
    """Return the path for `Trainer.train(resume_from_checkpoint=...)`; None: start from scratch.

    It is this attempt's checkpoint in a local directory, for reading only. Raises AgentRefused if
    it is damaged, and AgentLost.
    """
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as directory:
        return directory


class TrainRunCallback(TrainerCallback):  # type: ignore[misc]  # its types are not installed
    """Reports a Trainer's steps, logs and checkpoints, and saves before a worker is taken away.

    Steps are the Trainer's `global_step`. A checkpoint that the Trainer saves is reported
    unchanged, with the files of all ranks; it is copied, so `save_total_limit` works as usual. It
    includes the model of the Trainer's best checkpoint, if that is another one: a resume puts it
    back into `output_dir`. If a worker is about to be taken away, the Trainer saves after the
    current step. With `save_strategy="best"`, if that step was evaluated and is not the best, it
    saves after the next one, without an evaluation.
    """

    def __init__(self) -> None:
        """Create one for each Trainer; takes no arguments."""
        self._metrics: dict[str, Metric] = {}
        self._reported = -1
        self._saved = -1
        self._asked = False
        """Whether the Trainer was asked to save before a worker is taken away."""
        self._answered = False
        """Whether it has saved since."""
        self._began = 0
        """When this training began, by the clock of the disk that it saves to."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the best checkpoint. Raises ValueError for unsupported arguments."""
        _check_arguments(args, state)
        _check_folders(gather_object([_Place.of(args)]))
        self._reported = state.global_step
        if args.local_process_index == 0:
            self._began = _now_on(Path(args.output_dir))
        checkpoint = get_checkpoint()
        if checkpoint is not None and checkpoint.step == state.global_step:
            _restore_best(args, state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the previous step, which is complete now, with its log and its checkpoint."""
        self._report(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Make the Trainer save if a worker is about to be taken away; only once, since it stays
        so."""
        if should_save() and not self._answered:
            if self._asked:
                # With save_strategy="best" an evaluation has cancelled the save; prevent another.
                control.should_evaluate = False
            self._asked = control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Keep logged metrics for the report of this step."""
        self._metrics |= {k: v for k, v in (logs or {}).items() if isinstance(v, PLAIN)}

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the checkpoint that the Trainer has saved."""
        # Ranks write into one folder per node, and report it when all of them are done.
        args.distributed_state.wait_for_everyone()
        self._answered = self._asked
        if state.global_step <= self._saved:
            return  # the last step of an epoch may be saved twice
        self._saved = state.global_step
        self._report(state.global_step, self._staged(args, state))

    def on_train_end(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Report the last step; if the Trainer has loaded the best model, send it to all ranks.

        On disks not shared with rank 0, the best checkpoint has no weights.
        """
        self._report(state.global_step)
        context, loaded = get_context(), args.load_best_model_at_end and state.best_global_step
        if (
            loaded
            and context.local_world_size < context.world_size
            and AcceleratorState().distributed_type in DATA_PARALLEL
        ):
            for tensor in model.state_dict().values():
                tensor.copy_(broadcast(tensor))

    def _report(self, step: int, checkpoint: Path | None = None) -> None:
        if checkpoint is None and step == self._reported and not self._metrics:
            return
        metrics, self._metrics, self._reported = self._metrics, {}, step
        report(metrics, step=step, checkpoint=checkpoint)

    def _staged(self, args: Any, state: Any) -> Path:
        """Copy the files that the ranks of this node saved; empty if another rank reports them."""
        directory = staging_directory()
        if args.local_process_index == 0:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            self._copy_files(args, folder, directory)
            best = Path(state.best_model_checkpoint or folder)
            if best.name != folder.name:
                self._copy_files(args, best, directory / BEST, all_of_it=False)
        return directory

    def _copy_files(self, args: Any, folder: Path, to: Path, *, all_of_it: bool = True) -> None:
        files = _files(folder)
        if all_of_it:
            # An earlier attempt may have left a folder for the same step: skip its old files.
            files = [file for file in files if (folder / file).stat().st_mtime_ns >= self._began]
        else:
            files = _of_the_model(files)
        if args.process_index != 0 and Path(ONLY_RANK_0) in files:
            return  # the disk is shared by all nodes: rank 0 reports all files
        for file in files:
            copy_over(folder / file, to / file)


class _Place(NamedTuple):
    """The folder in which a rank saves."""

    node: int
    rank: int
    folder: str

    @classmethod
    def of(cls, args: Any) -> _Place:
        context = get_context()
        return cls(context.node_rank, context.rank, str(Path(args.output_dir).resolve()))


def _check_arguments(args: Any, state: Any) -> None:
    """Raises ValueError, each naming what to change."""
    if args.save_on_each_node:
        raise ValueError(
            "save_on_each_node=True gives the files of all nodes the same names: leave it out, "
            "since a checkpoint contains the files of all nodes"
        )
    if args.save_only_model:
        raise ValueError("save_only_model=True leaves nothing to resume from: leave it out")
    if state.is_hyper_param_search:
        raise ValueError(
            "hyperparameter_search() saves each trial in its own folder and cannot be resumed: "
            "train one trial per run, as a sweep does"
        )
    keeping = sorted(set(state.stateful_callbacks) - {"TrainerControl"})
    if keeping and not args.restore_callback_states_from_checkpoint:
        raise ValueError(
            f"{', '.join(keeping)} would lose state in a resume: set "
            "restore_callback_states_from_checkpoint=True"
        )
    checkpoint = get_checkpoint()
    if checkpoint is not None and state.global_step == 0 < checkpoint.step:
        raise ValueError(
            f"this run has a checkpoint of step {checkpoint.step}, but train() does not resume "
            "from it: call trainer.train(resume_from_checkpoint=resume_path())"
        )


def _restore_best(args: Any, state: Any) -> None:
    """Restore the best checkpoint to its folder, since a new disk does not have it.

    Raises ValueError if the checkpoint does not include it.
    """
    resumed = Path(str(resume_path()))
    named = json.loads((resumed / ONLY_RANK_0).read_text())["best_model_checkpoint"]
    if named is None:
        return
    folder = Path(args.output_dir, Path(named).name)
    source = resumed if folder.name == f"checkpoint-{state.global_step}" else resumed / BEST
    if not source.is_dir():
        if args.load_best_model_at_end and not folder.is_dir():
            raise ValueError(
                f"the checkpoint of step {state.global_step} does not include the best one, "
                f"{folder.name}, which is not in output_dir either: put it there, or leave out "
                "load_best_model_at_end"
            )
        return
    if args.local_process_index == 0:
        for file in _of_the_model(_files(source)):
            copy_over(source / file, folder / file)
    args.distributed_state.wait_for_everyone()
    state.best_model_checkpoint = str(folder)


def _files(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]


def _of_the_model(files: list[Path]) -> list[Path]:
    """The files of a checkpoint from which its model is loaded."""
    return [
        file
        for file in files
        if file.parts[0] != BEST.parts[0] and not file.parts[0].startswith(NOT_OF_THE_MODEL)
    ]


def _check_folders(places: Iterable[_Place]) -> None:
    """Raises ValueError, on all ranks alike, if the files of some ranks would not be found."""
    first: dict[int, _Place] = {}
    for place in map(_Place._make, places):
        before = first.setdefault(place.node, place)
        if place.folder != before.folder:
            raise ValueError(
                f"rank {before.rank} has output_dir={before.folder!r}, but rank {place.rank} of "
                f"the same worker has {place.folder!r}, so a checkpoint would lack files. Give the "
                "processes of a worker the same output_dir"
            )


def _now_on(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".trainrun-") as file:
        return Path(file.name).stat().st_mtime_ns
