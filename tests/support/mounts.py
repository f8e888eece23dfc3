"""Small file systems that can be filled."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(path: Path, options: str) -> Iterator[Path]:
    """A tmpfs; only root may mount, everybody else skips."""
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small file system")
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("this machine does not allow mounts")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
