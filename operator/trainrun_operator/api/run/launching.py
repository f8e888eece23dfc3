"""How many processes each worker starts, from the spec or from the torchrun in its command.

Layer: api. The API server cannot read a command line, so the command line tool and the operator
both check it here, before any worker is created.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainrun.contract import variables
from trainrun.contract.launcher import (
    REMEDIES,
    SHELL,
    LauncherRefused,
    TorchLaunch,
    hidden_launcher,
    torch_launch,
)
from trainrun_operator.api.pod_template import Container, TooLong, shape_problem
from trainrun_operator.api.run.folder import FolderSpec
from trainrun_operator.api.run.spec import WorkersSpec

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
"""What `--nproc-per-node gpu` counts."""

MOST_PROCESSES = 64
"""Per worker, as in the schema."""

REMEDY = "Start the command with torchrun itself, without a shell or a wrapper"
"""What to do about a launcher that each of several processes would start separately."""

TEMPLATE = "workers.template"
"""The path of the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """What a worker's command starts."""

    processes: int
    """Per worker; 1 where the number is unknown."""
    problem: str = ""
    """For the user: why no worker can be created; "" where one can."""
    note: str = ""
    """For the user: which options of the launcher have no effect here; "" where there are none."""


def launching_of(workers: WorkersSpec) -> Launching:
    """Check whether pods can be made from the template, and compare the command of the container
    that trains with the spec."""
    in_spec, shape = workers.processes_per_worker, shape_problem(workers.template)
    container = workers.template.spec.training
    try:
        launch = torch_launch(container.words)
        if launch is None:
            if not workers.independent_ranks:
                _check_hidden(workers, container)
            return Launching(processes=in_spec or 1, problem=shape)
        processes = _processes(launch, container, in_spec)
        _check_nodes(launch, workers.replicas)
    except (LauncherRefused, TooLong) as refused:
        problem = f"the command of container {container.name} cannot be run: {refused}"
        return Launching(processes=in_spec or 1, problem=shape or problem)
    return Launching(processes=processes, problem=shape, note=launch.note)


def _check_hidden(workers: WorkersSpec, container: Container) -> None:
    """Refuse a launcher that each of several processes would start separately."""
    number = workers.replicas * (workers.processes_per_worker or 1)
    # torchrun and LLaMA-Factory also read options from such variables.
    configured = any(entry.name.startswith(("PET_", "NNODES")) for entry in container.env)
    if number == 1 or configured:
        return
    if launcher := hidden_launcher(container.words, several_gpus=_limit(container) > 1):
        remedy = REMEDIES.get(launcher, REMEDY)
        raise LauncherRefused(
            f"each of the {number} processes would start {launcher}: {number} separate trainings "
            f"that write the same files. {remedy}, or set workers.independentRanks: true if each "
            "process should train alone"
        )


def _processes(launch: TorchLaunch, container: Container, in_spec: int | None) -> int:
    if launch.processes is None:
        return in_spec or 1
    asked = launch.processes
    found = int(asked) if asked.isdecimal() else _gpus(launch, container)
    if found > MOST_PROCESSES:
        raise LauncherRefused(
            f"{launch.launcher}: --nproc-per-node is {asked}; a worker can have at most "
            f"{MOST_PROCESSES} processes"
        )
    if in_spec not in (None, found):
        raise LauncherRefused(
            f"{launch.launcher}: --nproc-per-node is {asked}"
            f"{'' if asked.isdecimal() else f' ({found})'}, but workers.processesPerWorker is "
            f"{in_spec}; remove one of the two"
        )
    return found


def _limit(container: Container) -> int:
    """GPUs of a container."""
    limits = (str(container.resources.limits.get(name, "")) for name in GPUS)
    return next((int(limit) for limit in limits if limit.isdecimal() and int(limit) > 0), 0)


def _gpus(launch: TorchLaunch, container: Container) -> int:
    if number := _limit(container):
        return number
    raise LauncherRefused(
        f"{launch.launcher}: --nproc-per-node is {launch.processes}, but container "
        f"{container.name} has no GPU limit (resources.limits[{GPUS[0]}]); write a number"
    )


def _check_nodes(launch: TorchLaunch, replicas: int) -> None:
    if launch.nodes is None or launch.nodes[0] <= replicas <= launch.nodes[1]:
        return
    fewest, most = launch.nodes
    text = str(most) if fewest == most else f"{fewest}:{most}"
    raise LauncherRefused(
        f"{launch.launcher}: --nnodes is {text}, but workers.replicas is {replicas}; they must "
        "agree"
    )


def folder_problem(folder: FolderSpec | None, workers: WorkersSpec) -> str:
    """Why these workers cannot use the folder; empty: they can."""
    if folder is None:
        return ""
    words = workers.template.spec.training.words
    name = words[0].rpartition("/")[2] if words else ""
    runs_text = SHELL.fullmatch(name) and any(re.fullmatch("-[a-z]*c", w) for w in words[1:])
    resume = (variables.RESUME_PATH, variables.RESUME_ARGS)
    told = any(name in word for word in words for name in resume)
    if not folder.resume_args or not runs_text or told:
        return ""
    return (
        f"checkpoint.folder.resumeArgs would become $0 of {name} -c. Write the command without a "
        f'shell, or put "${variables.RESUME_PATH}" or ${variables.RESUME_ARGS} into it'
    )
