"""The environment of a training process, and its folders in the worker's folder.

Layer: agent. Sets the variables of `env://` rendezvous and of torchrun, so that scripts written for
either run unchanged, and our own; see docs/architecture.md, one attempt. Paths of an attempt
contain its number, so that lower attempts can be deleted and never be confused with the current
one.
"""

from __future__ import annotations

import logging
import os
import pkgutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainrun._common.tree import remove_directory
from trainrun.contract import layout, variables
from trainrun.contract.agent_config import AgentConfig, StorageConfig
from trainrun.contract.answer import Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.environment import LOOPBACK, Exchange, ProcessPlace, ResumePoint, place_of

LOG = logging.getLogger("trainrun.agent")

NOT_INHERITED = (
    variables.AGENT_CONFIG,  # holds the token
    variables.POD_IP,  # would override those of an agent that a process starts
    variables.NODE_NAME,
    variables.TORCH_AGENT_STORE,  # would reuse the store of an ended attempt
    variables.PROCESS,  # names the process that reports for a rank: now the new one
    variables.CHECKPOINT,  # set below, or absent: never those of an outer run
    variables.INITIAL,
    variables.RESUME_PATH,
    variables.RESUME_ARGS,
)

LEFT_TO_USERS = (
    variables.WANDB_RUN_ID,
    variables.WANDB_RESUME,
    variables.POSTS_URL,
    variables.POSTS_TOKEN,
    variables.JAX_COORDINATOR_ADDRESS,
    variables.JAX_NUM_PROCESSES,
    variables.JAX_PROCESS_ID,
    variables.JAX_LOCAL_DEVICE_IDS,
)
"""Values set by the container are kept; values inherited from an outer run are dropped."""

OF_AN_ATTEMPT = frozenset(
    (
        variables.ATTEMPT,
        variables.RUN_ID,
        variables.WANDB_RUN_ID,
        variables.WANDB_RESUME,
        variables.SOCKET,
        variables.STAGING,
        variables.CONTROL,
        variables.STACKS,
        variables.CHECKPOINT,
        variables.RESUME_PATH,
        variables.RESUME_ARGS,
        variables.MASTER_ADDR,
        variables.MASTER_PORT,
        variables.TORCH_RESTART_COUNT,
        variables.TORCH_ERROR_FILE,
        variables.JAX_COORDINATOR_ADDRESS,
        variables.POSTS_URL,
        variables.POSTS_TOKEN,
    )
)
"""Variables that change with each attempt, or are known only once it is ordered."""

COMPILED = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
}
"""Compiler caches, the CUDA driver's included, as folders on the worker's disk, unless the user has
set them: by default they are below /tmp and the home folder, which a pod may not be allowed to
write. Not TORCH_EXTENSIONS_DIR: an image may have extensions in its default folder. Not JAX's: that
would enable a cache that only rank 0 writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFiles:
    """Paths of one rank in one attempt; see `Folders`."""

    socket: Path
    staging: Path
    control_file: Path
    error_file: Path
    token_file: Path
    """Holds the token for progress posts."""
    stacks: Path
    """Where it writes the stacks of its threads."""


def process_environment(
    base: Mapping[str, str],
    config: AgentConfig,
    start: Start,
    local_rank: int,
    files: RankFiles,
    *,
    posts: str = "",
    generation: int = 1,
) -> dict[str, str]:
    """Return the complete environment of the process of `local_rank`. `posts`: the URL at which
    rank 0's framework may post its progress, empty: none; `generation`: of the run's folder.

    Precedence: variables of the attempt, then `config.env`, then the agent's own environment, then
    variables for trackers, frameworks and JAX.
    """
    outer = LEFT_TO_USERS if variables.SOCKET in base else ()
    inherited = {name: value for name, value in base.items() if name not in outer}
    environment = {**inherited, **config.env}
    for name in NOT_INHERITED:
        environment.pop(name, None)
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("PYTHONUNBUFFERED", "1")  # otherwise Python buffers lines for our pipe
    paths = (config.library, environment.get("PYTHONPATH"), Folders(config.directory).rendezvous)
    # An empty part would mean the working directory.
    environment["PYTHONPATH"] = os.pathsep.join(str(path) for path in paths if path)
    place = _place(config, start, local_rank)
    environment.update(place.write())
    exchange = Exchange(
        socket=files.socket,
        staging=files.staging,
        control_file=files.control_file,
        stacks=files.stacks,
        place=place_of(place),
        resume=(
            _handed(config.storage, generation, start.resume) if start.resume is not None else None
        ),
        initial=config.initial_from,
    )
    environment.update(exchange.write())
    environment[variables.TORCH_ERROR_FILE] = str(files.error_file)
    if config.address in LOOPBACK or config.parent_pid is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for name, folder in caches(Path(config.directory)).items():
        environment.setdefault(name, str(folder))
    if config.gpus:
        # All GPUs of the worker, as in a pod: scripts pick theirs by LOCAL_RANK.
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, config.gpus))
    others = {variables.POSTS_URL, variables.POSTS_TOKEN} & environment.keys()
    if posts and place.rank == 0 and not others:
        environment.update(_for_posts(posts, files.token_file, environment))
    return {**_for_jax(place), **_for_trackers(place), **environment}


def caches(directory: Path) -> dict[str, Path]:
    """By variable, the folders for compiler caches, which later attempts reuse."""
    compiled = directory.absolute() / "compiled"
    return {name: compiled / folder for name, folder in COMPILED.items()}


def lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a process's environment that is the same in all attempts. With only this part, a
    process is not a rank yet: it cannot find the agent."""
    return {name: value for name, value in environment.items() if name not in OF_AN_ATTEMPT}


def _for_posts(url: str, token_file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """With NO_PROXY, since a proxy would look for our loopback address on its own host."""
    added = {variables.POSTS_URL: url, variables.POSTS_TOKEN: str(token_file)}
    direct = environment.get(variables.NO_PROXY, environment.get(variables.NO_PROXY.upper(), ""))
    if (
        any(environment.get(name) for name in ("http_proxy", "HTTP_PROXY"))
        and direct.strip() != "*"
    ):
        added[variables.NO_PROXY] = ",".join(filter(None, (direct, LOOPBACK[0])))
    return added


def _for_trackers(place: ProcessPlace) -> dict[str, str]:
    if place.rank > 0 or not place.run_id:
        return {}
    return {variables.WANDB_RUN_ID: place.run_id, variables.WANDB_RESUME: "allow"}


def _for_jax(place: ProcessPlace) -> dict[str, str]:
    """Its coordinator gets the port after the master port: a script may also use torch.distributed.

    If a worker has several processes, each gets one GPU, as with JAX under Slurm.
    """
    host = f"[{place.master_addr}]" if ":" in place.master_addr else place.master_addr
    added = {
        variables.JAX_COORDINATOR_ADDRESS: f"{host}:{place.master_port + 1}",
        variables.JAX_NUM_PROCESSES: str(place.world_size),
        variables.JAX_PROCESS_ID: str(place.rank),
    }
    if place.local_world_size > 1:
        added[variables.JAX_LOCAL_DEVICE_IDS] = str(place.local_rank)
    return added


def _place(config: AgentConfig, start: Start, local_rank: int) -> ProcessPlace:
    return ProcessPlace(
        run=config.run,
        run_id=start.run_id,
        attempt=start.attempt,
        rank=config.first_rank + local_rank,
        world_size=start.world_size,
        local_rank=local_rank,
        local_world_size=config.processes_per_worker,
        node_rank=config.slot,
        master_addr=start.master_addr,
        master_port=start.master_port,
    )


def _handed(storage: StorageConfig, generation: int, resume: CheckpointId) -> ResumePoint:
    run = layout.generation_folder(layout.run_uri(storage.uri, storage.run_name), generation)
    uri = layout.checkpoint_uri(run, resume)
    return ResumePoint(attempt=resume.attempt, step=resume.step, uri=uri)


class Folders:
    """Paths below `directory`; created on demand."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory).absolute()

    def prepare(self) -> None:
        """Create the folder and delete what an earlier agent of this worker left in it."""
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in caches(self._root).values():  # not every compiler creates parent folders
            folder.mkdir(parents=True, exist_ok=True)
        self.forget_below(2**63)
        _remove_but(self.copies, (), ())
        try:
            _write_rendezvous(self.rendezvous)
        except OSError as error:
            LOG.warning("ranks may find rank 0 half a second later: %s", error)

    def make(self, attempt: int, rank: int) -> RankFiles:
        """Create the folders of one rank and return its paths."""
        files = self.of_rank(attempt, rank)
        for folder in (files.staging, files.control_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        return files

    def of_rank(self, attempt: int, rank: int) -> RankFiles:
        """The paths of one rank."""
        own = self._root / "ranks" / f"attempt-{attempt}"
        return RankFiles(
            socket=self.socket(attempt),
            staging=self.staging(attempt) / f"rank-{rank}",
            control_file=own / f"rank-{rank}",
            error_file=own / f"rank-{rank}.error.json",
            token_file=own / f"rank-{rank}.token",
            stacks=own / f"rank-{rank}.stacks",
        )

    def staging(self, attempt: int) -> Path:
        """Where the ranks of `attempt` stage their checkpoints."""
        return self._root / "staging" / f"attempt-{attempt}"

    @property
    def copies(self) -> Path:
        """Holds copies of what other workers have staged."""
        return self._root / "copies"

    @property
    def standby(self) -> Path:
        """Holds the start script of standby interpreters."""
        return self._root / "standby"

    @property
    def rendezvous(self) -> Path:
        """On PYTHONPATH; holds what torch loads when it is imported, see `rendezvous_wait`."""
        return self._root / "rendezvous"

    def socket(self, attempt: int) -> Path:
        """The socket on which the processes of `attempt` reach the agent."""
        return self._root / f"{attempt}.sock"

    def forget_below(self, attempt: int, but_for: Collection[Path] = ()) -> None:
        """Delete everything of lower attempts, except these directories of staged files.

        May take long: call it in a thread.
        """
        above = {folder for kept in but_for for folder in kept.parents}
        for kind in ("staging", "ranks"):
            for folder in (self._root / kind).glob("attempt-*"):
                number = folder.name.partition("-")[2]
                if number.isdigit() and int(number) < attempt:
                    _remove_but(folder, {*but_for}, above)


def _remove_but(folder: Path, kept: Collection[Path], above: Collection[Path]) -> None:
    """Remove a folder, except those `kept`, which are below the folders `above`."""
    if folder in above:
        for child in folder.iterdir():
            _remove_but(child, kept, above)
    elif folder not in kept:
        remove_folder(folder)


def _write_rendezvous(folder: Path) -> None:
    """Write the module `rendezvous_wait` as an installed distribution with an entry point.

    Each file appears whole and the entry point last: `import torch` fails if it leads nowhere.
    Raises OSError.
    """
    source = pkgutil.get_data(__package__ or "", "rendezvous_wait.py")
    assert source is not None
    info = "trainrun_rendezvous-1.dist-info"
    for name, content in (
        ("trainrun_rendezvous.py", source),
        (f"{info}/METADATA", b"Metadata-Version: 2.1\nName: trainrun-rendezvous\nVersion: 1\n"),
        (f"{info}/entry_points.txt", b"[torch.backends]\ntrainrun = trainrun_rendezvous:install\n"),
    ):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(file)


def remove_folder(folder: Path) -> None:
    """Delete a folder and its content as far as permissions allow; log if something is left."""
    if reason := remove_directory(folder):
        LOG.warning("%s still takes disk space, since it cannot be removed: %s", folder, reason)
