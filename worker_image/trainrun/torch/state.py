"""All that decides how a training goes on, saved to and loaded from a checkpoint directory.

Two kinds of files: `training.pt`, the same on every rank and written by rank 0 alone, and
`training-rank<r>.pt` with what differs: random numbers, and inside gradient accumulation also
gradients and batch norm statistics.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from trainrun.torch import random_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.utils.data import DataLoader

    from trainrun.torch.sampler import ResumableSampler


DDP_SYNCHRONIZES = "require_forward_param_sync"
"""DDP's own memory of whether its next forward copies rank 0's buffers: not after `no_sync()`."""


class Stateful(Protocol):
    """A scheduler, a gradient scaler, ...: what PyTorch saves and loads by its state."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Take a state over."""


class TrainingState:
    """Model, optimizer, position in the data, random numbers, and whatever else has a state."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        sampler: ResumableSampler,
        **more: Stateful,
    ) -> None:
        """Keep references only.

        Args:
            model: Bare or wrapped in DistributedDataParallel.
            optimizer: Any.
            sampler: Its position is advanced by `batches`; its rank names this rank's file.
            more: Further parts by name: `scheduler=`, `scaler=`, ...
        """
        self._model = model
        self._module = model
        if isinstance(model, DistributedDataParallel):
            self._module = cast("torch.nn.Module", model.module)
        self._sampler = sampler
        self._parts: dict[str, Any] = {
            "model": self._module,
            "optimizer": optimizer,
            "sampler": sampler,
            **more,
        }
        self._random: random_state.RandomState | None = None

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write this rank's files; call it on every rank, after training on the last batch.

        Call `optimizer.zero_grad()` before, except inside gradient accumulation: gradients that
        are there are saved.
        """
        folder, rank = Path(directory), self._sampler.rank
        if rank == 0:
            shared = {name: part.state_dict() for name, part in self._parts.items()}
            torch.save(shared, folder / "training.pt")
        torch.save(self._own_state(), folder / _own_file(rank))

    def load(self, directory: str | os.PathLike[str]) -> None:
        """Take over what `save` wrote, the files of all ranks being in one directory.

        With another world size the training goes on from the same position, but not bit for bit
        (a warning says so): random numbers begin anew, half-accumulated gradients are lost.
        """
        folder, rank = Path(directory), self._sampler.rank
        shared = torch.load(folder / "training.pt", map_location="cpu", weights_only=True)
        for name, part in self._parts.items():
            part.load_state_dict(shared[name])
        own = folder / _own_file(rank)
        state = torch.load(own, map_location="cpu", weights_only=True) if own.exists() else {}
        if state.get("world_size") == self._sampler.world_size:
            self._load_own_state(state)
        else:
            warnings.warn(
                f"{folder} was saved with another number of ranks than {self._sampler.world_size}:"
                " the training goes on from there, but not bit for bit",
                stacklevel=2,
            )

    def batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Yield the batches that this epoch has left, then begin the next epoch.

        A batch counts as consumed when it is handed out, so save after training on it.
        """
        if loader.sampler is not self._sampler or loader.batch_size is None:
            raise ValueError(
                "batches() needs a DataLoader with batch_size= and with sampler= the sampler of "
                "this TrainingState"
            )
        # An iterator draws a seed for its workers when it is made. Mid-epoch it is made once more
        # than in the undisturbed run, so it must not draw from the numbers of the training.
        with random_state.untouched():
            place = self._sampler.state_dict()
            torch.default_generator.manual_seed(sum(place.values()))
            iterator = iter(loader)
        if self._random is not None:
            random_state.restore(self._random)
            self._random = None
        for batch in iterator:
            self._sampler.advance(loader.batch_size)
            yield batch
        self._sampler.next_epoch()

    def _own_state(self) -> dict[str, Any]:
        gradients = {
            name: parameter.grad
            for name, parameter in self._module.named_parameters()
            if parameter.grad is not None
        }
        return {
            "world_size": self._sampler.world_size,
            "random": random_state.capture(),
            "gradients": gradients,
            "buffers": dict(self._module.named_buffers()),
            "synchronizes": getattr(self._model, DDP_SYNCHRONIZES, True),
        }

    def _load_own_state(self, state: dict[str, Any]) -> None:
        self._random = state["random"]
        for name, parameter in self._module.named_parameters():
            gradient = state["gradients"].get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                buffer.copy_(state["buffers"][name])
        if isinstance(self._model, DistributedDataParallel):
            setattr(self._model, DDP_SYNCHRONIZES, state["synchronizes"])


def _own_file(rank: int) -> str:
    return f"training-rank{rank}.pt"
