"""Reads a pod template for this machine: a command, a folder, variables, GPUs.

Layer: worlds/local. Clusters read the same file. A field that only a cluster supports is an error
if the training needs it, else a note.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainrun.contract.launcher import TORCHRUN, LauncherRefused, torch_launch
from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import TooLong, expanded

GPU = "nvidia.com/gpu"
SPEC = "spec.workers.template.spec"
PYTHONS = ("python", "python3")
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What each training process runs."""

    command: tuple[str, ...]
    working_dir: Path
    env: Mapping[str, str]
    gpus_per_worker: int = 0
    notes: tuple[str, ...] = ()
    """Parts of the template that this machine ignores, one line each."""


@dataclass(slots=True)
class _Reading:
    """Collects the problems of one template, so that all are reported at once."""

    path: str
    problems: list[str] = field(default_factory=list)

    def reject(self, where: str, message: str) -> None:
        self.problems.append(f"{self.path}.{where}: {message}")


def program_of(
    template: Mapping[str, Any],
    *,
    folder: Path,
    environ: Mapping[str, str],
    varying: Collection[str] = (),
) -> Program:
    """The program of this pod template; `folder` is the YAML file's.

    Variables named in `varying` differ between runs of the same template: files and programs that
    depend on them are not checked. Raises InvalidSpec with every problem found.
    """
    spec = template["spec"]
    index, container = training_container(spec["containers"])
    reading = _Reading(path=f"{SPEC}.containers[{index}]")
    env = _env(container, reading)
    working_dir = (folder / str(container.get("workingDir", "."))).resolve()
    if not working_dir.is_dir():
        reading.reject("workingDir", f"there is no folder {working_dir} on this machine")
    words = [*container.get("command", ()), *container.get("args", ())]
    settled = _without(container, varying)
    judged = {text for word in words if (text := expanded(str(word), env)) == settled(str(word))}
    words = [expanded(str(word), env) for word in words]
    around = {**environ, **env}
    command = _command(words, working_dir, around, container, reading, judged=judged)
    gpus = _gpus(container, reading)
    if reading.problems:
        raise InvalidSpec("\n".join(reading.problems))
    return Program(
        command=command,
        working_dir=working_dir,
        env=env,
        gpus_per_worker=gpus,
        notes=tuple(_notes(spec)),
    )


def with_interpreter(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of workers: the folder of our own Python comes first on PATH.

    So `bash -c "python ..."` and `torchrun` use the same packages as `trainrun`.
    """
    here = str(Path(sys.executable).parent)
    return {**environ, "PATH": os.pathsep.join([here, environ.get("PATH") or os.defpath])}


def training_container(containers: Sequence[Mapping[str, Any]]) -> tuple[int, Mapping[str, Any]]:
    """The container named `worker`, or the first one, with its index."""
    for index, container in enumerate(containers):
        if container.get("name") == "worker":
            return index, container
    return 0, containers[0]


def _env(container: Mapping[str, Any], reading: _Reading) -> dict[str, str]:
    env: dict[str, str] = {}
    for i, entry in enumerate(container.get("env", ())):
        name = entry.get("name", "")
        if "valueFrom" in entry:
            reading.reject(
                f"env[{i}].valueFrom",
                f"{name} is read from the cluster, which does not exist locally; remove the entry "
                "(the shell's variables are passed on) or give it a value",
            )
        else:
            try:
                env[name] = expanded(str(entry.get("value", "")), env)
            except TooLong as error:
                raise InvalidSpec(f"{reading.path}.env[{i}].value: {error}") from error
    if container.get("envFrom"):
        reading.reject(
            "envFrom",
            "config maps and secrets do not exist locally; remove it (the shell's variables are "
            "passed on) or list the variables under env with values",
        )
    return env


def _without(container: Mapping[str, Any], varying: Collection[str]) -> Callable[[str], str]:
    """A function that expands a text without these variables, to see whether it needs one."""
    env: dict[str, str] = {}
    for entry in container.get("env", ()):
        if entry.get("name") not in varying:
            env[entry.get("name", "")] = expanded(str(entry.get("value", "")), env)
    return lambda text: expanded(text, env)


def _command(
    words: Sequence[str],
    working_dir: Path,
    env: Mapping[str, str],
    container: Mapping[str, Any],
    reading: _Reading,
    *,
    judged: Collection[str],
) -> tuple[str, ...]:
    where = "command" if container.get("command") else "args"
    if not words:
        reading.reject("command", "is missing: say what to run, for example [python, train.py]")
        return ()
    first, rest = words[0], list(words[1:])
    if (launched := _launched_script(words)) in judged and launched is not None:
        _check_script(launched, working_dir, where, reading)
    if Path(first).name == TORCHRUN:
        return tuple(words)  # the agent replaces torchrun and only needs its Python
    if first in PYTHONS:
        first = sys.executable
    if words[0] in judged and not _runnable(first, working_dir, env):
        who = f"user {os.geteuid()} may not execute it"
        reading.reject(where, f"{first!r} was not found on this machine (see PATH), or {who}")
    script = next((word for word in rest[:1] if word.endswith(".py") and word in judged), None)
    if script is not None and Path(first).name.startswith("python"):
        _check_script(script, working_dir, where, reading)
    return (first, *rest)


def _launched_script(words: Sequence[str]) -> str | None:
    """The script that these words start if they begin with a launcher; else None."""
    try:
        launch = torch_launch(words)
    except LauncherRefused:
        return None  # reported for the whole template by `api.run.launching`
    return launch.script if launch is not None and launch.kind == "script" else None


def _check_script(script: str, working_dir: Path, where: str, reading: _Reading) -> None:
    path = working_dir / script
    if not os.path.isfile(path):  # noqa: PTH113 - pathlib raises if access is denied
        reading.reject(where, f"there is no script {path}")


def _runnable(name: str, working_dir: Path, env: Mapping[str, str]) -> bool:
    # Also for a path: pathlib raises if access to a folder above is denied.
    program = os.fspath(working_dir / name) if "/" in name else name
    return shutil.which(program, path=env.get("PATH", os.defpath)) is not None


def _gpus(container: Mapping[str, Any], reading: _Reading) -> int:
    resources = container.get("resources") or {}
    asked = (resources.get("limits") or {}).get(GPU, (resources.get("requests") or {}).get(GPU, 0))
    try:
        return int(asked)
    except (TypeError, ValueError):
        reading.reject(f"resources.limits[{GPU}]", f"{asked!r} is not a number of GPUs")
        return 0


def _notes(spec: Mapping[str, Any]) -> list[str]:
    ignored = [key for key in ("initContainers", "volumes") if spec.get(key)]
    if len(spec["containers"]) > 1:
        ignored.append("containers other than the one that trains")
    return [f"not used locally: {', '.join(ignored)}"] if ignored else []


def gpus_here(environ: Mapping[str, str], *, dev: Path = Path("/dev")) -> list[int]:
    """Indices of the GPUs that this process may use."""
    visible = environ.get(VISIBLE)
    if visible is not None:
        return [int(part) for part in visible.split(",") if part.strip().isdigit()]
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in dev.glob("nvidia*"))
    return sorted(int(match[1]) for match in found if match)


def split_gpus(here: list[int], *, workers: int, per_worker: int) -> list[list[int]]:
    """The GPUs of each slot; empty lists if none are requested or this machine has none.

    Raises InvalidSpec if this machine has some, but too few.
    """
    if per_worker == 0 or not here:
        return [[] for _ in range(workers)]
    if len(here) < workers * per_worker:
        raise InvalidSpec(
            f"{SPEC}.containers.resources.limits[{GPU}]: {workers} workers with {per_worker} each "
            f"need {workers * per_worker} GPUs, this machine has {len(here)}; "
            f"use --replicas {len(here) // per_worker or 1} or fewer GPUs per worker"
        )
    return [here[slot * per_worker : (slot + 1) * per_worker] for slot in range(workers)]
