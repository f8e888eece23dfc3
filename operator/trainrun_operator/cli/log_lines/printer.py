"""How lines look: for people with attempt and rank in front, or one JSON object each.

Layer: cli. What looks like a secret is left out, wherever a line comes from: what is stored is
masked already, and what is pasted should be, too.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass

import click

from trainrun.contract.masking import hide_values, masked
from trainrun_operator.cli.log_lines.line import Line, Shown
from trainrun_operator.cli.wording import printable

COLORS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green")


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """Prints what is shown."""

    as_json: bool = False
    color: bool = False

    @staticmethod
    def for_stdout(*, as_json: bool) -> Printer:
        """With colors on a terminal, unless NO_COLOR is set; without what our environment keeps
        secret."""
        hide_values(os.environ)
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        return Printer(as_json=as_json, color=color)

    def show(self, shown: Shown) -> None:
        """Print it at once."""
        click.echo(self._object(shown) if self.as_json else self._text(shown))

    def _text(self, shown: Shown) -> str:
        attempt = "?" if shown.attempt is None else shown.attempt
        if isinstance(shown, Line):
            head = f"[attempt {attempt} rank {shown.rank}]"
            color = COLORS[shown.rank % len(COLORS)]
            text = printable(masked(shown.text))
            return f"{click.style(head, fg=color) if self.color else head} {text}"
        worker = f" {shown.worker}" if shown.worker else ""
        text = f"[attempt {attempt}{worker}] -- {shown.text} --"
        return click.style(text, fg="yellow") if self.color else text

    def _object(self, shown: Shown) -> str:
        told: dict[str, object] = {"attempt": shown.attempt}
        if isinstance(shown, Line):
            told["rank"] = shown.rank
        if shown.worker:
            told["worker"] = shown.worker
        if isinstance(shown, Line):
            if shown.time is not None:
                told["time"] = shown.time.isoformat(timespec="milliseconds")
            told["text"] = masked(shown.text)
        else:
            told["missing"] = shown.text
        return json.dumps(told)
