"""Let a Lightning Trainer save and resume with the run.

    trainer = Trainer(callbacks=[TrainRunCallback(every_n_steps=100)])
    trainer.fit(model, loader, ckpt_path=resume_path())

Nothing else imports this, and this is the only part that imports lightning.
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

from trainrun._process.checkpoint_handle import get_checkpoint
from trainrun._process.context import get_context
from trainrun._process.reporting import report, should_save, staging_directory
from trainrun._process.staging import copy_over
from trainrun.torch import ResumableLoader, modules, parts, random_state

if TYPE_CHECKING:
    from trainrun.contract.metrics import Metric

__all__ = ["TrainRunCallback", "resume_path"]

FILE = "lightning.ckpt"
"""What `Trainer.save_checkpoint` writes, on rank 0."""


def resume_path() -> str | None:
    """Return what `Trainer.fit(ckpt_path=...)` resumes from; None: from nothing.

    It is this attempt's checkpoint in a local file, for reading only. Raises AgentRefused where it
    is damaged, and AgentLost.
    """
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as directory:
        return str(Path(directory, FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the training stands between two batches; Lightning has no hook at that point."""

    rng: random_state.RandomState
    loaders: list[dict[str, Any]]
    evaluated: bool
    """Whether a validation has run, or an epoch has begun, since the last batch."""


class TrainRunCallback(Callback):  # type: ignore[misc]  # its types are not installed
    """Reports a Trainer's steps, metrics and checkpoints, and saves before a worker is taken away.

    Steps are the Trainer's `global_step`. A checkpoint is what `Trainer.save_checkpoint` writes,
    with each rank's random numbers, gradients and buffers and the state of its loaders beside it.
    It is saved when the next batch begins, so that all hooks of the step and the validation behind
    it are over, and where the training ends. ModelCheckpoint goes on as ever; the file that it
    holds for the best goes with each checkpoint, and a resume puts it back into its `dirpath`.
    """

    def __init__(self, *, every_n_steps: int) -> None:
        """One for each Trainer; list it last.

        Args:
            every_n_steps: Steps from one checkpoint to the next, 1 or more.

        Raises ValueError for another number.
        """
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps must be 1 or more, got {every_n_steps}")
        self._every = every_n_steps
        self._step = 0
        self._reported = 0
        self._due = False
        self._asked = False
        self._place: _Place | None = None
        """Where to save when the next batch begins."""
        self._saving: _Place | None = None
        self._own: dict[str, Any] = {}
        """What this rank resumes from."""
        self._handler: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Raises ValueError for what it cannot save."""
        if stage != "fit":
            return
        # Those of DeepSpeed and XLA are derived from these, and save otherwise.
        if type(trainer.strategy) not in (DDPStrategy, SingleDeviceStrategy):
            raise ValueError(
                f"TrainRunCallback saves with DDP and on single devices, not with "
                f"{type(trainer.strategy).__name__}: save sharded models with trainrun.torch.State"
            )
        if isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO):
            raise ValueError(
                "AsyncCheckpointIO has not written a checkpoint yet when it is reported: leave it "
                "out, TrainRun uploads in the background"
            )
        for callback in trainer.callbacks:
            if isinstance(callback, (BatchSizeFinder, LearningRateFinder)):
                raise ValueError(
                    f"after {type(callback).__name__} the Trainer no longer knows what it resumes "
                    "from: leave it out, and give what it finds in a run of its own"
                )
        self._handler = signal.getsignal(signal.SIGTERM)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Raises ValueError where there is a checkpoint that the Trainer was not given."""
        checkpoint = get_checkpoint()
        if checkpoint is not None and trainer.ckpt_path != resume_path():
            raise ValueError(
                f"this run has a checkpoint of step {checkpoint.step}, and fit() was not given it: "
                "call trainer.fit(..., ckpt_path=resume_path())"
            )

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Give the loaders of this rank their own states, and ModelCheckpoint its best file."""
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
        """Take over what this rank has alone."""
        if get_context().run_id and threading.current_thread() is threading.main_thread():
            # Lightning's own handler makes a collective of its own in the middle of any other.
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
        """A checkpoint that is due between two epochs begins the new one."""
        if self._place is None:
            return
        stateful = _stateful(trainer)
        if all(isinstance(loader, ResumableLoader) for loader in stateful):
            for loader in stateful:
                iter(loader)  # it is in the new epoch from here on
            self._place = _place(trainer, evaluated=True)
        else:
            self._place = None  # nobody knows the state that begins an epoch: a step later

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the step before, which is over now, and save where it is time to."""
        if self._own.get("evaluated"):
            # On its way here Lightning has begun an iteration over the validation data.
            random_state.restore(self._own["rng"])
        self._own = {}
        self._report_step(trainer)
        self._place = None

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Where a step is done, decide whether to save."""
        before, self._step = self._step, trainer.global_step
        if self._step == before:
            return  # it accumulates gradients
        if should_save() and not self._asked:  # once, as it stays so
            self._asked = self._due = True
        if self._step // self._every != before // self._every:
            self._due = True
        if self._due:
            self._place = _place(trainer, evaluated=False)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """It may have drawn random numbers."""
        if self._place is not None:
            self._place = _place(trainer, evaluated=True)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Save the last step."""
        self._place = _place(trainer, evaluated=False)
        self._report_step(trainer, ended=True)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """In a checkpoint of ours, set the counters to what they were before this batch."""
        if self._saving is None:
            return
        loop = _fit_loop(checkpoint)
        # The batch before is "processed and not completed": so Lightning leaves it in checkpoints
        # that are saved at the end of a batch, and so it completes it when it resumes.
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
        report(metrics, step=step, checkpoint=self._save(trainer, ended=ended))

    def _save(self, trainer: Any, *, ended: bool) -> Path | None:
        if self._place is None:
            return None
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
        for callback in _model_checkpoints(trainer) if trainer.is_global_zero else ():
            # Without a metric it is the last file, and the next one replaces it.
            best = Path(callback.best_model_path)
            if best.is_file() and (ended or callback.monitor):
                copy_over(best, directory / _name_of_best(callback))
        return directory


def _place(trainer: Any, *, evaluated: bool) -> _Place:
    loaders = [loader.state_dict() for loader in _stateful(trainer)]
    return _Place(rng=random_state.capture(), loaders=loaders, evaluated=evaluated)


def _loaders(trainer: Any) -> list[Any]:
    return list(CombinedLoader(trainer.train_dataloader).flattened)


def _stateful(trainer: Any) -> list[Any]:
    return [loader for loader in _loaders(trainer) if hasattr(loader, "state_dict")]


def _model_checkpoints(trainer: Any) -> list[Any]:
    return [each for each in trainer.checkpoint_callbacks if isinstance(each, ModelCheckpoint)]


def _name_of_best(callback: Any) -> str:
    return f"trainrun-best-{sha256(callback.state_key.encode()).hexdigest()[:12]}.ckpt"


def _put_back(folder: str, state: dict[str, Any], carried: Path, *, write: bool) -> None:
    """Let a ModelCheckpoint find its best file in its folder of this attempt, and its scores.

    Where its folder has another name than before it would forget the scores.
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
        wrong = "has no state_dict(), so an epoch that is interrupted begins its data anew"
    else:
        try:
            len(loader)
        except TypeError:
            wrong = "has no len(), so Lightning reads a batch ahead, which a resume leaves out"
    if wrong:
        warnings.warn(
            f"a {type(loader).__name__} {wrong}: training goes on after a resume, but not bit for "
            "bit. trainrun.torch.ResumableLoader of a map-style dataset is exact",
            stacklevel=2,
        )
