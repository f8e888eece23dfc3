"""Scripts that many people use, recognised by their command: the folder into which each saves by
itself.

Layer: cli, pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainrun.contract.launcher import SHELL


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownScript:
    """How a script that many people use saves and resumes."""

    name: str
    sign: str
    """Expression that its command matches."""
    path: str
    """The folder; `{name}` is the value of the option `--name`."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Values of options that the command does not have."""
    newest: str = ""
    complete: str = ""
    resume_args: tuple[str, ...]
    from_second_attempt: bool = False
    pattern: str = ""
    """Of its steps, where `output: Auto` does not know them."""

    @property
    def progress(self) -> dict[str, Any]:
        """Its `progress`."""
        return {"patterns": [{"pattern": self.pattern}]} if self.pattern else {"output": "Auto"}


KNOWN = (
    KnownScript(
        name="Hugging Face's Trainer",
        # trl's scripts have the flag to resume, and do not look at it.
        sign=r"^(?!.*(--checkpointing_steps|no_trainer|\bsft\w*\.py|\btrl\b)).*--(save_(steps|strategy|total_limit)"
        r"|per_device_train_batch_size)\b",
        path="{output_dir}",
        newest="checkpoint-*",
        complete="*/trainer_state.json",
        resume_args=("--resume_from_checkpoint", "{newest}"),
    ),
    KnownScript(
        name="a script of accelerate's examples",
        sign=r"--checkpointing_steps[ =]\d",
        path="{output_dir}",
        newest="step_*",
        complete="*/random_states_0.pkl",
        resume_args=("--resume_from_checkpoint", "{newest}"),
    ),
    KnownScript(
        name="timm's train.py",
        sign=r"^(?=.*\btrain\.py\b)(?=.*--experiment[ =])"
        r".*--(model|data-dir|dataset|num-classes|sched|warmup-epochs|amp)\b",
        path="{output}/{experiment}",
        defaults={"output": "output/train"},
        newest="last.pth.tar",
        resume_args=("--resume", "{newest}"),
    ),
    KnownScript(
        name="YOLOv5",
        sign=r"--data[ =]\S+\.ya?ml\b",
        path="{project}/{name}",
        newest="weights/last.pt",
        resume_args=("--resume", "{newest}"),
    ),
    KnownScript(
        name="Ultralytics",
        # A relative project is below a folder that its settings name.
        sign=r"\byolo\b(?=.* train\b).* project=/",
        path="{project}/{name}",
        newest="weights/last.pt",
        resume_args=("resume=True", "model={newest}"),
    ),
    KnownScript(
        name="open_clip",
        sign=r"\b(open_clip_train|training)\.main\b",
        path="{logs}/{name}/checkpoints",
        defaults={"logs": "logs"},
        newest="epoch_*.pt",
        resume_args=("--resume", "latest"),
        from_second_attempt=True,
        pattern=r"Train Epoch: (?P<epoch>\d+) \[ *(?P<batch>\d+)/(?P<batches>\d+) "
        r".* Loss: (?P<loss>\S+)",
    ),
    KnownScript(
        name="litgpt pretrain",
        sign=r"\blitgpt pretrain\b",
        path="{out_dir}",
        newest="step-*",
        complete="*/lit_model.pth",
        resume_args=("--resume", "{newest}/lit_model.pth"),
        pattern=r"step (?P<step>\d+) \| loss train: (?P<loss>[\d.]+)",
    ),
    KnownScript(
        name="nanoGPT",
        sign=r"\btrain\.py\b.*--out_dir=",
        path="{out_dir}",
        resume_args=("--init_from=resume",),
    ),
    KnownScript(
        name="PyTorch's imagenet example",
        # Its own example has one option alone: the name of a model of torchvision.
        sign=r"\bmain\.py\b(.* (-a|--arch)[ =](alexnet|convnext|densenet|efficientnet|mobilenet"
        r"|regnet|resne|shufflenet|squeezenet|swin|vgg|vit|wide_resnet)"
        r"|(?=.* --dist-url[ =]).* --multiprocessing-distributed\b)",
        path=".",
        newest="checkpoint.pth.tar",
        resume_args=("--resume", "{newest}"),
    ),
)
"""The first that fits counts."""
NEXT = re.compile(r"--?[A-Za-z]")
"""What is no value of the option before it."""


def own_folder(words: Sequence[str]) -> tuple[KnownScript, dict[str, Any]] | None:
    """The script of this command, and its `checkpoint.folder`; None: none is known."""
    text = " ".join(words)
    if words and SHELL.fullmatch(words[0].rpartition("/")[2]):
        words = text.split()
    values = _values(words)
    for script in KNOWN:
        options = {**script.defaults, **values}
        known = {*re.findall(r"{(\w+)}", script.path)} <= {*options}
        if known and re.search(script.sign, text):
            folder: dict[str, Any] = {
                "path": script.path.format_map(options),
                "newest": script.newest,
                "complete": [script.complete] if script.complete else [],
                "resumeArgs": [*script.resume_args],
                "resumeArgsFrom": "SecondAttempt" if script.from_second_attempt else "",
            }
            return script, {name: value for name, value in folder.items() if value}
    return None


def _values(words: Sequence[str]) -> dict[str, str]:
    """The values of long options and of `name=value`, by name with underscores."""
    found = {}
    for word, after in zip(words, (*words[1:], "-x"), strict=False):
        name, given, value = word.removeprefix("--").partition("=")
        if not given and (not word.startswith("--") or NEXT.match(after)):
            continue
        # Nobody expands a variable in checkpoint.folder.path.
        if "$" not in (value if given else after):
            found[name.replace("-", "_")] = (value if given else after).rstrip("/")
    return found
