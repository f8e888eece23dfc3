"""The live view of a run on a terminal; that of a sweep is in `cli/sweeping/table.py`.

Layer: cli. Redrawn at most twice a second and only after news, so that it does not slow the
training down.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli import formatting
from trainrun_operator.cli.lines import Timeline, ranks_of
from trainrun_operator.runtime.line_writers import is_behind
from trainrun_operator.runtime.run_events import Output, PassEnded, RunEvent, RunNews

REDRAW_AFTER = 0.5
"""Seconds between two drawings."""


def console_to_draw_on(*, color: bool) -> Console:
    """The terminal. From now on log lines appear above the view, not inside it."""
    console = Console(no_color=not color)
    logging.basicConfig(handlers=[RichHandler(console=console, show_path=False)], force=True)
    return console


class Redrawn(ABC):
    """A view that redraws itself in place; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._redraw: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._redraw is not None:
            self._redraw.cancel()
        self._live.__exit__(None, None, None)

    @abstractmethod
    def render(self) -> RenderableType:
        """The whole view."""

    def say(self, text: str) -> None:
        """A line that stays above the view."""
        self._live.console.print(f"trainrun: {text}", highlight=False, markup=False)

    @property
    def _elapsed(self) -> str:
        """Time since it was created, in minutes and seconds: `3:07`."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02}"

    def _draw_soon(self, after: float = REDRAW_AFTER) -> None:
        """Schedule a redraw in `after` seconds, unless one is scheduled."""
        if self._redraw is None:
            self._redraw = asyncio.get_running_loop().call_later(after, self._draw)

    def _draw(self) -> None:
        self._redraw = None
        if is_behind():
            self._draw_soon()  # the terminal has not shown the last drawing yet
            return
        self._live.update(self.render(), refresh=True)


COUNTDOWN = 1.0
"""Seconds between two drawings during a backoff, when there is no news."""

MOST_RANKS, MOST_EVENTS, MOST_OUTPUT = 16, 5, 8
"""Lines of each part."""

PHASE_STYLES = {"Running": "green", "Succeeded": "green", "Failed": "red"}
STATE_STYLES = {"training": "green", "dead": "red", "leaving": "yellow", "done": "green"}


class LiveView(Redrawn):
    """Shows a run: its status, ranks, newest events and output."""

    def __init__(self, console: Console, *, name: str, timeline: Timeline, per_worker: int) -> None:
        super().__init__(console)
        self._name = name
        self._timeline = timeline
        self._per_worker = per_worker
        self._passed: PassEnded | None = None
        self._events: deque[tuple[float, RunEvent]] = deque(maxlen=MOST_EVENTS)
        self._output: deque[str] = deque(maxlen=MOST_OUTPUT)

    def emit(self, news: RunNews) -> None:
        """Remember the news and redraw soon."""
        self.remember(news)
        self._draw_soon()

    def remember(self, news: RunNews) -> None:
        """Remember the news."""
        match news:
            case RunEvent():
                self._events.append((time.monotonic() - self._began, news))
            case Output(line=line):
                if not line.startswith(formatting.AGENT_CHATTER):
                    self._output.append(formatting.printable(line))
            case PassEnded():
                self._passed = news

    def _draw(self) -> None:
        super()._draw()
        if self._passed is not None and self._waits(self._passed.plan.status):
            self._draw_soon(COUNTDOWN)

    @staticmethod
    def _waits(status: TrainRunStatus) -> str:
        return formatting.restarting(status, now=datetime.now(UTC))

    def render(self) -> RenderableType:
        """The whole view."""
        if self._passed is None:
            return Text(f"{self._name}: starting")
        status = self._passed.plan.status
        blank = Text()
        ranks = self._ranks()
        above = [self._head(status), *self._facts(status), blank]
        below = [blank, *self._history(), blank]
        # Rich cuts off the bottom, where the newest line is: drop older lines instead.
        room = max(0, self._console.height - len(above) - ranks.row_count - len(below) - 1)
        output = list(self._output)[-room:] if room else []
        lines = (Text(f"  {line}", style="dim", no_wrap=True) for line in output)
        return Group(*above, ranks, *below, *lines)

    def _head(self, status: TrainRunStatus) -> Text:
        style = PHASE_STYLES.get(status.phase, "yellow")
        return Text.assemble(
            (f" {self._name} ", "bold reverse"),
            (f" {status.phase} ", f"bold {style}"),
            f" attempt {status.attempt}   {self._elapsed}   {formatting.budget_of(status)}",
            no_wrap=True,
        )

    def _facts(self, status: TrainRunStatus) -> Iterator[Text]:
        assert self._passed is not None
        shown = f"{formatting.step_of(status)}   {formatting.metrics_of(status)}"
        yield Text(f" step {shown}", no_wrap=True)
        yield Text(f" checkpoint {formatting.checkpoint_of(status)}", no_wrap=True)
        yield Text(
            f" {self._waits(status) or self._passed.plan.message}", style="dim", no_wrap=True
        )

    def _ranks(self) -> Table:
        assert self._passed is not None
        table = Table(box=None, padding=(0, 1), show_header=False)
        rows = list(self._timeline.rows(width=48))
        for rank, state, step in ranks_of(self._passed, per_worker=self._per_worker):
            if rank < MOST_RANKS:
                shown = Text(state, style=STATE_STYLES.get(state, "yellow"))
                step_text = "" if step is None else f"step {step}"
                table.add_row(f"rank {rank}", shown, step_text, rows[rank])
        left = len(rows) - MOST_RANKS
        if left > 0:
            table.add_row(f"and {left} more")
        return table

    def _history(self) -> Iterator[Text]:
        for ago, news in self._events:
            event = news.event
            style = "yellow" if event.type == "Warning" else "green"
            yield Text.assemble(
                f" {ago:6.1f}s ", (event.reason, style), f" {event.message}", no_wrap=True
            )
