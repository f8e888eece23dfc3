"""The program that runs kind's nodes as containers: Docker, or podman, which answers alike."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import podman
from testbed.binaries import binary
from testbed.choice import choice
from testbed.errors import ClusterBroken, ClusterUnavailable
from testbed.limits import raise_limits
from testbed.shell import output, succeeds

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEAST_MEMORY = 4
_LEAST_DISK = 10
"""GiB: four nodes take 2 of memory, and 1.2 GB of PyTorch on each of three nodes 8 of disk."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Commands of `program`, which is `docker` or `podman`."""

    program: str
    network: str
    """Of the cluster; not kind's own one, which others may use."""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What kind and the program itself must find in theirs."""
        variable = f"KIND_EXPERIMENTAL_{self.program.upper()}_NETWORK"
        return {**self.settings, variable: self.network}

    def run(self, *arguments: str | Path, text: str = "", timeout: float = 60.0) -> str:
        """Run a command of the program; return what it printed."""
        return self._output(self.program, *arguments, text=text, timeout=timeout)

    def succeeds(self, *arguments: str | Path) -> bool:
        """Whether a command of the program ends with 0."""
        return succeeds(self.program, *arguments, environment=self.environment)

    def kind(self, *arguments: str | Path, text: str = "", timeout: float = 60.0) -> str:
        """Run kind on it; return what it printed."""
        return self._output(_kind(), *arguments, text=text, timeout=timeout)

    def _output(self, *command: str | Path, text: str, timeout: float) -> str:
        # podman has no daemon: what watches over a container descends from this command.
        environment = self.environment
        return output(*command, text=text, timeout=timeout, environment=environment, locks=False)

    def address(self, container: str) -> str:
        """Of a container, in the cluster's network."""
        return self._in_network(container, "IPAddress")

    def gateway(self, container: str) -> str:
        """This machine as the containers see it."""
        return self._in_network(container, "Gateway")

    def _in_network(self, container: str, what: str) -> str:
        found = json.loads(self.run("inspect", container))[0]["NetworkSettings"]["Networks"]
        value = str(found.get(self.network, {}).get(what) or "")
        if not value:
            raise ClusterBroken(f"{container} has no {what} in the network {self.network}")
        return value

    def prepare(self) -> list[str]:
        """See to all that a new cluster needs; return options of `kind create cluster`.

        Raises ClusterUnavailable where something is missing.
        """
        if self.program == "podman":
            podman.prepare()
            raise_limits()
        _kind()
        self._check_room()
        return ["--image", podman.loaded_node_image()] if self.program == "podman" else []

    def forget_images(self) -> list[str]:
        """Remove our images; return their names. ClusterBroken where a container uses one."""
        names = self._images()
        if names:
            self.run("rmi", *names, timeout=300)
        return names

    def _images(self) -> list[str]:
        shown = (
            "--format",
            "{{.Repository}}:{{.Tag}}",
            "--filter",
            "reference=localhost/trainrun/*",
        )
        return sorted(set(self.run("images", *shown).split()))

    def tidy(self) -> None:
        """Take back what the program leaves on this machine when its last container is gone."""
        if self.program == "podman":
            podman.remove_chains()

    def _check_room(self) -> None:
        try:
            found = json.loads(self.run("info", "--format", "{{json .}}"))
        except ClusterBroken as error:
            raise ClusterUnavailable(f"{self.program} cannot run here: {error}") from error
        if self.program == "podman":
            memory, folder = found["host"]["memTotal"], found["store"]["graphRoot"]
        else:
            memory, folder = found["MemTotal"], found["DockerRootDir"]
        check_room(memory, folder, self.program)


def check_room(memory: int, folder: str, program: str) -> None:
    """Raise ClusterUnavailable where `memory` (bytes) or the disk of `folder` is too small."""
    if memory < _LEAST_MEMORY << 30:
        raise ClusterUnavailable(
            f"{program} has {memory / (1 << 30):.1f} GiB of memory, and a cluster of kind needs "
            f"{_LEAST_MEMORY}. Give it more, or use another machine."
        )
    # Docker may keep its images on a machine of its own, whose disk cannot be seen from here.
    if Path(folder).is_dir() and (free := shutil.disk_usage(folder).free) < _LEAST_DISK << 30:
        raise ClusterUnavailable(
            f"{free / (1 << 30):.1f} GiB are free below {folder}, and a cluster of kind needs "
            f"{_LEAST_DISK}. Make room, for example with `{program} system prune`."
        )


def engine(network: str) -> Engine:
    """The one of this machine."""
    if choice() == "docker":
        return Engine("docker", network)
    return Engine("podman", network, podman.settings())


def _kind() -> Path:
    """Ours where Go can build it, so that it fits; else the one in PATH."""
    try:
        return binary("kind")
    except ClusterUnavailable:
        if found := shutil.which("kind"):
            return Path(found)
        raise ClusterUnavailable(
            "the cluster would come from kind, which was not found and is built with Go, which was "
            "not found either. Install Go 1.26 or newer, or kind 0.33 (https://kind.sigs.k8s.io)."
        ) from None
