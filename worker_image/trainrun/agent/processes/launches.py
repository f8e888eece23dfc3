"""What the processes of an attempt are started with, and what they will be, before it is ordered.

Layer: agent. A standby is started with what lasts (see `environment`), and that is known as soon as
the worker is: so it can load while the gang gathers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainrun.agent.processes.environment import RankFiles, process_environment
from trainrun.agent.processes.group import Launch
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.answer import Start

SOMEWHERE = "http://127.0.0.1/"
"""Stands for where posts go."""
NOWHERE = RankFiles(
    socket=Path(),
    staging=Path(),
    control_file=Path(),
    error_file=Path(),
    token_file=Path(),
    stacks=Path(),
)
"""Stands for the files of a rank."""


def launches_of(
    config: AgentConfig,
    start: Start,
    files: Mapping[int, RankFiles],
    *,
    posts: str = "",
    generation: int = 1,
) -> list[Launch]:
    """One for each rank of the worker, with its `files`; see `process_environment`."""
    return [
        Launch(
            rank=rank,
            command=config.command,
            working_dir=config.working_dir,
            environment=process_environment(
                os.environ,
                config,
                start,
                local_rank,
                files[rank],
                posts=posts,
                generation=generation,
            ),
        )
        for local_rank, rank in enumerate(ranks_of(config))
    ]


def expected(config: AgentConfig) -> list[Launch]:
    """As they will be in any attempt, but for what does not last; none where nobody has said how
    many workers there are."""
    if not config.workers:
        return []
    start = Start(
        attempt=0,
        workers=config.workers,
        world_size=config.workers * config.processes_per_worker,
        master_addr="",
        master_port=0,
    )
    files = dict.fromkeys(ranks_of(config), NOWHERE)
    return launches_of(config, start, files, posts=SOMEWHERE if config.slot == 0 else "")


def ranks_of(config: AgentConfig) -> tuple[int, ...]:
    """Of this worker."""
    return tuple(range(config.first_rank, config.first_rank + config.processes_per_worker))
