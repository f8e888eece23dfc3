"""The environment of a training process: written by the agent, read by the library.

Layer: contract. The names are in `contract.variables`; those of `ProcessPlace` are torchrun's, so
that scripts written for `env://` rendezvous run unchanged and the library also works under
torchrun.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainrun.contract import variables, wire

P = TypeVar("P", bound="ProcessPlace")

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Addresses that reach only this machine."""

LONGEST_RUN_ID = 32
"""Maximum characters of an id, also from other versions; ours have fewer."""
_RUN_ID = re.compile(rf"[a-z0-9]{{1,{LONGEST_RUN_ID}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """The place of a process in its run; constant for the life of the process."""

    run: str
    """Name of the run; `torchrun`'s rendezvous id without an agent; "local" without either."""
    run_id: str = ""
    """Id of the run, for trackers: up to 32 lowercase letters and digits, the same in all attempts
    and wherever the run continues from its storage. Empty without an agent."""
    attempt: int
    """Number of this start of the gang, from 1; only grows. Without an agent, 1 + torchrun's
    restart count."""
    rank: int
    """Rank of this process in the run, from 0."""
    world_size: int
    """Number of processes of the run."""
    local_rank: int
    """Rank of this process in its worker, from 0: usually the index of its GPU."""
    local_world_size: int
    """Number of processes of this worker."""
    node_rank: int
    """Number of this worker in the gang, from 0."""
    master_addr: str
    """Address where rank 0 listens for the process group; 127.0.0.1 if unset."""
    master_port: int
    """Its port; 29500, PyTorch's default, if unset."""

    @classmethod
    def read(cls: type[P], env: Mapping[str, str]) -> P:
        """Return the place that these variables describe; if none are set, rank 0 of 1, attempt 1.

        Raises ValueError naming the environment variable that is not a number.
        """
        restarts = _number(env, variables.TORCH_RESTART_COUNT, 0)
        return cls(
            run=env.get(variables.RUN) or env.get(variables.TORCH_RUN_ID) or "local",
            run_id=env.get(variables.RUN_ID, ""),
            attempt=_number(env, variables.ATTEMPT, restarts + 1),
            rank=_number(env, variables.RANK, 0),
            world_size=_number(env, variables.WORLD_SIZE, 1),
            local_rank=_number(env, variables.LOCAL_RANK, 0),
            local_world_size=_number(env, variables.LOCAL_WORLD_SIZE, 1),
            node_rank=_number(env, variables.NODE_RANK, _number(env, variables.GROUP_RANK, 0)),
            master_addr=env.get(variables.MASTER_ADDR) or "127.0.0.1",
            master_port=_number(env, variables.MASTER_PORT, 29500),
        )

    def write(self) -> dict[str, str]:
        """Return the variables that `read` needs, and those that torchrun sets for scripts."""
        return {
            variables.RUN: self.run,
            variables.RUN_ID: self.run_id,
            variables.ATTEMPT: str(self.attempt),
            variables.RANK: str(self.rank),
            variables.WORLD_SIZE: str(self.world_size),
            variables.LOCAL_RANK: str(self.local_rank),
            variables.LOCAL_WORLD_SIZE: str(self.local_world_size),
            variables.NODE_RANK: str(self.node_rank),
            variables.GROUP_RANK: str(self.node_rank),
            variables.MASTER_ADDR: self.master_addr,
            variables.MASTER_PORT: str(self.master_port),
            variables.GROUP_WORLD_SIZE: str(self.world_size // self.local_world_size),
            variables.ROLE_NAME: "default",
            variables.ROLE_RANK: str(self.rank),
            variables.ROLE_WORLD_SIZE: str(self.world_size),
            variables.TORCH_RUN_ID: self.run,
            variables.TORCH_RESTART_COUNT: str(self.attempt - 1),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The resume point that a process receives."""

    attempt: int
    """The attempt that saved it."""
    step: int
    uri: str
    """Its folder in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How a process reaches its agent, and which checkpoints it may request."""

    socket: Path
    staging: Path
    control_file: Path
    stacks: Path | None = None
    """File for the stacks of its threads; None: the agent never requests them."""
    place: str = ""
    """`<rank>/<world size>` of the process that the agent started; "": not given."""
    resume: ResumePoint | None = None
    """None: the attempt starts from scratch."""
    initial: str | None = None
    """URI of `checkpoint.initialFrom`."""

    @staticmethod
    def read(env: Mapping[str, str]) -> Exchange | None:
        """Return the values that an agent set; None: there is no agent.

        Raises KeyError naming a missing variable if that of the socket is set.
        """
        if not env.get(variables.SOCKET):
            return None
        resume = env.get(variables.CHECKPOINT)
        return Exchange(
            socket=Path(env[variables.SOCKET]),
            staging=Path(env[variables.STAGING]),
            control_file=Path(env[variables.CONTROL]),
            stacks=Path(env[variables.STACKS]) if env.get(variables.STACKS) else None,
            place=env.get(variables.PLACE, ""),
            resume=wire.decode(ResumePoint, wire.parsed(resume)) if resume else None,
            initial=env.get(variables.INITIAL) or None,
        )

    def write(self) -> dict[str, str]:
        """Return the variables that `read` needs."""
        written = {
            variables.SOCKET: str(self.socket),
            variables.STAGING: str(self.staging),
            variables.CONTROL: str(self.control_file),
            variables.PLACE: self.place,
        }
        if self.stacks is not None:
            written[variables.STACKS] = str(self.stacks)
        if self.resume is not None:
            written[variables.CHECKPOINT] = json.dumps(wire.encode(self.resume))
        if self.initial is not None:
            written[variables.INITIAL] = self.initial
        return written


def placed(control_file: Path) -> Path:
    """A file that a process creates when it asks for its place. It shows that the process knows its
    rank, even if it never contacts its agent."""
    return control_file.with_suffix(".placed")


def place_of(process: ProcessPlace) -> str:
    """`Exchange.place` of this process."""
    return f"{process.rank}/{process.world_size}"


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


def valid_run_id(text: str) -> str:
    """Return `text` if it is a valid run id, else an empty string."""
    return text if _RUN_ID.fullmatch(text) else ""
