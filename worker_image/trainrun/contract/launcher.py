"""What a command that begins with a launcher, or hides one, means: which processes it would start.

Layer: contract. The operator reads from it how many processes a worker has, the agent what each of
them runs; the agent takes the launcher's place. The options are those of `torch.distributed.run` of
PyTorch 2.0 to 2.12, read by argparse as torchrun reads them, abbreviations included.

A launcher that is hidden behind a shell, `env`, `uv run` and the like would make a group of its own
in each of several processes: several trainings instead of one. Only what is certain is said of it;
where a shell decides, agents see what comes of it.
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
"""Rendezvous, restarts and how processes are watched: done by TrainRun, whatever they say."""

OUTPUT = ("log_dir", "redirects", "tee", "log_line_prefix_template", "local_ranks_filter",
          "duplicate_stdout_filters", "duplicate_stderr_filters")  # fmt: skip
"""Where output goes: to the worker's log, every line with its rank."""

REFUSED = ("run_path", "logs_specs", "numa_binding", "signals_to_handle", "virtual_local_rank",
           "print_completion")  # fmt: skip
"""What processes would miss without being told."""

FLAGS = ("standalone", "run_path", "virtual_local_rank")

SHORT = {"redirects": "-r", "tee": "-t"}

INSTEAD = {
    "accelerate launch": "command: [python, train.py] (Accelerate finds its place by itself)",
    "deepspeed": "command: [python, train.py] (deepspeed.init_distributed() finds its place)",
    "mpirun": "command: [python, train.py] if the script makes its group by torch.distributed's "
    "env:// (mpi4py would make each process rank 0 of 1)",
    "srun": "command: [python, train.py] if the script makes its group by torch.distributed's "
    "env:// (mpi4py would make each process rank 0 of 1)",
}
"""Launchers whose place cannot be taken, and what to write instead."""

FABRIC = re.compile(r"(fabric|lightning) run ")
"""A launcher that runs as it stands in a run of one process."""

REMEDIES = {
    "axolotl": "Write python -m axolotl.cli.train with processesPerWorker",
    "litgpt": "Write --devices (processes per worker) and --num_nodes (workers)",
    "llamafactory-cli": "Write python -m llamafactory.launcher with processesPerWorker",
    "trl": "Write python -m trl.scripts.sft (dpo, grpo ...) with processesPerWorker",
}
"""Programs that start a process for each GPU that they see, where there are several, by torchrun or
`accelerate launch`; and what to write instead. LitGPT joins the others, but for where its `devices`
times `num_nodes` are 1, as by default."""
ALONE = re.compile(r"litgpt finetune(?!.* --(devices|num_nodes))")

ACCELERATE_OPTION = re.compile(r" --([\w-]+)[ =]([^-\s]\S*)")
BY_VARIABLE = ("MIXED_PRECISION", "DYNAMO_BACKEND", "DYNAMO_MODE")
"""Options of `accelerate launch` that a script reads from a variable of the same name."""

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
    """The command begins with a launcher, or has an option, that TrainRun cannot stand in for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLaunch:
    """What a command line of torchrun asks for."""

    launcher: str
    """How its user calls it: `torchrun`, or the module's name."""
    processes: str | None
    """`--nproc-per-node`: a number, `gpu` or `auto`; None: absent, which means 1 to torchrun."""
    nodes: tuple[int, int] | None
    """`--nnodes`: fewest and most; None: absent."""
    program: str
    """The first word: a Python, or the program torchrun, whose Python is to be used."""
    kind: Literal["script", "module", "program"]
    script: str
    """Path of a script, name of a module (`-m`), or a program (`--no-python`)."""
    arguments: tuple[str, ...]
    """What follows it."""
    local_rank_argument: bool
    """Each process gets `--local-rank=N`: `torch.distributed.launch` without `--use-env`."""
    ignored: tuple[str, ...]
    """Options without effect here, as they are spelled in torchrun's help."""

    @property
    def note(self) -> str:
        """A line on those; "" where there are none."""
        if not self.ignored:
            return ""
        return (
            f"{self.launcher}: {', '.join(self.ignored)}: not used, since rendezvous, restarts and "
            "output are TrainRun's"
        )


def torch_launch(command: Sequence[str]) -> TorchLaunch | None:
    """Read a command line; None: it begins with no launcher. Raises LauncherRefused."""
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
    """The launcher that this command line begins with, if it is torchrun, or Fabric's, and its
    group cannot span two workers; else "". Likewise a program of `REMEDIES`."""
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
    """The launcher, and what follows it."""
    if command and _name(command[0]) == TORCHRUN:
        return TORCHRUN, command[1:]
    module, words = _module(command)
    return (module, words) if module in TORCH_MODULES else None


def _module(command: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The module that `python ... -m MODULE` runs, "" for anything else, and what follows it."""
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
            f"{name} starts processes by itself, and TrainRun does that here: write "
            f"{INSTEAD[name]}, and the number of processes per worker in processesPerWorker"
            f"{_accelerate_hint(command) if name.startswith('accelerate') else ''}"
        )


def _accelerate_hint(command: Sequence[str]) -> str:
    """Where its options go: without it they, and its config file, have no effect."""
    before = itertools.takewhile(lambda word: not word.endswith(".py") and word != "-m", command)
    found = ACCELERATE_OPTION.findall(" ".join(before))
    options = [(name.replace("-", "_").upper(), value) for name, value in found]
    variables = [f"ACCELERATE_{name}={value}" for name, value in options if name in BY_VARIABLE]
    return (
        ". Mixed precision and the like would be off without a word: set "
        f"{' and '.join(variables) or 'for instance ACCELERATE_MIXED_PRECISION=bf16'} in env, and "
        "let the script give Accelerator() what --use_fsdp, --use_deepspeed or a config file said"
    )


def _name(word: str) -> str:
    return PurePosixPath(word).name


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise, where argparse would end the process."""
        if "training_script" in message:
            message = "no script is named that it is to start"
        raise LauncherRefused(f"{self.prog}: {message}")


def _read(launcher: str, words: Sequence[str]) -> argparse.Namespace:
    """Only what was said: an absent option has no attribute."""
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
            raise LauncherRefused(
                f"{launcher}: {_spelled(name)} cannot be honoured here; remove it"
            )
    if "no_python" in options and "module" in options:
        raise LauncherRefused(f"{launcher}: --no-python and --module exclude each other")
    processes = getattr(options, "nproc_per_node", "1")
    is_valid = processes in ("gpu", "auto") or (processes.isdecimal() and int(processes) > 0)
    if not is_valid:
        raise LauncherRefused(
            f"{launcher}: --nproc-per-node is {processes!r}; a number, gpu or auto is needed here"
        )


def _nodes(launcher: str, text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)(?::([1-9]\d*))?", text)
    if found is None:
        raise LauncherRefused(
            f"{launcher}: --nnodes is {text!r}; a number, or fewest:most, is needed"
        )
    fewest, most = int(found[1]), int(found[2] or found[1])
    if fewest > most:
        raise LauncherRefused(f"{launcher}: --nnodes is {text!r}: fewest is more than most")
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
"""Programs that start the one which is named after their own options."""

_UNCERTAIN = re.compile(
    r"RANK|PET_|<<|\$\(|`|\|\||[\[(]|(?<!\$)\{|\b(if|for|while|until|case|select|test)\b"
)
"""In a script: it looks where it is, or goes by what only a shell can tell."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_BETWEEN = frozenset((";", "&", "&&", "|", "|&"))


def hidden_launcher(command: Sequence[str], *, several_gpus: bool = False) -> str:
    """The launcher that makes a group of its own wherever this command runs; "" where there is
    none, or nobody can tell. A program of `REMEDIES` does where it sees several."""
    found = (
        of_one_machine(program, several_gpus=several_gpus) for program in _programs(list(command))
    )
    return next(filter(None, found), "")


def _programs(words: list[str]) -> Iterator[list[str]]:
    """The commands that a command line comes to, each without what stands around it."""
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
    """What a wrapper starts, where it is a launcher or a shell; its own options come before."""
    for at, word in enumerate(words):
        name = _name(word)
        if of_one_machine(words[at:], several_gpus=True) or SHELL.fullmatch(name):
            return words[at:]
        if name.startswith("python") or name.endswith((".py", ".sh")):
            break
    return []


def _script(words: list[str]) -> str:
    """What follows `-c`, as in `bash -euo pipefail -lc "..."`; "" where a file is run."""
    given = False
    while words and words[0][:1] in ("-", "+"):
        option, *words = words
        given = given or ("c" in option and not option.startswith("--"))
        words = words[option[-1] in "oO" :]
    return words[0] if given and words else ""


def _commands(script: str) -> Iterator[list[str]]:
    """The commands of a script, one after the other; none where it is more than a list."""
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
