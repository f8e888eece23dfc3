"""The children of an agent."""

from __future__ import annotations

import os
import subprocess

from trainrun.agent.processes import procfs


def test_children_are_found_on_kernels_that_do_not_list_them() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert child.pid in procfs._children_by_scan(os.getpid())
            assert child.pid in procfs.children_of(os.getpid())
        finally:
            child.kill()
