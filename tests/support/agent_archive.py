"""The archive that workers fetch, and how it is started once it is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).parents[2] / "worker_image" / "inject" / "build.py"

_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); import run; run.start()"


def build_archive(archive: Path) -> Path:
    """Make it from the packages of this environment, for its Python."""
    subprocess.run([sys.executable, BUILD, archive], check=True)
    return archive


def agent_of(archive: Path, interpreter: str) -> list[str]:
    """How the agent is started; who fetches it has seen to it that this Python is new enough."""
    return [interpreter, "-I", "-S", "-c", _RUN, str(archive)]
