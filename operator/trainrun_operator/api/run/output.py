"""spec.progress and status.output: steps from output, if the script reports none.

Layer: api. A pattern is checked as RE2, which the API server reads, and used by Python's `re` in
the agent: it may use only what both read alike.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field

from trainrun_operator.api.base import Model, Rule
from trainrun_operator.api.run.rules import RegularExpression
from trainrun_operator.api.run.status_parts import StatusPart

EPOCH_GROUPS = ("(?P<epoch>", "(?P<batch>", "(?P<batches>")
ONLY_RE2 = r"\\[pPzQC]|\\x\{|\[\[|\(\?[a-zA-Z]*U|.\(\?[a-zA-Z]+\)"
"""Occurs in a pattern that Python does not read, or reads in another way."""


def _python_reads(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, Warning, OverflowError):
        return False
    return re.search(ONLY_RE2, pattern) is None


def _shows_step(pattern: str) -> bool:
    return "(?P<step>" in pattern or all(group in pattern for group in EPOCH_GROUPS)


class PatternSpec(Model):
    """A regular expression for lines that show a step."""

    pattern: Annotated[
        str,
        Field(min_length=1, max_length=256),
        RegularExpression(),
        Rule(
            cel=f"!self.matches(r'{ONLY_RE2}')",
            message=r"must be without \p, \z, \Q, \C, \x{}, [[:alpha:]] and flags after its "
            "beginning: Python reads it, too",
            holds=_python_reads,
        ),
        Rule(
            cel="self.contains('(?P<step>') || "
            f"{list(EPOCH_GROUPS)}.all(group, self.contains(group))",
            message="must have the group (?P<step>...), or (?P<epoch>...), (?P<batch>...) and "
            "(?P<batches>...)",
            holds=_shows_step,
        ),
    ]
    r"""Regular expression in the syntax that RE2 and Python share, searched in each line. Its group
    step holds the step; or epoch, batch and batches hold numbers, and the step is epoch * batches +
    batch. A group total holds the last step. Every other named group whose text is a number is a
    metric. At most 256 characters. Example: 'iter (?P<step>\d+): loss (?P<loss>\S+)'."""
    rank: Annotated[int, Field(ge=0, le=65535)] = 0
    """The rank whose output is read. Default 0."""


class ProgressSpec(Model):
    """Where steps and metrics come from if the script does not call `trainrun.report()`."""

    output: Literal["Off", "Auto"] = "Off"
    """Auto: look for steps in the output of rank 0 and of the last rank, in the forms of tqdm,
    Hugging Face, Lightning, nanoGPT, PyTorch's imagenet example, timm, Megatron-LM, detectron2 and
    Keras. Off: do not. An edit applies from the next attempt on. Default Off."""
    patterns: Annotated[tuple[PatternSpec, ...], Field(max_length=8, exclude_if=not_)] = ()
    """Patterns of your own for such lines, at most 8: each line goes to the first that matches, and
    before the known forms. They are read whether output is Auto or Off. Default: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSteps(StatusPart):
    """How far the training is, as its output shows (`spec.progress`).

    No budget and no limit reads it."""

    text: Annotated[str, Field(max_length=64)] = ""
    """`1200/5000`; empty if the output moves but shows no steps."""
    step: int | None = None
    """The highest step in this attempt. Absent: its numbers begin again with each epoch."""
    total_steps: int | None = None
    """The step at which the training ends, if the output says so."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """The newest value of each metric; a number that is not finite is {"float": "NaN"}."""
    form: Annotated[str, Field(max_length=64)] = ""
    """What prints such lines: `nanoGPT`, `tqdm`; or `pattern 1`, of the spec."""
    rank: int = 0
    """The rank that prints it."""
    line: Annotated[str, Field(max_length=256)] = ""
    """The line from which it was recognised."""
    reached: Annotated[int, Field(exclude_if=not_)] = 0
    """The last step of an earlier attempt, the highest of them."""
    time: datetime
    """When this was first seen."""

    @property
    def source(self) -> str:
        """See `source_of`."""
        return source_of(self.form, self.line, self.rank)


def source_of(form: str, line: str, rank: int) -> str:
    """`form nanoGPT, line "iter 0: loss 4.2" of rank 0`."""
    return f'form {form}, line "{line}" of rank {rank}'
