"""Parses commands that begin with a launcher, such as torchrun, and detects hidden launchers.

Layer: contract. The operator derives the number of processes per worker, the agent what each of
them runs; the agent replaces the launcher. The options are those of `torch.distributed.run` of
PyTorch 2.0 to 2.12, parsed by argparse as torchrun does, abbreviations included.

A launcher hidden behind a shell, `env`, `uv run` and the like would start a group of its own in
each process: several trainings instead of one. This module reports only certain cases; where the
outcome depends on a shell, agents observe it at run time.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, NoReturn

from trainrun.errors import TrainRunError

TORCHRUN = "torchrun"
TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")

OURS = ("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone", "max_restarts",
        "monitor_interval", "node_rank", "master_addr", "master_port", "local_addr",
        "start_method", "role", "event_log_handler", "shutdown_timeout")  # fmt: skip
"""Options for rendezvous, restarts and monitoring: ignored, since TrainRun does these."""

OUTPUT = ("log_dir", "redirects", "tee", "log_line_prefix_template", "local_ranks_filter",
          "duplicate_stdout_filters", "duplicate_stderr_filters")  # fmt: skip
"""Options for output: ignored, since output goes to the worker's log, each line with its rank."""

REFUSED = ("run_path", "logs_specs", "numa_binding", "signals_to_handle", "virtual_local_rank",
           "print_completion")  # fmt: skip
"""Options refused because processes would silently lack their effect."""

FLAGS = ("standalone", "run_path", "virtual_local_rank")

SHORT = {"redirects": "-r", "tee": "-t"}

INSTEAD = {
    "accelerate launch": "command: [python, train.py] (Accelerate detects its rank by itself)",
    "deepspeed": "command: [python, train.py] (deepspeed.init_distributed() detects its rank)",
    "mpirun": "command: [python, train.py] if the script makes its group with torch.distributed's "
    "env:// (mpi4py would make each process rank 0 of 1)",
    "srun": "command: [python, train.py] if the script makes its group with torch.distributed's "
    "env:// (mpi4py would make each process rank 0 of 1)",
}
"""Launchers that TrainRun cannot replace, and what to write instead."""

FABRIC = re.compile(r"(fabric|lightning) run ")
"""A launcher that runs unchanged in a run of one process."""

REMEDIES = {
    "axolotl": "Write python -m axolotl.cli.train with processesPerWorker",
    "litgpt": "Write --devices (processes per worker) and --num_nodes (workers)",
    "llamafactory-cli": "Write python -m llamafactory.launcher with processesPerWorker",
    "trl": "Write python -m trl.scripts.sft (dpo, grpo ...) with processesPerWorker",
}
"""Programs that start one process per GPU, if there are several, with torchrun or `accelerate
launch`; and what to write instead. LitGPT joins the run's processes unless its `devices` times
`num_nodes` is 1, the default."""
ALONE = re.compile(r"litgpt finetune(?!.* --(devices|num_nodes))")

ACCELERATE_OPTION = re.compile(r" --([\w-]+)[ =]([^-\s]\S*)")
BY_VARIABLE = ("MIXED_PRECISION", "DYNAMO_BACKEND", "DYNAMO_MODE")
"""Options of `accelerate launch` that scripts read from a variable of the same name."""

ALIASES = {
    "accelerate-launch": "accelerate launch",
    "mpiexec": "mpirun",
    "mpiexec.hydra": "mpirun",
    "orterun": "mpirun",
}

MODULES = {
    "accelerate.commands.launch": "accelerate launch",
    "accelerate.commands.accelerate_cli": "accelerate launch",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
}

_PYTHON = re.compile(r"python(3(\.\d+)?)?")


class LauncherRefused(TrainRunError):
    """The command begins with a launcher, or has an option, that TrainRun cannot replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLaunch:
    """A parsed command line of torchrun."""

    launcher: str
    """The launcher in the command: `torchrun`, or the module's name."""
    processes: str | None
    """`--nproc-per-node`: a number, `gpu` or `auto`; None: absent, which means 1 to torchrun."""
    nodes: tuple[int, int] | None
    """`--nnodes`: fewest and most; None: absent."""
    program: str
    """The first word: a Python, or the program torchrun, whose Python must be used."""
    kind: Literal["script", "module", "program"]
    script: str
    """Path of a script, name of a module (`-m`), or a program (`--no-python`)."""
    arguments: tuple[str, ...]
    """The arguments of the script."""
    local_rank_argument: bool
    """Each process gets `--local-rank=N`: `torch.distributed.launch` without `--use-env`."""
    ignored: tuple[str, ...]
    """Options without effect here, spelled as in torchrun's help."""

    @property
    def note(self) -> str:
        """A line about the ignored options; "" if there are none."""
        if not self.ignored:
            return ""
        return (
            f"{self.launcher}: {', '.join(self.ignored)}: ignored, since TrainRun does rendezvous, "
            "restarts and output"
        )


def torch_launch(command: Sequence[str]) -> TorchLaunch | None:
    """Parse a command line; None: it does not begin with a launcher. Raises LauncherRefused."""
    found = _torch_command(command)
    if found is None:
        _refuse_others(command)
        return None
    launcher, words = found
    options = _read(launcher, words)
    _check(launcher, options)
    return TorchLaunch(
        launcher=launcher,
        processes=getattr(options, "nproc_per_node", None),
        nodes=_nodes(launcher, options.nnodes) if "nnodes" in options else None,
        program=command[0],
        kind="module" if "module" in options else "program" if "no_python" in options else "script",
        script=options.training_script,
        arguments=tuple(options.training_script_args),
        local_rank_argument=launcher.endswith(".launch") and "use_env" not in options,
        ignored=tuple(_spelled(name) for name in (*OURS, *OUTPUT) if name in options),
    )


def of_one_machine(command: Sequence[str], *, several_gpus: bool = False) -> str:
    """The launcher at the start of this command line, if it is torchrun or Fabric's and its group
    cannot span two workers; else "". Likewise for a program of `REMEDIES`."""
    line = " ".join([_name(command[0]), *command[1:]]) if command else ""
    if FABRIC.match(line):
        spans = any(word.startswith(("--num-nodes", "--num_nodes")) for word in command)
        return "" if spans else "fabric run"
    name = line.partition(" ")[0]
    if name in REMEDIES:
        many = several_gpus and name != "litgpt" and "num_machines" not in line
        return name if many or ALONE.match(line) else ""
    found = _torch_command(command)
    try:
        options = _read(*found) if found is not None else None
    except LauncherRefused:
        return ""
    if found is None or options is None:
        return ""
    alone = "standalone" in options or getattr(options, "nnodes", "1") in ("1", "1:1")
    return found[0] if alone else ""


def _torch_command(command: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The launcher and its arguments; None: there is no launcher."""
    if command and _name(command[0]) == TORCHRUN:
        return TORCHRUN, command[1:]
    module, words = _module(command)
    return (module, words) if module in TORCH_MODULES else None


def _module(command: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The module that `python ... -m MODULE` runs ("" for anything else), and its arguments."""
    if not command or not _PYTHON.fullmatch(_name(command[0])):
        return "", ()
    words = list(command[1:])
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "-m" and words:
            return words[0], words[1:]
        if word in ("-W", "-X") and words:
            words.pop(0)
        elif word in ("-c", "-"):
            break
    return "", ()


def _refuse_others(command: Sequence[str]) -> None:
    name = _name(command[0]) if command else ""
    name = ALIASES.get(name, name)
    if name == "accelerate":
        name = " ".join((name, *command[1:2]))
    name = MODULES.get(_module(command)[0], name)
    if name in INSTEAD:
        raise LauncherRefused(
            f"{name} starts processes itself, which TrainRun does here: write {INSTEAD[name]}, and "
            "set processesPerWorker to the number of processes per worker"
            f"{_accelerate_hint(command) if name.startswith('accelerate') else ''}"
        )


def _accelerate_hint(command: Sequence[str]) -> str:
    """Where its options belong: without the launcher, they and its config file have no effect."""
    before = itertools.takewhile(lambda word: not word.endswith(".py") and word != "-m", command)
    found = ACCELERATE_OPTION.findall(" ".join(before))
    options = [(name.replace("-", "_").upper(), value) for name, value in found]
    variables = [f"ACCELERATE_{name}={value}" for name, value in options if name in BY_VARIABLE]
    return (
        ". Mixed precision and similar options would silently be off: set "
        f"{' and '.join(variables) or 'for instance ACCELERATE_MIXED_PRECISION=bf16'} in env, and "
        "pass the settings of --use_fsdp, --use_deepspeed or a config file to Accelerator()"
    )


def _name(word: str) -> str:
    return PurePosixPath(word).name


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise, where argparse would exit."""
        if "training_script" in message:
            message = "the command names no script to start"
        raise LauncherRefused(f"{self.prog}: {message}")


def _read(launcher: str, words: Sequence[str]) -> argparse.Namespace:
    """Parse the options; an absent option has no attribute."""
    parser = _Parser(prog=launcher, add_help=False, argument_default=argparse.SUPPRESS)
    for name in ("nnodes", "nproc_per_node", *OURS, *OUTPUT, *REFUSED):
        short = (SHORT[name],) if name in SHORT else ()
        spellings = dict.fromkeys((*short, _spelled(name), f"--{name}"))
        if name in FLAGS:
            parser.add_argument(*spellings, action="store_true")
        else:
            parser.add_argument(*spellings)
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("--no-python", "--no_python", action="store_true")
    if launcher.endswith(".launch"):
        parser.add_argument("--use-env", "--use_env", action="store_true")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def _check(launcher: str, options: argparse.Namespace) -> None:
    for name in REFUSED:
        if name in options:
            raise LauncherRefused(f"{launcher}: {_spelled(name)} is not supported here; remove it")
    if "no_python" in options and "module" in options:
        raise LauncherRefused(f"{launcher}: --no-python and --module are mutually exclusive")
    processes = getattr(options, "nproc_per_node", "1")
    is_valid = processes in ("gpu", "auto") or (processes.isdecimal() and int(processes) > 0)
    if not is_valid:
        raise LauncherRefused(
            f"{launcher}: --nproc-per-node is {processes!r}; it must be a number, gpu or auto"
        )


def _nodes(launcher: str, text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)(?::([1-9]\d*))?", text)
    if found is None:
        raise LauncherRefused(f"{launcher}: --nnodes is {text!r}; it must be a number or min:max")
    fewest, most = int(found[1]), int(found[2] or found[1])
    if fewest > most:
        raise LauncherRefused(f"{launcher}: --nnodes is {text!r}: min is greater than max")
    return fewest, most


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


# ------------------------------------------------------------------------- hidden

SHELL = re.compile(r"(ba|da|z|k|a)?sh")
WRAPPERS = frozenset(
    ("env", "nohup", "time", "exec", "command", "nice", "ionice", "stdbuf", "taskset", "numactl",
     "timeout", "tini", "dumb-init", "sudo", "gosu", "uv", "poetry", "conda", "mamba", "micromamba",
     "pipenv", "pdm", "hatch", "pixi", "nsys")
)  # fmt: skip
"""Programs that start the program named after their own options."""

_UNCERTAIN = re.compile(
    r"RANK|PET_|<<|\$\(|`|\|\||[\[(]|(?<!\$)\{|\b(if|for|while|until|case|select|test)\b"
)
"""In a script: it reads its rank, or its flow depends on what only a shell can evaluate."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_BETWEEN = frozenset((";", "&", "&&", "|", "|&"))


def hidden_launcher(command: Sequence[str], *, several_gpus: bool = False) -> str:
    """The launcher that starts a group of its own wherever this command runs; "" if there is none,
    or it is uncertain. A program of `REMEDIES` does so if there are several GPUs."""
    found = (
        of_one_machine(program, several_gpus=several_gpus) for program in _programs(list(command))
    )
    return next(filter(None, found), "")


def _programs(words: list[str]) -> Iterator[list[str]]:
    """The commands that a command line runs, without assignments, shells and wrappers."""
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    name = _name(words[0]) if words else ""
    if SHELL.fullmatch(name):
        for inner in _commands(_script(words[1:])):
            yield from _programs(inner)
    elif name in WRAPPERS:
        yield from _programs(_wrapped(words[1:]))
    else:
        yield words


def _wrapped(words: list[str]) -> list[str]:
    """The command that a wrapper starts, if it is a launcher or a shell; skips the wrapper's
    options."""
    for at, word in enumerate(words):
        name = _name(word)
        if of_one_machine(words[at:], several_gpus=True) or SHELL.fullmatch(name):
            return words[at:]
        if name.startswith("python") or name.endswith((".py", ".sh")):
            break
    return []


def _script(words: list[str]) -> str:
    """The script after `-c`, as in `bash -euo pipefail -lc "..."`; "" if a file is run."""
    given = False
    while words and words[0][:1] in ("-", "+"):
        option, *words = words
        given = given or ("c" in option and not option.startswith("--"))
        words = words[option[-1] in "oO" :]
    return words[0] if given and words else ""


def _commands(script: str) -> Iterator[list[str]]:
    """The commands of a script in order; none if it is more than a list of commands."""
    lines = script.replace("\\\n", " ").splitlines()
    text = "\n;\n".join(line for line in lines if not line.lstrip().startswith("#"))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = [] if _UNCERTAIN.search(text) else list(lexer)
    except ValueError:  # a quote is not closed
        return
    found: list[str] = []
    for token in (*tokens, ";"):
        if token not in _BETWEEN:
            found.append(token)
        elif found:
            yield found
            found = []
