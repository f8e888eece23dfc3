"""Launches of an attempt's processes and of their standbys, and the port for their rendezvous.

Layer: agent. A standby starts with the lasting part of the environment (see `environment`), which
is known as soon as the worker exists, so it can load while the gang gathers. It runs the same
command as its rank, if that is a Python with a script; this module only checks that a Python runs
it, and that this Python reads PYTHONPATH and sitecustomize.

The ranks meet at the port that slot 0 offers; JAX uses the next one. Any outgoing connection may
take a port in the kernel's ephemeral range between our check and rank 0's bind; only another server
may take one outside it.
"""

from __future__ import annotations

import errno
import os
import random
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainrun.agent.processes.environment import Folders, RankFiles, process_environment
from trainrun.agent.processes.group import Launch
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.answer import Start

SOMEWHERE = "http://127.0.0.1/"
"""Placeholder for the URL of posts."""


def launches_of(
    config: AgentConfig,
    start: Start,
    files: Mapping[int, RankFiles],
    *,
    posts: str = "",
    generation: int = 1,
) -> list[Launch]:
    """A launch for each rank of the worker, with its `files`; see `process_environment`."""
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
    """The launches of any attempt, apart from the parts that change; empty if the configuration
    has no number of workers."""
    if not config.workers:
        return []
    start = Start(
        attempt=0,
        workers=config.workers,
        world_size=config.workers * config.processes_per_worker,
        master_addr="",
        master_port=0,
    )
    files = {rank: Folders(config.directory).of_rank(0, rank) for rank in ranks_of(config)}
    return launches_of(config, start, files, posts=SOMEWHERE if config.slot == 0 else "")


def ranks_of(config: AgentConfig) -> tuple[int, ...]:
    """The global ranks of this worker."""
    return tuple(range(config.first_rank, config.first_rank + config.processes_per_worker))


_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_WITH_VALUE = "XW"
"""Options whose value may be the next word."""
_PLAIN = frozenset("bBdOPquvx")
"""Options that do not matter here."""
_NO_SITE = {"E": "ignores PYTHONPATH", "I": "ignores PYTHONPATH", "S": "does not load site"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCommand:
    """`python [options] script.py ...` or `python [options] -m module ...`."""

    interpreter: str
    options: tuple[str, ...]
    """Those before the script or -m."""


def python_command(command: Sequence[str]) -> PythonCommand | str:
    """Parse a command without launcher; a text: why it cannot have standbys."""
    if not command or not _PYTHON.fullmatch(PurePosixPath(command[0]).name):
        program = command[0] if command else "the empty command"
        return (
            f"{program} is not a Python interpreter; write the command as python script.py or "
            "python -m module"
        )
    words = list(command[1:])
    options: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--help" or word.startswith("--"):
            return f"python {word} does not run a script"
        if word == "-":
            return "the command reads its script from stdin"
        if not word.startswith("-"):
            return PythonCommand(interpreter=command[0], options=tuple(options))
        found = _option(word, bool(words))
        if isinstance(found, str):
            return found
        if found == _MODULE:
            return PythonCommand(interpreter=command[0], options=tuple(options))
        options += [word, *(words.pop(0) for _ in range(found))]
    return "the command names no script"


_MODULE = -1


def _option(word: str, more: bool) -> int | str:
    """How many of the next words belong to it; _MODULE: a module follows; a text: why not."""
    for place, letter in enumerate(word[1:], start=1):
        last = place == len(word) - 1
        if letter in _NO_SITE:
            return f"python -{letter} {_NO_SITE[letter]}"
        if letter == "m":
            return _MODULE if more or not last else "the command names no module"
        if letter in _WITH_VALUE:
            return 1 if last else 0
        if letter not in _PLAIN:
            return f"python -{letter} does not run a script"
    return 0


LATER: Mapping[str, tuple[str, ...]] = {
    "torch": (
        "torch._dynamo",
        "torch.nn.parallel.distributed",
        "torch.optim",
        "torch.optim.lr_scheduler",
        "torch.utils.data.distributed",
        "torch.utils.checkpoint",
        "torch.utils.serialization.config",
        "torch.distributed.device_mesh",
        "torch.distributed.fsdp",
        "torch.distributed.checkpoint",
        "torch.distributed.checkpoint.state_dict",
        "multiprocessing.popen_fork",
        "multiprocessing.queues",
        "multiprocessing.synchronize",
    ),
}
"""By preloaded module, the modules that it imports later: in PyTorch 2.9 at the first steps of DDP,
FSDP2, the optimizers, a DataLoader and distributed checkpoints. When it first wraps a model,
DistributedDataParallel imports dynamo with sympy, 900 modules that take longer than torch itself.
None of them creates a GPU context or starts a thread; inductor starts processes and is left out."""


def preload_text(names: Sequence[str]) -> str:
    """The modules and their later imports, in the format that a standby reads."""
    return " ".join(":".join((name, *LATER.get(name, ()))) for name in names)


EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")

DEFAULT_EPHEMERAL_RANGE = (32768, 60999)
"""Linux's default, used if the file cannot be read."""

CANDIDATE_RANGES = ((20000, 29999), (10000, 19999), (61000, 65000), (2000, 9999))
"""Tried in this order; 30000-32767 is reserved for Kubernetes' node ports."""

TRIES_PER_RANGE = 50


class NoFreePort(OSError):
    """Cannot bind any port outside the ephemeral range."""


def pick_port() -> int:
    """Return a TCP port outside the ephemeral range that can be bound now together with the next
    one.

    Raises NoFreePort.
    """
    low, high = ephemeral_range()
    for first, last in CANDIDATE_RANGES:
        outside = [port for port in range(first, last) if port + 1 < low or port > high]
        for port in random.sample(outside, min(TRIES_PER_RANGE, len(outside))):
            if can_bind(port) and can_bind(port + 1):
                return port
    raise NoFreePort(
        f"no free port for the rendezvous outside the ephemeral range {low}-{high}; "
        "narrow net.ipv4.ip_local_port_range or stop what listens there"
    )


def ephemeral_range(file: Path = EPHEMERAL_RANGE_FILE) -> tuple[int, int]:
    """Return the first and last port that the kernel uses for outgoing connections."""
    try:
        low, high = file.read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return DEFAULT_EPHEMERAL_RANGE


def can_bind(port: int) -> bool:
    """Whether a server could bind `port` on all addresses, as torch's TCPStore does."""
    # No SO_REUSEADDR: another program used a port in TIME_WAIT a moment ago.
    families = [socket.AF_INET6, socket.AF_INET] if socket.has_ipv6 else [socket.AF_INET]
    for family in families:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(("", port))
        except OSError as error:
            if family == socket.AF_INET6 and not _is_taken(error):
                continue  # IPv6 is switched off on this machine
            return False
    return True


def _is_taken(error: OSError) -> bool:
    return error.errno in (errno.EADDRINUSE, errno.EACCES)
