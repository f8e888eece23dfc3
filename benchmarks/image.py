"""What the operator's image sets, for operators that a benchmark starts without it."""

from __future__ import annotations

import re
from pathlib import Path

DOCKERFILE = Path(__file__).parents[1] / "operator" / "Dockerfile"


def memory_settings() -> dict[str, str]:
    """The variables by which glibc keeps or gives back memory."""
    return dict(re.findall(r"\b(MALLOC_\w+)=(\w+)", DOCKERFILE.read_text()))
