"""Figures as they are printed: medians against what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.verdict import must


def tell(
    what: str, seconds: Sequence[float], *, limit: float | None = None, unit: str = "s"
) -> None:
    """One line: median, fastest, slowest, and the promise."""
    promise = "" if limit is None else f"  {must(what.strip(), median(seconds), limit, unit)}"
    print(
        f"{what}: median {median(seconds):.2f} {unit} of {len(seconds)}, "
        f"fastest {min(seconds):.2f}, slowest {max(seconds):.2f}{promise}",
        flush=True,
    )
