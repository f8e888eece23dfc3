"""A cluster by its name: what tests, the demo and people use, whatever it runs on.

`Cluster("test").up()` gives three Ready nodes with eight GPUs each and an S3 server. With Docker
it comes from kind, else from the processes of this machine; `CLUSTER` in the environment chooses.
After that there is no difference.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from testbed.api import Api
from testbed.binaries import binary
from testbed.choice import choice
from testbed.embedded import Embedded
from testbed.errors import ClusterBroken
from testbed.kind import Kind
from testbed.places import clusters, locked, progress
from testbed.shell import output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from testbed.kind_nodes import KindNode
    from testbed.nodes import Node
    from testbed.s3 import S3

DEFAULT_NAME = "trainrun"
NAME_VARIABLE = "TRAINRUN_CLUSTER"
"""Names the cluster that commands and tests use, where they are not told otherwise."""


class Cluster:
    """The cluster of that name, running or not."""

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        self.name = name
        state = clusters() / name
        self.provider: Embedded | Kind = (
            Kind(name=name, state=state)
            if choice() != "embedded"
            else Embedded(name=name, state=state)
        )

    def up(self, images: Sequence[Path] = ()) -> None:
        """Start it with the Python base image and these archives on every node.

        Whatever runs already stays. Raises ClusterUnavailable on a machine that can run none.
        """
        started = time.monotonic()
        with self._alone():
            self.provider.up(images)
        progress(f"{self.name} is up ({time.monotonic() - started:.1f} s)")

    def down(self) -> None:
        """End and remove everything of it; nothing when there is nothing."""
        with self._alone():
            self.provider.down()

    def load(self, archive: Path) -> None:
        """Import an image archive into the running nodes."""
        with self._alone():
            self.provider.load(archive)

    def is_running(self) -> bool:
        return self.provider.is_running()

    def left_over(self) -> list[str]:
        """What of it is on this machine, in words; empty after `down`."""
        return self.provider.left_over()

    @property
    def kubeconfig(self) -> Path:
        return self.provider.kubeconfig

    @property
    def audit_log(self) -> Path:
        """Every answered request to the API server, a JSON object per line (level Metadata)."""
        return self.provider.audit_log

    @property
    def shared(self) -> Path:
        """A folder of a running cluster that every node and this machine know by the same path."""
        return self.provider.shared

    @property
    def s3(self) -> S3:
        return self.provider.s3

    @property
    def nodes(self) -> Sequence[Node | KindNode]:
        return self.provider.nodes

    def node(self, name: str) -> Node | KindNode:
        """The node of that name."""
        named = {node.name: node for node in self.nodes}
        if name not in named:
            raise ClusterBroken(f"there is no node {name!r}; there are {', '.join(named)}")
        return named[name]

    @property
    def api(self) -> Api:
        """Requests to the API server as its administrator."""
        return Api(self.kubeconfig)

    def kubectl(self, *arguments: str | Path, text: str = "", timeout: float = 120.0) -> str:
        """Run kubectl, `text` being its input; return what it printed."""
        environment = {"KUBECONFIG": str(self.kubeconfig)}
        return output(
            binary("kubectl"), *arguments, text=text, timeout=timeout, environment=environment
        )

    def helm(self, *arguments: str | Path, text: str = "", timeout: float = 300.0) -> str:
        """Run helm, with caches of this cluster's own; return what it printed."""
        folder = self.provider.state / "helm"
        environment = {
            "KUBECONFIG": str(self.kubeconfig),
            **{f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")},
        }
        return output(
            binary("helm"), *arguments, text=text, timeout=timeout, environment=environment
        )

    def environment(self) -> dict[str, str]:
        """The environment for programs that look for a cluster, with kubectl and helm in PATH."""
        tools = f"{binary('kubectl').parent}:{binary('helm').parent}"
        path = f"{tools}:{os.environ['PATH']}"
        found = {"KUBECONFIG": str(self.kubeconfig), "PATH": path, "NO_PROXY": "*"}
        return {**os.environ, **found, NAME_VARIABLE: self.name}

    def _alone(self) -> AbstractContextManager[None]:
        return locked(clusters() / f".{self.name}.lock", waiting_for=f"cluster {self.name}")
