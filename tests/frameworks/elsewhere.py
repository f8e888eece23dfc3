"""A file of this folder as one test, run where the frameworks are: the project's own virtual
environment does not have them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.inner_pytest import its_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ".venv-frameworks"
TIMEOUT = 1800
"""Seconds for a file; the longest takes three minutes with a machine of its own."""


class Failed(Exception):
    """What pytest printed there."""


class FileElsewhere(pytest.File):
    """Takes the place of the module, which cannot be imported here."""

    def collect(self) -> Iterator[pytest.Item]:
        yield InOneGo.from_parent(self, name=f"in {FOLDER}")


class InOneGo(pytest.Item):
    """All tests of the file, in a process of its own."""

    def __init__(self, name: str, parent: pytest.Collector) -> None:
        super().__init__(name, parent)
        self.add_marker(pytest.mark.timeout(TIMEOUT))

    def runtest(self) -> None:
        root = self.config.rootpath
        if not (root / FOLDER / ".installed").exists():
            pytest.skip(f"{FOLDER} is not installed: `make test-frameworks` does it")
        done = subprocess.run(
            [root / FOLDER / "bin" / "python", "-m", "pytest", "-q", self.path],
            cwd=root,
            env=its_environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise Failed(done.stdout + done.stderr)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        """Its output as it is."""
        return str(excinfo.value)
