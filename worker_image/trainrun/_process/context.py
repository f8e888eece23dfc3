"""Who this process is: its run, attempt and place among the ranks.

Read from the environment, so it is the same under an agent, under `torchrun` (which sets the same
variables) and under plain `python` (which sets none: rank 0 of 1, attempt 1).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from trainrun.contract.environment import Exchange, ProcessPlace, place_of, placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(ProcessPlace):
    """The place of this process in its run; constant for the life of the process."""

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
    context = Context.read(os.environ)
    given = Exchange.read(os.environ)
    if given is not None and given.place == place_of(context):
        with suppress(OSError):  # the agent has gone: nobody asks
            placed(given.control_file).touch()
    return context
