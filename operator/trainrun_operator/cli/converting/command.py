"""The command of a pod template: which container trains, and what starts its processes.

Layer: cli, pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from trainrun.contract.launcher import LauncherRefused, torch_launch
from trainrun_operator.api.pod_template import WORKER_CONTAINER

GPU = "nvidia.com/gpu"

_SHELL = re.compile(r"(.*/)?(ba|da|z)?sh")
_LAUNCHER = re.compile(
    r"\b(torchrun|torch\.distributed\.(run|launch)|accelerate launch|deepspeed|mpirun|srun|"
    r"(fabric|lightning) run)\b"
)
_STARTS_TRAINING = re.compile(r"(.*/)?(torchrun|python(3(\.\d+)?)?)")
_PLAIN_WORDS = re.compile(r"[\w\s./:=,@%+'\"-]*")
"""What no shell would change, but for the quotes."""


def training_container(template: Mapping[str, Any]) -> dict[str, Any]:
    """The container that trains."""
    containers: list[dict[str, Any]] = template["spec"]["containers"]
    named = (found for found in containers if found.get("name") == WORKER_CONTAINER)
    return next(named, containers[0])


def processes_of(
    said: Any, template: Mapping[str, Any], *, field: str, notes: list[str]
) -> int | None:
    """Processes per worker that torchrun is to start, where its own options do not say it.

    A number, or `gpu` or `auto`, which mean the container's GPUs; `auto` where nothing is said, as
    Kubeflow has it. A command that is no launcher is one process.
    """
    container = training_container(template)
    try:
        launch = torch_launch(_words(container))
    except LauncherRefused:
        return None
    text = "auto" if said is None else str(said)
    if launch is None:
        if said is not None and text != "1":
            notes.append(
                f"{field}: {text}: the command is no launcher, so a worker is one process; "
                "processesPerWorker starts more"
            )
        return None
    if launch.processes is not None:
        return None
    number = _gpus(container) if text in ("gpu", "auto") else text
    if number.isdecimal():
        return int(number)
    notes.append(f"{field}: {text}: write the number of processes as processesPerWorker")
    return None


def hidden_launcher(template: Mapping[str, Any]) -> str:
    """What a shell script of the container that trains starts processes with; "" for none.

    The agent starts one process per rank, so each of them would start all of them.
    """
    words = _words(training_container(template))
    if not words or not _SHELL.fullmatch(words[0]):
        return ""
    found = _LAUNCHER.search(" ".join(words[1:]))
    return found[0] if found else ""


def without_shell(container: Mapping[str, Any], notes: list[str]) -> list[str]:
    """The words of a container's command, without a shell that does nothing but start them.

    Empty where there is no such shell.
    """
    words = _words(container)
    if len(words) != 3 or not _SHELL.fullmatch(words[0]) or not re.fullmatch("-[elx]*c", words[1]):
        return []
    script = words[2].replace("\\\n", " ").strip()
    if "\n" in script or not _PLAIN_WORDS.fullmatch(script):
        return []
    try:
        bare = shlex.split(script.removeprefix("exec "))
    except ValueError:
        return []
    if not bare or not _STARTS_TRAINING.fullmatch(bare[0]):
        return []  # a variable before the command, or what only a shell knows
    notes.append(f"the command's shell: left out, so that it begins with {bare[0]}")
    return bare


def _words(container: Mapping[str, Any]) -> list[str]:
    return [
        str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]


def _gpus(container: Mapping[str, Any]) -> str:
    limits = (container.get("resources") or {}).get("limits") or {}
    return str(limits.get(GPU, ""))
