"""Saves and resumes a Lightning Trainer with the run.

    trainer = Trainer(callbacks=[TrainRunCallback(every_n_steps=100)])
    trainer.fit(model, loader, ckpt_path=resume_path())

No other module imports this one; only it imports lightning.
"""

from __future__ import annotations

import signal
import threading
import warnings
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder, ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import CombinedLoader

from trainrun._common.tree import copy_over
from trainrun._process.checkpoint_handle import get_checkpoint
from trainrun._process.context import get_context
from trainrun._process.reporting import report, should_save, staging_directory
from trainrun.torch import ResumableLoader, modules, parts, random_state

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from trainrun.contract.metrics import Metric

__all__ = ["TrainRunCallback", "resume_path"]

FILE = "lightning.ckpt"
"""The file that `Trainer.save_checkpoint` writes, on rank 0."""


def resume_path() -> str | None:
    """Return the path for `Trainer.fit(ckpt_path=...)`; None: start from scratch.

    It is this attempt's checkpoint in a local file, for reading only. Raises AgentRefused if it is
    damaged, and AgentLost.
    """
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as directory:
        return str(Path(directory, FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The state of the training between two batches, where Lightning has no hook."""

    rng: random_state.RandomState
    loaders: list[dict[str, Any]]
    evaluated: bool
    """Whether a validation ran, or an epoch began, since the last batch."""


class TrainRunCallback(Callback):  # type: ignore[misc]  # its types are not installed
    """Reports a Trainer's steps, metrics and checkpoints, and saves before a worker is taken away.

    Steps are the Trainer's `global_step`. A checkpoint has the file of `Trainer.save_checkpoint`,
    plus each rank's random numbers, gradients, buffers and loader states. It is saved when the next
    batch begins, after all hooks of the step and the validation after it, and when the training
    ends. With AsyncCheckpointIO the training goes on while it is written. ModelCheckpoint works as
    usual; each checkpoint includes its best file, and a resume puts that file back into its
    `dirpath`.
    """

    def __init__(self, *, every_n_steps: int) -> None:
        """Create one for each Trainer; list it last.

        Args:
            every_n_steps: Steps between checkpoints, 1 or more.

        Raises ValueError for other numbers.
        """
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps must be 1 or more, got {every_n_steps}")
        self._every = every_n_steps
        self._step = 0
        self._reported = 0
        self._due = False
        self._asked = False
        self._place: _Place | None = None
        """The state to save when the next batch begins."""
        self._saving: _Place | None = None
        self._own: dict[str, Any] = {}
        """The state from which this rank resumes."""
        self._handler: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Raises ValueError for a setup that it cannot save."""
        if stage != "fit":
            return
        # Subclasses for DeepSpeed and XLA save in other ways.
        if type(trainer.strategy) not in (DDPStrategy, SingleDeviceStrategy):
            raise ValueError(
                f"TrainRunCallback supports DDP and single devices, not "
                f"{type(trainer.strategy).__name__}: save sharded models with trainrun.torch.State"
            )
        for callback in trainer.callbacks:
            if isinstance(callback, (BatchSizeFinder, LearningRateFinder)):
                raise ValueError(
                    f"{type(callback).__name__} makes the Trainer forget its resume point: run it "
                    "separately, and set the value that it finds"
                )
        self._handler = signal.getsignal(signal.SIGTERM)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Raises ValueError if there is a checkpoint that was not passed to the Trainer."""
        checkpoint = get_checkpoint()
        if checkpoint is not None and trainer.ckpt_path != resume_path():
            raise ValueError(
                f"this run has a checkpoint of step {checkpoint.step}, but fit() does not resume "
                "from it: call trainer.fit(..., ckpt_path=resume_path())"
            )

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Restore this rank's loader states, and the best file of ModelCheckpoint."""
        path = resume_path()
        if path is None or trainer.ckpt_path != path:
            return
        self._own = modules.read_rank_file(Path(path).parent)
        if "loaders" in self._own:
            _fit_loop(checkpoint)["state_dict"]["combined_loader"] = self._own["loaders"]
        for callback in _model_checkpoints(trainer):
            if state := checkpoint["callbacks"].get(callback.state_key):
                carried = Path(path).parent / _name_of_best(callback)
                _put_back(callback.dirpath, state, carried, write=trainer.local_rank == 0)
        trainer.strategy.barrier()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Restore the state that only this rank has."""
        if get_context().run_id and threading.current_thread() is threading.main_thread():
            # Lightning's own handler would call a collective in the middle of another one.
            signal.signal(signal.SIGTERM, self._handler)
        for loader in _loaders(trainer):
            if fault := parts.fault_of_loader(loader):
                raise ValueError(f"a {type(loader).__name__}: {fault}")
            _warn_of(loader)
        self._step = self._reported = trainer.global_step
        modules.restore_rank_state(self._own, [trainer.model])
        trainer.callback_metrics.update(self._own.get("metrics", {}))
        for optimizer in trainer.optimizers:
            modules.watch(optimizer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Move a checkpoint that is due between two epochs into the new epoch."""
        if self._place is None:
            return
        stateful = _stateful(trainer)
        if all(isinstance(loader, ResumableLoader) for loader in stateful):
            for loader in stateful:
                iter(loader)  # enters the new epoch
            self._place = _place(trainer, evaluated=True)
        else:
            self._place = None  # the state at the start of an epoch is unknown: save a step later

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the previous step, which is complete now, and save if due."""
        if self._own.get("evaluated"):
            # Before this point Lightning has begun an iteration over the validation data.
            random_state.restore(self._own["rng"])
        self._own = {}
        self._report_step(trainer)
        self._place = None

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Decide after each step whether to save."""
        before, self._step = self._step, trainer.global_step
        if self._step == before:
            return  # gradient accumulation
        if should_save() and not self._asked:  # only once, since it stays true
            self._asked = self._due = True
        if self._step // self._every != before // self._every:
            self._due = True
        if self._due:
            self._place = _place(trainer, evaluated=False)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Capture the state again: the validation may have drawn random numbers."""
        if self._place is not None:
            self._place = _place(trainer, evaluated=True)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Save the last step."""
        self._place = _place(trainer, evaluated=False)
        self._report_step(trainer, ended=True)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """In our checkpoints, set the counters to their values before this batch."""
        if self._saving is None:
            return
        loop = _fit_loop(checkpoint)
        # The previous batch is "processed and not completed", as in Lightning's own checkpoints at
        # the end of a batch; Lightning completes it when it resumes.
        batches = loop["epoch_loop.batch_progress"]
        for counts in (batches["total"], batches["current"]):
            counts["ready"] -= 1
            counts["completed"] -= 1
        batches["is_last_batch"] = False
        loop["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1
        if self._saving.loaders:
            loop["state_dict"]["combined_loader"] = self._saving.loaders

    def _report_step(self, trainer: Any, *, ended: bool = False) -> None:
        step = trainer.global_step
        if step <= self._reported:
            return
        self._reported = step
        every = trainer.log_every_n_steps  # 0: never
        logged = every > 0 and step % every == 0
        wanted = trainer.is_global_zero and (ended or self._place is not None or logged)
        metrics = _metrics(trainer) if wanted else {}
        directory, saving = self._save(trainer, ended=ended)
        report(metrics, step=step, checkpoint=directory, after=saving)

    def _save(self, trainer: Any, *, ended: bool) -> tuple[Path | None, Future[None] | None]:
        """Return the directory, and the end of the save if that is not over."""
        if self._place is None:
            return None, None
        place, self._due, directory = self._place, False, staging_directory()
        self._saving = None if ended else place
        try:
            trainer.save_checkpoint(directory / FILE)
        finally:
            self._saving = None
        modules.write_rank_file(
            directory,
            [trainer.model],
            rng=place.rng,
            loaders=place.loaders,
            evaluated=place.evaluated,
            metrics={n: value.cpu() for n, value in trainer.callback_metrics.items()},
        )
        bests = {
            Path(callback.best_model_path): directory / _name_of_best(callback)
            for callback in (_model_checkpoints(trainer) if trainer.is_global_zero else ())
            # Without a metric it is the last file, which the next one replaces.
            if callback.best_model_path and (ended or callback.monitor)
        }
        return directory, _finish_save(trainer.strategy.checkpoint_io, bests)


def _place(trainer: Any, *, evaluated: bool) -> _Place:
    loaders = [loader.state_dict() for loader in _stateful(trainer)]
    return _Place(rng=random_state.capture(), loaders=loaders, evaluated=evaluated)


def _finish_save(io: Any, bests: dict[Path, Path]) -> Future[None] | None:
    """Copy the best files when they and the checkpoint are written; None: they are."""
    # Its only thread writes all checkpoints, in their order; ranks that do not write have none.
    asynchronous = isinstance(io, AsyncCheckpointIO)
    thread: Executor | None = io._executor if asynchronous else None  # noqa: SLF001 - not public

    def finish() -> None:
        if thread is not None and io._error is not None:  # noqa: SLF001 - not public
            raise io._error  # noqa: SLF001
        for best, copy in bests.items():
            if best.is_file():
                copy_over(best, copy)

    if thread is not None:
        copied: Future[None] = thread.submit(finish)
        return copied
    finish()
    return None


def _loaders(trainer: Any) -> list[Any]:
    return list(CombinedLoader(trainer.train_dataloader).flattened)


def _stateful(trainer: Any) -> list[Any]:
    return [loader for loader in _loaders(trainer) if hasattr(loader, "state_dict")]


def _model_checkpoints(trainer: Any) -> list[Any]:
    return [each for each in trainer.checkpoint_callbacks if isinstance(each, ModelCheckpoint)]


def _name_of_best(callback: Any) -> str:
    return f"trainrun-best-{sha256(callback.state_key.encode()).hexdigest()[:12]}.ckpt"


def _put_back(folder: str, state: dict[str, Any], carried: Path, *, write: bool) -> None:
    """Restore the best file of a ModelCheckpoint into this attempt's folder, and its scores.

    It would drop the scores if the folder's name differs from the saved one.
    """
    state["dirpath"] = folder
    if not carried.is_file():
        return
    best, here = state["best_model_path"], str(Path(folder, Path(state["best_model_path"]).name))
    if write:
        copy_over(carried, Path(here))
    state.update({name: here for name, value in state.items() if value == best})
    state["best_k_models"] = {
        here if path == best else path: score for path, score in state["best_k_models"].items()
    }


def _fit_loop(checkpoint: dict[str, Any]) -> dict[str, Any]:
    loop: dict[str, Any] = checkpoint["loops"]["fit_loop"]
    return loop


def _metrics(trainer: Any) -> dict[str, Metric]:
    return {name: value.item() for name, value in trainer.callback_metrics.items()}


def _warn_of(loader: Any) -> None:
    wrong = ""
    if not hasattr(loader, "state_dict"):
        wrong = "has no state_dict(), so an interrupted epoch starts again at its first batch"
    else:
        try:
            len(loader)
        except TypeError:
            wrong = "has no len(), so Lightning reads a batch ahead, which a resume skips"
    if wrong:
        warnings.warn(
            f"a {type(loader).__name__} {wrong}: training continues after a resume, but not bit "
            "for bit. trainrun.torch.ResumableLoader with a map-style dataset resumes exactly",
            stacklevel=2,
        )
