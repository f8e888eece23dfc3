"""The trainings of frameworks that were tried, in the form of the table in docs/frameworks.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.frameworks.trained import Trained

TRIED = "tried"
PLACED = {2: "two workers", 1: "one worker of two processes"}
COLUMNS = ("undisturbed", "killed", "preempted", "both")


def row(framework: str, fault: str, run: Trained, *, equal: bool) -> str:
    """What became of one training, as a test tells it."""
    resumed = [step for _, step in run.incidents]
    word = "equal" if equal else "DIFFERENT"
    cell = f"{word}, {run.seconds:.0f} s"
    if resumed:
        cell += f", from {' and '.join(map(str, resumed))}"
    return json.dumps([framework, PLACED[run.workers], fault, cell])


def rows(told: Iterable[str]) -> list[str]:
    """The lines of the table; none where nothing was tried."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for text in told:
        framework, placed, fault, cell = json.loads(text)
        cells.setdefault((framework, placed), {})[fault] = cell
    if not cells:
        return []
    head = ["| | Placed | Undisturbed | Killed | Preempted | Both |", "|---|---|---|---|---|---|"]
    return head + [
        f"| {' | '.join([*place, *(found.get(column, '-') for column in COLUMNS)])} |"
        for place, found in sorted(
            cells.items(), key=lambda item: (item[0][0], item[0][1] != PLACED[2])
        )
    ]
