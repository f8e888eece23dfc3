"""A memory cgroup with a limit, of either version, for whoever may make one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainrun._common.kernel import CGROUP_ROOT, SELF_CGROUP


@dataclass(frozen=True)
class MemoryCgroup:
    path: Path
    mount: Path
    """Where a container would see `path` itself."""


@contextlib.contextmanager
def memory_cgroup(limit: int) -> Iterator[MemoryCgroup]:
    """One of `limit` bytes without swap; a skip where none can be made."""
    mount, own, file = _place()
    path = mount / own.lstrip("/") / f"trainrun-test-{secrets.token_hex(4)}"
    try:
        path.mkdir()
        (path / file).write_text(str(limit))
    except OSError as error:
        with contextlib.suppress(OSError):
            path.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield MemoryCgroup(path, mount)
    finally:
        _remove(path)


def _place() -> tuple[Path, str, str]:
    """Mount point, our own group, and the file of the limit."""
    for line in SELF_CGROUP.read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if "memory" in controllers.split(","):
            return CGROUP_ROOT / "memory", own, "memory.limit_in_bytes"
        if not controllers and (CGROUP_ROOT / "cgroup.controllers").exists():
            # Beside our own group: one that has processes cannot have limited groups below it.
            return CGROUP_ROOT, os.path.dirname(own), "memory.max"
    pytest.skip("this machine has no memory cgroups")


def _remove(path: Path) -> None:
    deadline = time.monotonic() + 5
    while True:
        try:
            path.rmdir()
        except OSError as error:
            # Its last process has been killed and is still on its way out.
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
