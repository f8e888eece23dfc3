"""The configuration of an agent at its start: its identity, its command, its storage.

Layer: contract. One JSON object in the environment variable `TRAINRUN_AGENT_CONFIG`; unknown
fields are ignored and missing ones take their defaults, so that both sides may be a version apart.
Settings that may change while the worker lives also come in answers (`trainrun.contract.answer`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from trainrun.contract import variables, wire
from trainrun.contract.answer import RunSettings


class BadConfig(ValueError):
    """The configuration is missing or unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Where the run's checkpoints are stored: `<uri>/<run_name>/`."""

    uri: str
    """An address as `open_store` takes it."""
    run_name: str
    endpoint_url: str | None = None
    """Address of the server; absent: Amazon's, Google's or Azure's."""
    region: str | None = None
    credentials: str = ""
    """Name of the Secret with the keys in the environment; "": none. For the operator, which reads
    an agent's configuration back from its pod."""


KillMoment = Literal[
    "report",  # it has reported the step
    "save",  # it has written the files of the step, but not handed them over
    "load",  # it requests the files of its resume point, which is of the step
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KillFault:
    """An injected fault: kill the process of `rank` at `step` or a later one."""

    kind: Literal["kill"] = "kill"
    rank: int
    step: int
    at: KillMoment = "report"
    mark: str
    """Path of its mark: see `contract.local_files`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The configuration of one agent. Durations are seconds.

    A value below is the meaning of the absent field between versions; never change it, since the
    sender omits fields with this value (see `wire`). The defaults of a run are in
    `api/run/spec.py`.
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
    """`address:port` of each operator when this worker was created, used if `operator_url` is
    unreachable; their certificates are for the name in it."""
    ca: str = ""
    """CA certificates (PEM), one of which must have signed the server's; empty: the system's."""
    token: str = ""
    """Sent as `Authorization: Bearer`; empty: none."""
    token_file: str = ""
    """Path of a file with the token; read before each request, since it is renewed. Empty: use
    `token`."""
    directory: str
    """Private folder of this worker: staging, sockets, control files."""
    cache: str
    """Download cache of this node, shared by its workers."""
    storage: StorageConfig
    initial_from: str | None = None
    """URI of `checkpoint.initialFrom`."""
    workers: int = 0
    """Number of slots; 0: not given."""
    processes_per_worker: int = 1
    command: tuple[str, ...] = ()
    """The command of each process; the agent's own arguments after `--` take precedence."""
    library: str = ""
    """Folder with the package that scripts import, prepended to the processes' PYTHONPATH; empty:
    the image has it."""
    working_dir: str = ""
    """Working directory of the processes; empty: the agent's own."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment of the processes, on top of the agent's own."""
    preload: tuple[str, ...] = ()
    """Modules that a standby interpreter for each process imports; empty: there are none."""
    address: str = "127.0.0.1"
    """Address of this worker for the others; slot 0 offers it as MASTER_ADDR."""
    settings: RunSettings = field(default_factory=RunSettings)
    """Settings until an answer changes them."""
    checkpoint_patience: float = 30.0
    """How long a rank may be silent about a step for which another rank has reported files; then
    the condition CheckpointWaiting names it."""
    metrics_interval: float = 30.0
    """Seconds between two pieces of metrics that slot 0's agent stores."""
    grace_seconds: float = 30.0
    """Time between SIGTERM and the end of the agent."""
    parent_pid: int | None = None
    """Die with this parent (the local world)."""
    gpus: tuple[int, ...] = ()
    """This worker's share of the machine's GPUs; empty: leave CUDA_VISIBLE_DEVICES alone."""
    faults: tuple[KillFault, ...] = ()
    params: str = ""
    """The parameters of a sweep's trial as a JSON object, from its environment; else empty."""
    tell_at: tuple[int, ...] = ()
    """Steps that the agent reports at once: an injected fault waits for them."""

    @property
    def first_rank(self) -> int:
        """Global rank of the first local process."""
        return self.slot * self.processes_per_worker

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> AgentConfig:
        """Raises BadConfig with the field and the expected type."""
        try:
            return wire.decode(AgentConfig, json.loads(text))
        except ValueError as error:
            raise BadConfig(f"{variables.AGENT_CONFIG} cannot be read: {error}") from error

    @staticmethod
    def read(environ: Mapping[str, str], arguments: Sequence[str]) -> AgentConfig:
        """Read the configuration of this process; `arguments` are `[--, command...]` or none.

        Raises BadConfig if the variable is missing or unreadable, and for other arguments.
        """
        text = environ.get(variables.AGENT_CONFIG)
        if not text:
            raise BadConfig(
                f"{variables.AGENT_CONFIG} is not set; the operator or `trainrun run` sets it when "
                "it starts the agent"
            )
        if arguments and arguments[0] != "--":
            raise BadConfig(
                f"unexpected argument {arguments[0]!r}; write the training command after `--`"
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
