"""Other Pythons of this machine, for what has to run in anybody's image."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest


def python(major: int, minor: int) -> str:
    """The interpreter of this version; a skip where there is none."""
    found = _find(major, minor)
    if found is None:
        pytest.skip(f"no Python {major}.{minor} on this machine")
    return found


@functools.cache
def _find(major: int, minor: int) -> str | None:
    candidates = [
        *map(str, sorted(Path.home().glob(f".pyenv/versions/{major}.{minor}.*/bin/python"))),
        shutil.which(f"python{major}.{minor}"),
    ]
    return next((path for path in candidates if path and _starts(path, major, minor)), None)


def _starts(path: str, major: int, minor: int) -> bool:
    # A shim may be there without the version behind it.
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    return (done.stdout or done.stderr).startswith(f"Python {major}.{minor}.")
