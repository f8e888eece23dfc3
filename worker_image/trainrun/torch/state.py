"""The state of a training, saved to and loaded from checkpoints.

Files: `state.pt`, the state common to all ranks, written by rank 0; `state-rank<r>.pt`, the state
of rank r alone; `sharded/`, the shards of modules and optimizers with DTensor parameters.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from trainrun._process import session
from trainrun._process.checkpoint_handle import get_checkpoint
from trainrun._process.context import get_context
from trainrun._process.reporting import report, staging_directory
from trainrun.torch import modules, random_state
from trainrun.torch.parts import OF_PYTORCH, check_part, keep_apart, load_part
from trainrun.torch.snapshot import Shortage, SnapshotBuffers

RNG = "rng"
GRADIENTS = "gradients"
ACCUMULATING = "accumulating"
"""Key in each rank's file: whether it has gradients that a resume must not lose."""
SHARED_FILE = "state.pt"
SHARDED_FOLDER = "sharded"


class Stateful(Protocol):
    """An object that PyTorch saves and loads by its state."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Load a state."""


class State:
    """Model, optimizer and all other objects with a state, in one checkpoint.

    Modules, optimizers, learning rate schedulers, GradScalers and objects with a true attribute
    `same_on_every_rank` are assumed to be the same on all ranks, and rank 0 saves them. Each rank
    saves its own copy of anything else. Modules are saved without DistributedDataParallel and
    `torch.compile` wrappers. Modules with DTensor parameters (FSDP2) are saved in shards, with
    their optimizers, and load with any number of ranks.

    Gradients that no optimizer has used yet are saved as well, so a checkpoint may be saved during
    gradient accumulation; with FSDP2 only if each backward synchronizes them, which is the default.
    """

    def __init__(self, *, rng: bool = False, **parts: Stateful) -> None:
        """Keep references only.

        Args:
            rng: Also save each rank's random number generators: PyTorch's (CPU, GPU), Python's,
                NumPy's.
            parts: Objects with `state_dict()` and `load_state_dict()`, by names of your choice:
                `model=`, `optimizer=`, `scheduler=`, `loader=`, ...

        With `rng`, a DataLoader without a generator gets one: otherwise each iteration would draw a
        number from the training's, and a resume one more.

        Raises TypeError and ValueError for a part that could not be restored.
        """
        self._parts: dict[str, Any] = parts
        self._rng = rng
        self._checked = False
        self._buffers, self._warned = SnapshotBuffers(), False
        for name, part in self._parts.items():
            check_part(name, part)
            if rng:
                keep_apart(part)
            if isinstance(part, torch.optim.Optimizer):
                modules.watch(part)

    def load(self, *, partial: bool = False) -> int:
        """Load this attempt's checkpoint; return its step, or 0 if there is none.

        Call it on all ranks, after `warm_up`. Raises ValueError as `read` does, AgentRefused if the
        checkpoint is damaged, and AgentLost.
        """
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return 0
        with checkpoint.as_directory() as directory:
            self.read(directory, partial=partial)
        return checkpoint.step

    def save(
        self, step: int, metrics: Mapping[str, object] | None = None, *, wait: bool = True
    ) -> None:
        """Save a checkpoint of this step and report it: `staging_directory`, `write`, `report`.

        Call it on all ranks, after training on the last batch.

        Args:
            step: As for `report`.
            metrics: As for `report`.
            wait: False: copy the state, as it is now, into memory of this process, and return; a
                thread writes the copy and reports it. The memory is kept for later saves. If too
                little is left, it warns, once, and waits. It also waits if `should_save()` has
                returned a request. Pass the same on all ranks.

        Waits until the save before it is staged. If the thread cannot write, no rank has a
        checkpoint of its step, and the training continues. Raises what `staging_directory`, `write`
        and `report` raise.
        """
        session.current().await_background()
        directory = staging_directory()
        if wait or session.current().asked_to_save:
            self.write(directory)
            report(metrics, step=step, checkpoint=directory)
        else:
            report(metrics, step=step, checkpoint=directory, after=self._copied(directory))

    def write(self, directory: str | os.PathLike[str]) -> None:
        """Write this rank's files into a directory of your own; call it on all ranks.

        Raises TypeError if a state has values that could not be read again, and RuntimeError if
        FSDP2 has unsynchronized gradients (`set_requires_gradient_sync(False)`).
        """
        folder, sharded = Path(directory), self._sharded()
        for name, content in self._files(sharded).items():
            self._write(folder / name, content)
        if sharded:
            _dcp().write(sharded, folder / SHARDED_FOLDER)
        self._checked = True

    def _copied(self, folder: Path) -> Callable[[], None] | None:
        """Copy the state; return what writes the copy. None: it had no room, and all is written."""
        sharded = self._sharded()
        files = self._files(sharded)
        plan, data = _dcp().plan(sharded) if sharded else (None, {})
        if not self._checked:
            with torch.serialization.skip_data():
                for name, content in files.items():
                    self._write(folder / name, content)
            self._checked = True

        def write(files: dict[str, Any], data: dict[Any, Any]) -> None:
            for name, content in files.items():
                torch.save(content, folder / name)
            if plan is not None:
                plan.write(data, folder / SHARDED_FOLDER)

        copy = self._buffers.copy((files, data))
        if isinstance(copy, Shortage):
            self._warn_of(copy)
            write(files, data)
            return None
        return lambda: write(*copy())

    def _files(self, sharded: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The contents of this rank's files, except for shards."""
        context = get_context()
        own: dict[str, Any] = {
            "parts": {n: part.state_dict() for n, part in self._parts.items() if self._is_own(n)},
            "modules": {name: modules.own_state(part) for name, part in self._modules()},
        }
        if self._rng:
            own[RNG] = random_state.capture()
        own[ACCUMULATING] = self._is_accumulating(own)
        files = {_own_file(context.rank): own}
        if context.rank == 0:
            about = {
                "names": self._names(),
                "own": [*own["parts"], *([RNG] if self._rng else [])],
                "sharded": list(sharded),
                "world_size": context.world_size,
            }
            shared = {
                name: _bare(part).state_dict()
                for name, part in self._parts.items()
                if name not in sharded and not self._is_own(name)
            }
            files[SHARED_FILE] = {"about": about, "parts": shared}
        return files

    def read(self, directory: str | os.PathLike[str], *, partial: bool = False) -> None:
        """Load what `write` or `save` wrote, from a directory with the files of all ranks.

        Args:
            directory: Only read.
            partial: Load what fits, with a warning that names what is reset, if the checkpoint has
                other parts, or comes from another number of ranks and has state that belongs to a
                single rank (random numbers, the position in an iterable dataset, gradients). The
                training then continues, but not bit for bit.

        Raises ValueError if the checkpoint does not fit (names what is missing; see `partial`), if
        State did not write the directory, or if a part did not load its state.
        """
        folder, context = Path(directory), get_context()
        shared = _read(folder, SHARED_FILE)
        about = shared["about"]
        reset = _other_parts(folder, self._names(), about["names"], partial=partial)
        own: dict[str, Any] = {"parts": {}, "modules": {}}
        if about["world_size"] == context.world_size:
            own = _read(folder, _own_file(context.rank))
        else:
            wanted = {*self._names(), GRADIENTS} & {*about["own"], *_gradients(folder, about)}
            reset += _other_ranks(folder, wanted, about["world_size"], partial=partial)
        if reset:
            warnings.warn(
                f"{folder} lacks part of this training: {', '.join(reset)} was reset, so the "
                "training continues, but not bit for bit",
                stacklevel=2,
            )
        self._take_over(folder, shared, own)

    def _take_over(self, folder: Path, shared: dict[str, Any], own: dict[str, Any]) -> None:
        in_shards = {n: self._parts[n] for n in shared["about"]["sharded"] if n in self._parts}
        whole = {**shared["parts"], **own["parts"]}
        if wrong := [name for name in self._sharded() if name in whole]:
            raise ValueError(f"{folder} has {', '.join(wrong)} unsharded: load it before sharding")
        if in_shards:
            _dcp().read(in_shards, folder / SHARDED_FOLDER)
        for name, part in self._parts.items():
            if name in whole:
                load_part(name, _bare(part), whole[name])
        for name, part in self._modules():
            if name in own["modules"]:
                modules.load_own_state(part, own["modules"][name])
        if self._rng and RNG in own:
            random_state.restore(own[RNG])

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        torch.save(content, path)
        # Fail at the first save, not at the first resume. The check reads no tensors.
        if not self._checked and (
            unsafe := torch.serialization.get_unsafe_globals_in_checkpoint(path)
        ):
            raise TypeError(
                f"a state_dict() contains {', '.join(unsafe)}, which torch.load(weights_only=True) "
                "refuses to read: use plain values and tensors, or allow the class with "
                "torch.serialization.add_safe_globals()"
            )

    def _warn_of(self, shortage: Shortage) -> None:
        if not self._warned:
            warnings.warn(
                f"State.save(wait=False) waits: a copy of the state needs {_mb(shortage.needed)} "
                f"more memory, and {_mb(shortage.left)} are left for it. Raise the memory limit "
                "of the worker, or leave out wait=False",
                stacklevel=4,
            )
        self._warned = True

    def _names(self) -> list[str]:
        return [*self._parts, *([RNG] if self._rng else [])]

    def _modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                yield name, part

    def _is_own(self, name: str) -> bool:
        part = self._parts[name]
        return not (isinstance(part, OF_PYTORCH) or getattr(part, "same_on_every_rank", False))

    def _sharded(self) -> dict[str, Any]:
        return {name: part for name, part in self._parts.items() if _is_sharded(part)}

    def _is_accumulating(self, own: dict[str, Any]) -> bool:
        optimizers = [p for p in self._parts.values() if isinstance(p, torch.optim.Optimizer)]
        return any(
            modules.is_accumulating(part, own["modules"][name], optimizers)
            for name, part in self._modules()
        )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _gradients(folder: Path, about: dict[str, Any]) -> list[str]:
    """Return GRADIENTS if any rank had gradients that a resume must not lose: each file covers only
    its own rank."""
    files = [folder / _own_file(rank) for rank in range(about["world_size"])]
    own = (modules.load_file(file, mmap=True) for file in files if file.exists())
    return [GRADIENTS] if any(state.get(ACCUMULATING) for state in own) else []


def _is_sharded(part: object) -> bool:
    if isinstance(part, torch.nn.Module):
        # Not its parameters: after a forward without a backward, as in a validation, FSDP2 keeps
        # them unsharded. Calling state_dict() shards them again.
        return any(modules.is_sharded(value) for value in _bare(part).state_dict().values())
    if isinstance(part, torch.optim.Optimizer):
        return any(modules.is_sharded(p) for group in part.param_groups for p in group["params"])
    return False


def _other_parts(folder: Path, names: list[str], saved: list[str], *, partial: bool) -> list[str]:
    """The parts that the checkpoint lacks. Raises ValueError unless `partial`."""
    missing = [name for name in names if name not in saved]
    extra = [name for name in saved if name not in names]
    if partial or not (missing or extra):
        return missing
    wrong = [f"no {', '.join(missing)}"] if missing else []
    if extra:
        wrong.append(f"{', '.join(extra)} that this State lacks")
    raise ValueError(
        f"{folder} has {' and '.join(wrong)}: it was saved by State({_call(saved)}), and this is "
        f"State({_call(names)}). Use the same names, or load what both have with partial=True"
    )


def _other_ranks(folder: Path, own: set[str], ranks: int, *, partial: bool) -> list[str]:
    """The state that belonged to single ranks. Raises ValueError if there is any, unless
    `partial`."""
    if own and not partial:
        raise ValueError(
            f"{folder} was saved by {ranks} ranks, but this run has {get_context().world_size}: "
            f"each rank had its own {', '.join(sorted(own))}. Run with {ranks} ranks, or load what "
            "all ranks share with partial=True"
        )
    return sorted(own)


def _call(names: list[str]) -> str:
    return ", ".join(f"{name}={'True' if name == RNG else '...'}" for name in names)


def _read(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / name).exists():
        raise ValueError(
            f"{folder} has no {name}: State.save() was not called on all ranks, or another tool "
            "saved this checkpoint"
        )
    return modules.load_file(folder / name)


def _bare(part: Any) -> Any:
    return modules.bare(part) if isinstance(part, torch.nn.Module) else part


def _own_file(rank: int) -> str:
    return f"state-rank{rank}.pt"


def _dcp() -> Any:
    return importlib.import_module("trainrun.torch.sharded")  # as slow to import as torch
