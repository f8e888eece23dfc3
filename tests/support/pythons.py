"""Other Pythons of this machine, for what has to run in anybody's image."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest


@functools.cache
def pythons() -> dict[tuple[int, int], str]:
    """Interpreters by version, as far as they can be found and started."""
    found = {}
    candidates = [
        *map(shutil.which, ("python2.7", *(f"python3.{minor}" for minor in range(6, 20)))),
        *map(str, sorted(Path.home().glob(".pyenv/versions/*/bin/python"))),
    ]
    for candidate in filter(None, candidates):
        # A shim may be there without the version behind it.
        done = subprocess.run([candidate, "--version"], capture_output=True, text=True)
        version = re.match(r"Python (\d+)\.(\d+)", done.stdout or done.stderr)
        if done.returncode == 0 and version:
            found[int(version[1]), int(version[2])] = candidate
    return found


def python(major: int, minor: int) -> str:
    """The interpreter of this version; a skip where there is none."""
    if (major, minor) not in pythons():
        pytest.skip(f"no Python {major}.{minor} on this machine")
    return pythons()[major, minor]
