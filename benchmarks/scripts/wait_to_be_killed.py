"""Says when its first line runs, then waits to be killed."""

from __future__ import annotations

import time

FIRST_LINE = time.time()

import os  # noqa: E402
from pathlib import Path  # noqa: E402

import trainrun  # noqa: E402

marks = Path(os.environ["MARKS"])
name = f"{os.environ['TRAINRUN_ATTEMPT']}-{os.environ['RANK']}"


def mark(path: Path, value: object) -> None:
    """Written whole: whoever sees the file can read it."""
    path.with_suffix(".new").write_text(str(value))
    path.with_suffix(".new").rename(path)


mark(marks / f"pid-{name}", os.getpid())
mark(marks / f"line-{name}", FIRST_LINE)
trainrun.report(step=int(os.environ["TRAINRUN_ATTEMPT"]))
mark(marks / f"ready-{name}", time.time())
time.sleep(600)
