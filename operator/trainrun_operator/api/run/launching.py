"""How many processes each worker starts: said by the spec, or by the torchrun that it begins with.

Layer: api. The API server cannot read a command line, so what is wrong with one is found here, in
the command line tool and in the operator alike, before any worker is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainrun.contract.launcher import (
    REMEDIES,
    LauncherRefused,
    TorchLaunch,
    hidden_launcher,
    torch_launch,
)
from trainrun_operator.api.pod_template import Container, TooLong, shape_problem
from trainrun_operator.api.run.spec import WorkersSpec

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
"""What `--nproc-per-node gpu` counts."""

MOST_PROCESSES = 64
"""Per worker, as in the schema."""

REMEDY = "Let it begin with torchrun itself, without a shell or a wrapper"
"""What to do about a launcher that each of several processes would start for itself."""

TEMPLATE = "workers.template"
"""Where the command stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """What becomes of a worker's command."""

    processes: int
    """Per worker; 1 where that cannot be told."""
    problem: str = ""
    """Why no worker can be made, for its user; "" where one can."""
    note: str = ""
    """On the launcher's options that have no effect here; "" where there are none."""


def launching_of(workers: WorkersSpec) -> Launching:
    """Read the template: whether pods can be made from it; and the command of the container that
    trains, which is compared with the spec."""
    said, shape = workers.processes_per_worker, shape_problem(workers.template)
    container = workers.template.spec.training
    try:
        launch = torch_launch(container.words)
        if launch is None:
            if not workers.independent_ranks:
                _check_hidden(workers, container)
            return Launching(processes=said or 1, problem=shape)
        processes = _processes(launch, container, said)
        _check_nodes(launch, workers.replicas)
    except (LauncherRefused, TooLong) as refused:
        problem = f"the command of container {container.name} cannot be run: {refused}"
        return Launching(processes=said or 1, problem=shape or problem)
    return Launching(processes=processes, problem=shape, note=launch.note)


def _check_hidden(workers: WorkersSpec, container: Container) -> None:
    """A launcher that each of several processes would start for itself."""
    number = workers.replicas * (workers.processes_per_worker or 1)
    # torchrun and LLaMA-Factory read options from such variables, too.
    told = any(entry.name.startswith(("PET_", "NNODES")) for entry in container.env)
    if number == 1 or told:
        return
    if launcher := hidden_launcher(container.words, several_gpus=_limit(container) > 1):
        remedy = REMEDIES.get(launcher, REMEDY)
        raise LauncherRefused(
            f"each of its {number} processes would start {launcher}, which makes {number} separate "
            f"trainings that write the same files. {remedy}, or set workers.independentRanks: true "
            "if each is meant to train alone"
        )


def _processes(launch: TorchLaunch, container: Container, said: int | None) -> int:
    if launch.processes is None:
        return said or 1
    asked = launch.processes
    found = int(asked) if asked.isdecimal() else _gpus(launch, container)
    if found > MOST_PROCESSES:
        raise LauncherRefused(
            f"{launch.launcher}: --nproc-per-node is {asked}; at most {MOST_PROCESSES} processes "
            "per worker are possible"
        )
    if said not in (None, found):
        raise LauncherRefused(
            f"{launch.launcher}: --nproc-per-node is {asked}"
            f"{'' if asked.isdecimal() else f' ({found})'}, and workers.processesPerWorker {said}: "
            "take one of the two out"
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
        f"{launch.launcher}: --nproc-per-node is {launch.processes}, and container "
        f"{container.name} has no limit of GPUs (resources.limits[{GPUS[0]}]); write a number"
    )


def _check_nodes(launch: TorchLaunch, replicas: int) -> None:
    if launch.nodes is None or launch.nodes[0] <= replicas <= launch.nodes[1]:
        return
    fewest, most = launch.nodes
    text = str(most) if fewest == most else f"{fewest}:{most}"
    raise LauncherRefused(
        f"{launch.launcher}: --nnodes is {text}, and workers.replicas {replicas}: they must agree"
    )
