"""Saves and loads sharded modules and their optimizers with torch.distributed.checkpoint.

Imported only if there are any: the import takes as long as importing torch.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.distributed_c10d import _get_default_store

from trainrun.torch.modules import bare

Data = dict[MetadataIndex, torch.Tensor | BytesIO]
AGAIN = 0.02
"""Seconds between two looks for what another rank brings."""
TIMEOUT = 1800.0
"""Seconds for which a rank waits for that, as PyTorch does."""
_numbers = itertools.count(1)
"""Numbers of the plans of this process; the same on all ranks."""


@dataclass(frozen=True)
class RankFailed:
    """What a rank brings that could not do its part."""

    why: str


@dataclass(frozen=True)
class ShardPlan:
    """What this rank writes of a state, for a thread that writes it later.

    The ranks exchange plans and results through the store of the process group, which outlives
    `destroy_process_group`. Collectives of a thread could meet those of the training.
    """

    local: SavePlan
    store: Store
    rank: int
    ranks: int
    number: int

    def write(self, data: Data, folder: Path) -> None:
        """Write this rank's data; on rank 0 also the metadata, once all ranks have written.

        Raises RuntimeError if another rank could not write, TimeoutError if one is silent.
        """
        writer, planner = FileSystemWriter(folder), _OfData(data)
        planner.set_up_planner({}, is_coordinator=self.rank == 0)
        writer.set_up_storage_writer(self.rank == 0)
        self._bring("plan", self.rank, writer.prepare_local_plan(self.local))
        metadata = None
        if self.rank == 0:
            with self._telling("order", *range(self.ranks)):
                plans, metadata = planner.create_global_plan(self._all("plan"))
                for rank, plan in enumerate(writer.prepare_global_plan(plans)):
                    self._bring("order", rank, plan)
        plan = planner.finish_plan(self._get("order", self.rank))
        with self._telling("result", self.rank):
            self._bring("result", self.rank, writer.write_data(plan, planner).wait())
        if metadata is not None:
            writer.finish(metadata, self._all("result"))

    @contextmanager
    def _telling(self, what: str, *ranks: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            for rank in ranks:
                self._bring(what, rank, RankFailed(f"{type(error).__name__}: {error}"))
            raise

    def _bring(self, what: str, rank: int, value: object) -> None:
        self.store.set(self._key(what, rank), pickle.dumps(value))  # type: ignore[arg-type]

    def _all(self, what: str) -> list[Any]:
        return [self._get(what, rank) for rank in range(self.ranks)]

    def _get(self, what: str, rank: int) -> Any:
        key, until = self._key(what, rank), time.monotonic() + TIMEOUT
        while not self.store.check([key]):  # a waiting get() would hold up the training's calls
            if time.monotonic() > until:
                raise TimeoutError(f"no {what} of rank {rank} for the sharded checkpoint")
            time.sleep(AGAIN)
        value = pickle.loads(self.store.get(key))
        self.store.delete_key(key)
        if isinstance(value, RankFailed):
            raise RuntimeError(f"the {what} of rank {rank} failed: {value.why}")
        return value

    def _key(self, what: str, rank: int) -> str:
        return f"trainrun/save-{self.number}/{what}-{rank}"


class _OfData(DefaultSavePlanner):
    """Takes the data from a copy."""

    def __init__(self, data: Data) -> None:
        super().__init__()
        self._data = data

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | BytesIO:
        """The data of an item."""
        return self._data[write_item.index]


def plan(parts: Mapping[str, Any]) -> tuple[ShardPlan, Data]:
    """Plan to write this rank's shards; call it on all ranks. The data are those of the parts, to
    be copied before they change."""
    alone = _alone()
    rank, ranks = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
    planner = DefaultSavePlanner()
    planner.set_up_planner(_state_of(parts), is_coordinator=rank == 0)
    local = planner.create_local_plan()
    data = {item.index: planner.resolve_data(item) for item in local.items}
    store = HashStore() if alone else _get_default_store()
    return ShardPlan(local, store, rank, ranks, next(_numbers)), data


def write(parts: Mapping[str, Any], folder: Path) -> None:
    """Write this rank's shards; a collective call."""
    save(_state_of(parts), storage_writer=FileSystemWriter(folder), no_dist=_alone())


def read(parts: Mapping[str, Any], folder: Path) -> None:
    """Read into modules and optimizers, sharded in any way or not at all; a collective call.

    Raises ValueError if an optimizer cannot hold a saved state.
    """
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    optimizers = {n: part for n, part in parts.items() if isinstance(part, torch.optim.Optimizer)}
    with ExitStack() as ready:
        for name, optimizer in optimizers.items():
            module, saved = _module_of(name, optimizer, parts), _saved(metadata, name)
            ready.enter_context(_made_ready(module, optimizer, saved))
            if lost := _without_place(module, optimizer, saved):
                raise ValueError(
                    f"{folder} has a state of {name} that this optimizer cannot hold: "
                    f"{', '.join(lost)}. Pass State the same optimizer for the same parameters"
                )
        state = _state_of(parts)
        load(state, storage_reader=reader, no_dist=_alone())
        for name, part in parts.items():
            if name in optimizers:
                with _without_a_step(part):
                    module = _module_of(name, part, parts)
                    set_optimizer_state_dict(module, part, optim_state_dict=state[name])
            else:
                set_model_state_dict(bare(part), state[name])


def _state_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _optimizer_state(_module_of(name, part, parts), part)
        if isinstance(part, torch.optim.Optimizer)
        else get_model_state_dict(bare(part))
        for name, part in parts.items()
    }


def _optimizer_state(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's unchanged state, by parameter names."""
    with _without_a_step(optimizer):
        return get_optimizer_state_dict(module, optimizer)


@contextmanager
def _without_a_step(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Keep PyTorch from filling an empty state with a step, which later steps would count.

    PyTorch does not do that if a parameter has a gradient.
    """
    first = _parameters(optimizer)[0]
    before = first.grad
    if before is None and not optimizer.state:
        first.grad = torch.zeros_like(first)
    try:
        yield
    finally:
        first.grad = before


@contextmanager
def _made_ready(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, set[str]]
) -> Iterator[None]:
    """Give the optimizer a state for exactly the parameters with a saved one.

    PyTorch creates and loads the state of parameters that require a gradient. These may differ from
    those at the save: parameters get frozen and unfrozen, and one that never had a gradient has no
    state.
    """
    groups = _optimizer_state(module, optimizer)["param_groups"]
    names = [name for group in groups for name in group["params"]]
    parameters = dict(zip(names, _parameters(optimizer), strict=True))
    required = {name: parameter.requires_grad for name, parameter in parameters.items()}
    if any(parameters[name] not in optimizer.state for name in saved if name in parameters):
        optimizer.state.clear()
    try:
        for name, parameter in parameters.items():
            parameter.grad = None
            parameter.requires_grad_(name in saved)
            if name not in saved:
                optimizer.state.pop(parameter, None)
        if saved:
            get_optimizer_state_dict(module, optimizer)  # does a step with learning rate 0
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.requires_grad_(required[name])


def _saved(metadata: Metadata, name: str) -> dict[str, set[str]]:
    """The keys of an optimizer's state in a checkpoint, by parameter names."""
    saved: dict[str, set[str]] = {}
    for part, *path in metadata.planner_data.values():
        if part == name and path[0] == "state":
            saved.setdefault(path[1], set()).add(path[2])
    return saved


def _without_place(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, set[str]]
) -> list[str]:
    places = _optimizer_state(module, optimizer)["state"]
    return sorted(
        f"{key} of {parameter}"
        for parameter, keys in saved.items()
        for key in keys - {str(key) for key in places.get(parameter, {})}
    )


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _module_of(
    name: str, optimizer: torch.optim.Optimizer, parts: Mapping[str, Any]
) -> torch.nn.Module:
    """The module whose parameters the optimizer changes: the state uses its parameter names."""
    changed = {id(parameter) for parameter in _parameters(optimizer)}
    for part in parts.values():
        if isinstance(part, torch.nn.Module):
            module = bare(part)
            if changed <= {id(parameter) for parameter in module.parameters()}:
                return module
    raise ValueError(
        f"{name} has sharded parameters that do not all belong to one module of this State: pass "
        "State the module whose parameters it changes"
    )


def _alone() -> bool:
    return not (dist.is_available() and dist.is_initialized())
