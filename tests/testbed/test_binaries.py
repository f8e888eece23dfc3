"""The Go modules that a cluster's programs are built from."""

from __future__ import annotations

import re

import pytest

from testbed import binaries
from testbed.binaries import Module


@pytest.mark.parametrize(
    "module",
    [it for it in vars(binaries).values() if isinstance(it, Module)],
    ids=lambda module: module.name,
)
def test_make_cluster_up_builds_everything_on_a_new_machine(module: Module) -> None:
    """It stopped at the S3 server, which is built from the module of the tests' tools."""
    required = (module.folder / "go.mod").read_text()
    for package in module.commands.values():
        assert package.startswith("./") or any(
            package.startswith(path) for path in re.findall(r"[\w./-]+/[\w./-]+", required)
        )
