"""`python -m tools.picture FILE.svg`: the picture of the README, a recording of a real run.

It does what the README says, `trainrun init` and `trainrun run`, with two faults.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = (
    'trainrun run train.yaml --fault "kill rank=2 step=34" '
    '--fault "preempt rank=1 step=65 grace=20s"'
)
WIDTH = 124
"""Columns; longer lines are cut."""
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>text {{ font-family: monospace; font-size: {char_height}px; white-space: pre }}
{styles}</style>
<rect width="100%" height="100%" rx="8" fill="#16181d"/>
<clipPath id="{unique_id}-clip-terminal"><rect width="100%" height="100%"/></clipPath>
<defs>{lines}</defs>
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Without the fonts that rich would fetch: a page must not ask others for them."""


def recorded(folder: Path) -> str:
    """What the commands print in this folder."""
    commands = Path(sys.executable).parent
    text = f"$ {COMMAND}\n"
    for command in ("trainrun init .", COMMAND):
        words = shlex.split(command)
        words[0] = str(commands / words[0])
        done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return text + done.stdout


def picture(text: str) -> str:
    """The text as SVG, with what went wrong in red and what went well in green."""
    drawn = Text(text)
    drawn.highlight_regex(r"(?m)^\$ .*", "bold white")
    drawn.highlight_regex(r"AppError|Preempted|SIGKILL|(?<=[=s·])x+|!+", "bold red")
    drawn.highlight_regex(r"Succeeded|succeeded|✓+", "bold green")
    drawn.highlight_regex(r"resumed|starts from step \d+ of attempt \d+", "bold yellow")
    with open("/dev/null", "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(drawn, no_wrap=True, overflow="ellipsis", crop=True)
        return console.export_svg(title="", code_format=FORMAT, unique_id="run")


def main(file: Path) -> None:
    """Record a run and write the picture of it."""
    with tempfile.TemporaryDirectory(prefix="first-") as folder:
        file.write_text(picture(recorded(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
