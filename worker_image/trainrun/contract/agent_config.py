"""What an agent is told at its start: who it is, what it runs, where checkpoints go.

Layer: contract. One JSON object in the environment variable `TRAINRUN_AGENT_CONFIG`; unknown
fields are ignored and missing ones take their defaults, so that both sides may be a version apart.
What may change while the worker lives comes in answers as well (`trainrun.contract.answer`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from trainrun.contract import variables, wire
from trainrun.contract.answer import RunSettings


class BadConfig(ValueError):
    """The configuration is missing or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Where the run's checkpoints live: `<uri>/<run_name>/`."""

    uri: str
    """`file:///absolute/path` or `s3://bucket/prefix`."""
    run_name: str
    endpoint_url: str | None = None
    """Address of an S3-compatible server; absent: Amazon's."""
    region: str | None = None
    credentials: str = ""
    """Name of the Secret that the environment has its keys from, "" for none. For the operator,
    which reads in a pod what its agent was told."""


KillMoment = Literal[
    "report",  # it has reported the step
    "save",  # its files of the step are written, and nothing of them is handed over
    "load",  # it asks for the files of the checkpoint of the step, that its attempt resumes from
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KillFault:
    """A fault on demand: the process of `rank` is killed at `step` or a later one."""

    kind: Literal["kill"] = "kill"
    rank: int
    step: int
    at: KillMoment = "report"
    mark: str
    """Path of its mark: see `contract.local_files`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The configuration of one agent. Durations are seconds.

    A value below is what the absent field means between versions, for ever, since the sender leaves
    out what equals it (see `wire`). What a run gets by default stands in `api/run/spec.py`.
    """

    run: str
    run_uid: str
    namespace: str = ""
    slot: int
    """The worker's number in the gang, its node rank."""
    worker: str
    """The worker's name, `<run>-<slot>-<creation attempt>`."""
    created_for: int = 1
    """The attempt for which this worker was created."""
    node: str = ""
    operator_url: str
    """Base address of the operator's agent server, `http://host:port` or `https://host:port`."""
    operators: tuple[str, ...] = ()
    """`address:port` of each operator when this worker was created, asked where `operator_url`
    leads nowhere; their certificates are for the name in it."""
    ca: str = ""
    """Certificates (PEM) of which one must have signed the server's; empty: the system's."""
    token: str = ""
    """Sent as `Authorization: Bearer`; empty: none."""
    token_file: str = ""
    """Holds the token instead; read before each request, since it is renewed. Empty: `token`."""
    directory: str
    """Private folder of this worker: staging, sockets, control files."""
    cache: str
    """Download cache of this node, shared by its workers."""
    storage: StorageConfig
    initial_from: str | None = None
    """URI of `checkpoint.initialFrom`."""
    workers: int = 0
    """Number of slots; 0: not said."""
    processes_per_worker: int = 1
    command: tuple[str, ...] = ()
    """What each process runs; the agent's own arguments after `--` come first."""
    library: str = ""
    """Folder with the package that scripts import, in front of the processes' PYTHONPATH; empty:
    the image has it."""
    working_dir: str = ""
    """Where processes start; empty: the agent's own working directory."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment of the processes, on top of the agent's own."""
    preload: tuple[str, ...] = ()
    """What a standby interpreter beside each process has imported; empty: there are none."""
    address: str = "127.0.0.1"
    """Where other workers reach this one; slot 0 offers it as MASTER_ADDR."""
    settings: RunSettings = field(default_factory=RunSettings)
    """What holds until an answer says otherwise."""
    checkpoint_patience: float = 30.0
    """A rank that says nothing for so long about a step for which another brought files is told
    of in the condition CheckpointWaiting."""
    metrics_interval: float = 30.0
    """Seconds between two pieces of metrics that slot 0's agent stores."""
    grace_seconds: float = 30.0
    """Time between SIGTERM and our own end."""
    parent_pid: int | None = None
    """Die with this parent (the local world)."""
    gpus: tuple[int, ...] = ()
    """This worker's share of the machine's GPUs; empty: leave CUDA_VISIBLE_DEVICES alone."""
    faults: tuple[KillFault, ...] = ()
    params: str = ""
    """The parameters of a sweep's trial as a JSON object, from its environment; else empty."""
    tell_at: tuple[int, ...] = ()
    """Steps that are told at once: a fault on demand waits for them."""

    @property
    def first_rank(self) -> int:
        """Global rank of the first local process."""
        return self.slot * self.processes_per_worker

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> AgentConfig:
        """Raise BadConfig with the field and what was expected."""
        try:
            return wire.decode(AgentConfig, json.loads(text))
        except ValueError as error:
            raise BadConfig(f"{variables.AGENT_CONFIG} cannot be read: {error}") from error

    @staticmethod
    def read(environ: Mapping[str, str], arguments: Sequence[str]) -> AgentConfig:
        """Read what this process was started with; `arguments` are `[--, command...]` or none.

        Raises BadConfig where the variable is missing or cannot be read, and for other arguments.
        """
        text = environ.get(variables.AGENT_CONFIG)
        if not text:
            raise BadConfig(
                f"{variables.AGENT_CONFIG} is not set; the agent is started by the operator or by "
                "`trainrun run`, which set it"
            )
        if arguments and arguments[0] != "--":
            raise BadConfig(
                f"unexpected argument {arguments[0]!r}; the command to train with follows after "
                "`--`"
            )
        config = AgentConfig.from_json(text)
        given = config.env or environ
        return replace(
            config,
            command=tuple(arguments[1:]) or config.command,
            address=environ.get(variables.POD_IP) or config.address,
            node=environ.get(variables.NODE_NAME) or config.node,
            params=given.get(variables.PARAMS, "") if variables.TRIAL in given else "",
        )
