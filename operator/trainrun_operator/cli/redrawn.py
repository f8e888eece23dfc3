"""A view that is redrawn in place: for a terminal.

Layer: cli. Drawn at most twice a second and only after news, so that it takes no time from the
training.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.logging import RichHandler

from trainrun_operator.runtime.written_lines import is_behind

REDRAW_AFTER = 0.5
"""Seconds between two drawings."""


def console_to_draw_on(*, color: bool) -> Console:
    """The terminal; from now on lines of the log go above the view, not through it."""
    console = Console(no_color=not color)
    logging.basicConfig(handlers=[RichHandler(console=console, show_path=False)], force=True)
    return console


class Redrawn(ABC):
    """Draws itself soon after it was told to; a context manager."""

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
    def _lasts(self) -> str:
        """How long it has been shown: `3:07`."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02}"

    def _draw_soon(self, after: float = REDRAW_AFTER) -> None:
        """Unless it is going to be drawn anyway."""
        if self._redraw is None:
            self._redraw = asyncio.get_running_loop().call_later(after, self._draw)

    def _draw(self) -> None:
        self._redraw = None
        if is_behind():
            self._draw_soon()  # nobody has seen the last one yet
            return
        self._live.update(self.render(), refresh=True)
