"""Saves and resumes a loop of Hugging Face Accelerate with the run.

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch, run in epochs(accelerator, 10, every=100):   # was: for epoch in range(10)
        for step, batch in run.batches(loader):             # was: for batch in loader
            ...                                             # train
            run.metrics["loss"] = loss.item()

No other module imports this one; only it and `trainrun.transformers` import accelerate.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import skip_first_batches
from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard
from accelerate.utils import DistributedType

from trainrun._process.checkpoint_handle import get_checkpoint
from trainrun._process.reporting import report, should_save, staging_directory
from trainrun.torch import modules, parts, random_state

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AccelerateSession", "epochs", "session"]

WHOLE = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
"""Types with which rank 0 saves the whole model."""


def epochs(accelerator: Any, number: int, *, every: int) -> Iterator[tuple[int, AccelerateSession]]:
    """Yield the remaining epochs of 0 to `number`, each with the `session` that they share.

    Call it after `accelerator.prepare()` and `register_for_checkpointing()`. The last step is saved
    when the loop ends, but not if it ends with `break`: use `session` for that.

    `number` is the number of epochs of the whole run; other arguments and errors are those of
    `session`.
    """
    with session(accelerator, every=every) as run:
        for epoch in range(run.epoch, number):
            yield epoch, run


@contextmanager
def session(accelerator: Any, *, every: int) -> Iterator[AccelerateSession]:
    """Load this attempt's checkpoint; save and report in the block. A manual form of `epochs`.

        with session(accelerator, every=100) as run:
            for epoch in range(run.epoch, 10):
                for step, batch in run.batches(loader): ...

    Enter it after `accelerator.prepare()` and `register_for_checkpointing()`. When the block ends
    without an error, the last step is saved.

    Args:
        accelerator: Saves and loads all objects that it has prepared.
        every: Batches between checkpoints, 1 or more.

    Raises ValueError for a setup that cannot be saved, AgentRefused if the checkpoint is damaged,
    and AgentLost.
    """
    run = AccelerateSession(accelerator, every=every)
    run.load()
    yield run
    run.close()


class AccelerateSession:
    """The progress of a loop; `session()` makes it.

    A checkpoint has the files of `Accelerator.save_state`, plus each rank's unused gradients,
    buffers and random numbers: it may be saved during gradient accumulation.
    """

    def __init__(self, accelerator: Any, *, every: int) -> None:
        """See `session`."""
        if every < 1:
            raise ValueError(f"every must be 1 or more, got {every}")
        if accelerator.distributed_type not in WHOLE:
            raise ValueError(
                "session() supports DistributedDataParallel and single processes, not "
                f"{accelerator.distributed_type.value}: save sharded models with "
                "trainrun.torch.State"
            )
        project = accelerator.project_configuration
        if project.automatic_checkpoint_naming or project.save_on_each_node:
            raise ValueError(
                "TrainRun decides where checkpoints are stored: leave out "
                "automatic_checkpoint_naming and save_on_each_node of ProjectConfiguration"
            )
        self.step = 0
        """Number of batches handed out in the whole run."""
        self.epoch = 0
        """The current epoch, from 0."""
        self.metrics: dict[str, Any] = {}
        """Metrics to report with this step; empty again after the report."""
        self._last_metrics: dict[str, Any] = {}
        """Metrics of the last report."""
        self._accelerator = accelerator
        self._every = every
        self._passed = 0
        self._place: dict[str, Any] = {}
        """State that reproduces this epoch's order."""
        self._loader: Any = None
        self._begun = False
        """Whether an iteration over this epoch has begun."""
        self._open = False
        """Whether the last batch handed out is not reported yet."""
        self._asked = False
        self._own: dict[str, Any] = {}

    def load(self) -> None:
        """Load this attempt's checkpoint; `session()` calls it."""
        for optimizer in self._accelerator._optimizers:  # noqa: SLF001 - it has no public name
            modules.watch(optimizer)
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return
        with checkpoint.as_directory() as directory:
            self.read(Path(directory), step=checkpoint.step)

    def read(self, directory: Path, *, step: int) -> None:
        """Load what `write` wrote into a directory after `step` batches.

        Raises ValueError if another tool wrote it.
        """
        self._accelerator.load_state(directory)
        self._own = modules.read_rank_file(directory)
        modules.restore_rank_state(self._own, self._models())
        self.step = step
        shared = self._own["shared"]
        self.epoch = shared["epoch"]
        self._passed = shared["passed"] // self._accelerator.num_processes

    def batches(self, loader: Any) -> Iterator[tuple[int, Any]]:
        """Yield the rest of this epoch: each batch with its number in the whole run.

        The step is reported, and saved if due, when the loop requests the next batch. An epoch left
        with `break` ends when the next one begins.

        Args:
            loader: The same one in all epochs: a DataLoader of a map-style dataset, after
                `accelerator.prepare()`, or a loader with a state
                (`trainrun.torch.ResumableLoader`).

        Raises ValueError for a loader whose position cannot be restored, or that has no length.
        """
        if self._begun:
            self._end_epoch()
        self._end_last_step(save=self.step % self._every == 0)
        self._loader = loader
        rest = self._rest(loader)
        self._begun = True
        for batch in rest:
            self.step, self._passed, self._open = self.step + 1, self._passed + 1, True
            yield self.step, batch
            self._end_step()
        self._end_epoch()

    def close(self) -> None:
        """Save the last step; `session()` calls it."""
        self._end_last_step(save=True)

    def _end_epoch(self) -> None:
        self.epoch, self._passed, self._place, self._begun = self.epoch + 1, 0, {}, False

    def _rest(self, loader: Any) -> Iterator[Any]:
        own, self._own = self._own, {}
        _check_length(loader)
        if not isinstance(loader, DataLoaderShard):
            if isinstance(loader, DataLoaderDispatcher) or not hasattr(loader, "state_dict"):
                raise ValueError(
                    f"a {type(loader).__name__} does not save its position: pass it through "
                    "accelerator.prepare() without dispatch_batches, or use a "
                    "trainrun.torch.ResumableLoader"
                )
            if fault := parts.fault_of_loader(loader):
                raise ValueError(f"a {type(loader).__name__}: {fault}")
            if own:
                loader.load_state_dict(_state_of(loader, own))
            return iter(loader)
        if loader.use_stateful_dataloader:
            raise ValueError(
                "DataLoaderConfiguration(use_stateful_dataloader=True) would skip batches twice "
                "here: leave it out"
            )
        return self._rest_of_shard(loader, own)

    def _rest_of_shard(self, loader: Any, own: dict[str, Any]) -> Iterator[Any]:
        """Begin the epoch in the same way, skip past batches, and continue in the same way."""
        generator = loader.synchronized_generator
        self._place = own.get("place") or {
            "rng": random_state.capture(),
            "generator": None if generator is None else generator.get_state(),
        }
        loader.set_epoch(self.epoch)
        if not self._passed:
            yield from loader
            return
        random_state.restore(self._place["rng"])
        if generator is not None and self._place["generator"] is not None:
            generator.set_state(self._place["generator"])
        rest = iter(skip_first_batches(loader, self._passed))
        first = list(islice(rest, 1))
        # Now those of the training: the ones above were for the order and for data loading.
        random_state.restore(own.get("rng", self._place["rng"]))
        yield from first
        yield from rest

    def _end_step(self) -> None:
        save = self.step % self._every == 0
        if should_save() and not self._asked:  # only once, since it stays true
            self._asked = save = True
        # The last step of an epoch may be the last of the run, which is always saved.
        if save or self._passed < len(self._loader):
            self._report(save=save)

    def _end_last_step(self, *, save: bool) -> None:
        if self._open:
            self._report(save=save)
        elif self.metrics and self._loader is not None:
            # Metrics of an evaluation after a step that was saved at once.
            metrics, self.metrics = {**self._last_metrics, **self.metrics}, {}
            report(metrics, step=self.step)

    def _report(self, *, save: bool) -> None:
        directory = staging_directory() if save else None
        if directory is not None:
            self.write(directory)
        self._last_metrics, self.metrics, self._open = self.metrics, {}, False
        report(self._last_metrics, step=self.step, checkpoint=directory)

    def write(self, directory: Path) -> None:
        """Save into a directory, after training on the last batch handed out."""
        self._accelerator.save_state(directory)
        ranks = self._accelerator.num_processes
        shared: dict[str, Any] = {"epoch": self.epoch, "passed": self._passed * ranks}
        own: dict[str, Any] = {"place": self._place}
        if not isinstance(self._loader, DataLoaderShard):
            alike = getattr(self._loader, "same_on_every_rank", False)
            (shared if alike else own)["loader"] = self._loader.state_dict()
        modules.write_rank_file(directory, self._models(), shared=shared, **own)

    def _models(self) -> list[Any]:
        return list(self._accelerator._models)  # noqa: SLF001 - it has no public name


def _check_length(loader: Any) -> None:
    try:
        len(loader)
    except TypeError as error:
        raise ValueError(
            f"a {type(loader).__name__} without len(), as of an iterable dataset, does not show "
            "which step is the last of an epoch: save with trainrun.torch.State"
        ) from error


def _state_of(loader: Any, own: dict[str, Any]) -> Any:
    """The state from which a user's loader resumes."""
    state = own["shared"].get("loader", own.get("loader"))
    if state is None:
        raise ValueError(
            f"the checkpoint has no state for this {type(loader).__name__}: it was saved with "
            "another loader, or with another number of ranks that each had their own state"
        )
    return state
