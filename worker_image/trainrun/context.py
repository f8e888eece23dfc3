"""Who this process is: its run, attempt and place among the ranks.

Read from the environment, so it is the same under an agent, under `torchrun` (which sets the same
variables) and under plain `python` (which sets none: rank 0 of 1, attempt 1).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The place of this process in its run; constant for the life of the process."""

    run: str
    """Name of the run; `torchrun`'s rendezvous id without an agent; "local" without either."""
    attempt: int
    """Number of this start of the gang, from 1; only grows. Without an agent 1 + torchrun's
    restart count."""
    rank: int
    """Rank among all processes of the run, from 0."""
    world_size: int
    """Number of processes of the run."""
    local_rank: int
    """Rank among the processes of this worker, from 0: the usual index of the GPU."""
    local_world_size: int
    """Number of processes of this worker."""
    node_rank: int
    """Number of this worker in the gang, from 0."""
    master_addr: str
    """Where rank 0 listens for the process group; 127.0.0.1 where unset."""
    master_port: int
    """Its port; 29500, which is PyTorch's default, where unset."""

    def get_world_rank(self) -> int:
        """Return `rank` (Ray Train's name for it)."""
        return self.rank

    def get_world_size(self) -> int:
        """Return `world_size` (Ray Train's name for it)."""
        return self.world_size

    def get_local_rank(self) -> int:
        """Return `local_rank` (Ray Train's name for it)."""
        return self.local_rank

    def get_local_world_size(self) -> int:
        """Return `local_world_size` (Ray Train's name for it)."""
        return self.local_world_size

    def get_node_rank(self) -> int:
        """Return `node_rank` (Ray Train's name for it)."""
        return self.node_rank

    def get_experiment_name(self) -> str:
        """Return `run` (Ray Train's name for it)."""
        return self.run


def get_context() -> Context:
    """Return who this process is.

    Raises ValueError naming the environment variable that is not a number.
    """
    return from_environment(os.environ)


def from_environment(env: Mapping[str, str]) -> Context:
    """Return the context that these variables describe (see `get_context`)."""
    restarts = _number(env, "TORCHELASTIC_RESTART_COUNT", 0)
    return Context(
        run=env.get("TRAINRUN_RUN") or env.get("TORCHELASTIC_RUN_ID") or "local",
        attempt=_number(env, "TRAINRUN_ATTEMPT", restarts + 1),
        rank=_number(env, "RANK", 0),
        world_size=_number(env, "WORLD_SIZE", 1),
        local_rank=_number(env, "LOCAL_RANK", 0),
        local_world_size=_number(env, "LOCAL_WORLD_SIZE", 1),
        # torchrun calls it GROUP_RANK only.
        node_rank=_number(env, "NODE_RANK", _number(env, "GROUP_RANK", 0)),
        master_addr=env.get("MASTER_ADDR") or "127.0.0.1",
        master_port=_number(env, "MASTER_PORT", 29500),
    )


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"environment variable {name} is {text!r}, which is not a whole number; "
            "the agent, torchrun or your launcher sets it: unset it for a run of one process"
        ) from None
