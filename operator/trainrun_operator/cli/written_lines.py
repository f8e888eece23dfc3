"""A line for whoever reads our output: at once, and no harm if nobody does any more.

Layer: cli, leaf.
"""

from __future__ import annotations

from typing import TextIO


def write_line(stream: TextIO, line: str) -> None:
    """Write it now."""
    try:
        print(line, file=stream, flush=True)
    except BrokenPipeError:
        pass  # the reader (`| head`) has gone; the training goes on
