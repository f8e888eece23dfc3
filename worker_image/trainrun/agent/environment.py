"""The environment of a training process: torchrun's variables and ours.

Layer: agent, pure. The names are those that `env://` rendezvous and torchrun's users know, so that
scripts written for either run unchanged; see docs/architecture.md, one attempt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainrun.agent.config import (
    ADDRESS_VARIABLE,
    CONFIG_VARIABLE,
    NODE_VARIABLE,
    AgentConfig,
)
from trainrun.protocol import Start

NOT_INHERITED = (
    CONFIG_VARIABLE,  # holds the token
    ADDRESS_VARIABLE,  # would override those of an agent that a process starts
    NODE_VARIABLE,
    "TORCHELASTIC_USE_AGENT_STORE",  # would reuse the store of an attempt that is over
    "TRAINRUN_PROCESS",  # says who speaks for a rank; the new process does
    "TRAINRUN_CHECKPOINT",  # set below, or absent: never those of an outer run
    "TRAINRUN_INITIAL",
)

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFiles:
    """Paths of one rank in one attempt; see the module `folders`."""

    socket: Path
    staging: Path
    control: Path
    error_file: Path


def process_environment(
    base: Mapping[str, str], config: AgentConfig, start: Start, local_rank: int, files: RankFiles
) -> dict[str, str]:
    """Return the whole environment of the process of `local_rank`.

    Precedence: what makes up the attempt, then `config.env`, then the agent's own environment.
    """
    environment = {**base, **config.env}
    for name in NOT_INHERITED:
        environment.pop(name, None)
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("PYTHONUNBUFFERED", "1")  # our pipe would hold lines back otherwise
    if config.library:
        paths = [config.library, environment.get("PYTHONPATH", "")]
        # An empty part would be the working directory.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment.update(_rendezvous(config, start, local_rank))
    environment.update(_exchange(config, start, files))
    if config.address in LOOPBACK or config.parent_pid is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if config.gpus:
        # All of the worker's, as in a pod: scripts take theirs by LOCAL_RANK.
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, config.gpus))
    return environment


def _rendezvous(config: AgentConfig, start: Start, local_rank: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": start.master_addr,
        "MASTER_PORT": str(start.master_port),
        "RANK": str(config.first_rank + local_rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(start.world_size),
        "LOCAL_WORLD_SIZE": str(config.processes_per_worker),
        "NODE_RANK": str(config.slot),
        "GROUP_RANK": str(config.slot),
        "TORCHELASTIC_RUN_ID": config.run,
        "TORCHELASTIC_RESTART_COUNT": str(start.attempt - 1),
    }


def _exchange(config: AgentConfig, start: Start, files: RankFiles) -> dict[str, str]:
    variables = {
        "TORCHELASTIC_ERROR_FILE": str(files.error_file),
        "TRAINRUN_RUN": config.run,
        "TRAINRUN_ATTEMPT": str(start.attempt),
        "TRAINRUN_SOCKET": str(files.socket),
        "TRAINRUN_STAGING": str(files.staging),
        "TRAINRUN_CONTROL": str(files.control),
    }
    if start.resume is not None:
        storage = config.storage
        uri = f"{storage.uri.rstrip('/')}/{storage.run_name}/checkpoints/{start.resume.name}"
        variables["TRAINRUN_CHECKPOINT"] = json.dumps(
            {"attempt": start.resume.attempt, "step": start.resume.step, "uri": uri}
        )
    if config.initial_from is not None:
        variables["TRAINRUN_INITIAL"] = config.initial_from
    return variables
