"""Packages of this machine for pods: the embedded cluster's nodes share its disk.

Debian's PyTorch cannot shard on CPUs, and one that can brings gigabytes of CUDA into an image; of
transformers Debian has none. The image gives the system, the agent its library.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.choice import choice


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of this machine. Skips where pods cannot have it."""

    folder: Path

    def __post_init__(self) -> None:
        """Its Python comes along, but not in the place of an image's own."""
        if choice() != "embedded":
            pytest.skip("pods of kind do not see this machine's disk")
        if not (self.folder / ".installed").exists():
            pytest.skip(f"{self.folder.name} is not installed: `make test-frameworks` does it")
        if self._home == Path("/usr"):
            pytest.skip("the Python of this machine is in /usr, where an image has its own")

    @property
    def python(self) -> str:
        """What runs a script with its packages."""
        return str(self.folder / "bin" / "python")

    @property
    def volumes(self) -> list[dict[str, Any]]:
        """For the pod."""
        return [
            {"name": name, "hostPath": {"path": path, "type": "Directory"}}
            for name, path in self._folders.items()
        ]

    @property
    def mounts(self) -> list[dict[str, Any]]:
        """For its container: everything has its place of this machine."""
        return [
            {"name": name, "mountPath": path, "readOnly": True}
            for name, path in self._folders.items()
        ]

    @property
    def _folders(self) -> dict[str, str]:
        return {"interpreter": str(self._home), "packages": str(self.folder)}

    @property
    def _home(self) -> Path:
        return (self.folder / "bin" / "python").resolve().parents[1]
