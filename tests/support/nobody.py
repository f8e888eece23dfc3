"""Doing something as a user for whom permissions count, whoever runs the tests."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

NOBODY = 65534


def as_nobody(function: Callable[..., T], folder: Path, *more: Any) -> T:
    """What `function` of a module returns for this folder, in a process of its own; root becomes
    nobody, to whom the folder then belongs."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        for parent in folder.parents:  # pytest's own folders are private
            if parent == Path(tempfile.gettempdir()):
                break
            parent.chmod(0o755)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_called, function, folder, *more).result()


def _called(function: Callable[..., T], *arguments: Any) -> T:
    # Everything was imported by now, from folders that nobody may be kept out of.
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return function(*arguments)
