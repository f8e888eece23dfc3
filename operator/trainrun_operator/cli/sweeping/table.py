"""The live view of a sweep on a terminal.

Layer: cli.
"""

from __future__ import annotations

from collections import deque

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainrun.sweep.search import Objective
from trainrun_operator.cli import formatting
from trainrun_operator.cli.live import Redrawn
from trainrun_operator.cli.sweeping.sweep_events import (
    SweepNews,
    SweepObserved,
    TrialEnded,
    TrialEvent,
)
from trainrun_operator.cli.sweeping.trial_text import Row, cells, heads, outcome
from trainrun_operator.runtime.run_events import RunEvent

MOST_EVENTS = 5
STYLES = {
    "Running": "green",
    "Saving": "yellow",
    "Succeeded": "cyan",
    "Errored": "red",
    "Diverged": "red",
}


class SweepTable(Redrawn):
    """Shows a sweep: its status, a table of trials, and the newest events."""

    def __init__(self, console: Console, *, name: str, objective: Objective) -> None:
        super().__init__(console)
        self._name = name
        self._objective = objective
        self._observed: SweepObserved | None = None
        self._events: deque[Text] = deque(maxlen=MOST_EVENTS)

    def emit(self, news: SweepNews) -> None:
        """Remember the news and redraw soon."""
        self.remember(news)
        self._draw_soon()

    def remember(self, news: SweepNews) -> None:
        """Remember the news."""
        match news:
            case SweepObserved():
                self._observed = news
            case TrialEnded(trial=trial):
                text = f"trial {trial.number} {trial.state}: {outcome(trial, self._objective)}"
                self._events.append(Text(text, style=STYLES.get(trial.state, ""), no_wrap=True))
            case TrialEvent(trial=number_, news=RunEvent(event=event)) if event.type == "Warning":
                text = f"trial {number_} {event.reason}: {formatting.printable(event.message)}"
                self._events.append(Text(text, style="yellow", no_wrap=True))
            case _:
                pass

    def render(self) -> RenderableType:
        """The whole view."""
        if self._observed is None:
            return Text(f"{self._name}: starting")
        status = self._observed.status
        head = Text.assemble(
            (f" {self._name} ", "bold reverse"),
            (f" {status.phase} ", "bold green" if status.phase == "Running" else "bold yellow"),
            f" {status.trials.text} ended   {self._elapsed}",
            no_wrap=True,
        )
        room = max(3, self._console.height - len(self._events) - 6)
        facts = Text(f" {status.message}", style="dim", no_wrap=True)
        best = None if status.best is None else status.best.trial
        rows = shown_rows(self._observed.rows, best=best, most=room)
        return Group(head, facts, self._table(rows, best), *self._events)

    def _table(self, rows: list[Row], best: int | None) -> Table:
        table = Table(box=None, padding=(0, 1))
        for at, head in enumerate(heads(self._objective)):
            right = at in (0, 2, 3, 4)
            # In a narrow terminal only the parameters are cut.
            table.add_column(
                Text(head),
                justify="right" if right else "left",
                no_wrap=head != "parameters",
                min_width=len(head),
            )
        for row in rows:
            leads = row.trial == best
            trial, state, value, step, _, params = cells(row)
            table.add_row(
                f"{'* ' if leads else ''}{trial}",
                Text(state, style=STYLES.get(state, "")),
                value,
                step,
                str(row.restarts or ""),
                Text(params, no_wrap=True, overflow="ellipsis"),
                style="bold" if leads else "",
            )
        return table


def shown_rows(rows: tuple[Row, ...], *, best: int | None, most: int) -> list[Row]:
    """At most `most` rows by number: the best trial, running ones, then the newest others."""
    at_work = [row for row in rows if row.state in ("Running", "Saving", "Ending")]
    leading = [row for row in rows if row.trial == best]
    chosen = {row.trial: row for row in (*leading, *at_work)}
    for row in reversed(rows):
        if len(chosen) >= most:
            break
        chosen.setdefault(row.trial, row)
    return sorted(chosen.values(), key=lambda row: row.trial)[-most:]
