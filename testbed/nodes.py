"""A node of the embedded cluster: its own network, mount, PID, UTS and IPC namespaces.

Killing the first process of its PID namespace is the power loss: kubelet, containerd, shims and
containers end in the same instant, and the node's mounts go with them.
"""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import cgroups, golden, network
from testbed.binaries import binary
from testbed.errors import ClusterBroken
from testbed.node_files import CONTAINERD_ROOT, write_node_files
from testbed.processes import kill_and_wait
from testbed.shell import output

if TYPE_CHECKING:
    from testbed.addresses import Addresses, NodeAddresses
    from testbed.processes import Processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node; `name` is also its name in Kubernetes."""

    state: Path
    """Of the cluster."""
    addresses: Addresses
    place: NodeAddresses
    processes: Processes

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def ip(self) -> str:
        return self.place.ip

    @property
    def folder(self) -> Path:
        return self.state / "nodes" / self.name

    def prepare(self, images: golden.Golden) -> None:
        """Make everything but the processes: files, images, cgroups, network."""
        write_node_files(self.folder, self.state, self.addresses, self.place)
        images.clone(self.folder / CONTAINERD_ROOT)
        cgroups.make(self.addresses.cgroup, self.name)
        network.add_node(self.addresses, self.place)

    def power_on(self) -> None:
        """Plug in the cable and start the node; nothing when it runs."""
        network.set_cable(self.place, plugged=True)
        if self.is_on():
            return
        namespace = f"--net=/run/netns/{self.place.namespace}"
        own = ["--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["unshare", *own, "--propagation", "private", "bash", f"{self.folder}/init.sh"]
        self.processes.start(f"node-{self.name}", command, namespaces=[namespace])
        deadline = time.monotonic() + 10
        while not self.is_on():
            if time.monotonic() > deadline:
                log = self.processes.log_of(f"node-{self.name}")
                raise ClusterBroken(f"node {self.name} did not start: {log}")
            time.sleep(0.005)

    def power_off(self) -> None:
        """Power loss: the cable first, so that nobody is told, then everything at once."""
        network.set_cable(self.place, plugged=False)
        self.crash()

    def crash(self) -> None:
        """Everything on the node ends, while its network still closes the connections."""
        first = self._first_process()
        if first is not None:
            kill_and_wait(first)

    def is_on(self) -> bool:
        """Whether the node has power."""
        return self._first_process() is not None

    def plug(self) -> None:
        """Put the network cable in."""
        network.set_cable(self.place, plugged=True)

    def unplug(self) -> None:
        """Pull the network cable."""
        network.set_cable(self.place, plugged=False)

    def run(self, *command: str | Path, text: str = "", timeout: float = 60.0) -> str:
        """Run a command on the node, in all its namespaces; return what it printed."""
        return output(*self._inside(), *command, text=text, timeout=timeout)

    def start_in_background(self, *command: str | Path) -> subprocess.Popen[str]:
        """Start a command on the node that hears the caller, who waits for its end."""
        return subprocess.Popen(
            [*self._inside(), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_kubelet(self) -> None:
        """Start the kubelet of a running node, after its end."""
        log = self.state / "logs" / f"{self.name}-kubelet.log"
        script = f"setsid bash {self.folder}/kubelet.sh < /dev/null >> {log} 2>&1 &"
        self.run("bash", "-c", script)

    def signal_kubelet(self, which: signal.Signals) -> None:
        """Send a signal to the kubelet alone; containers run on."""
        self.run("bash", "-c", f"kill -{int(which)} $(cat /run/kubelet.pid)")

    def load(self, archive: Path) -> None:
        """Import an image archive into the running node."""
        first = self._running()
        self._ctr(first, "images", "import", "--snapshotter", "overlayfs", str(archive))

    def images(self) -> list[str]:
        """The names of the images on the running node."""
        return self._ctr(self._running(), "images", "list", "--quiet").split()

    def log_of(self, component: str, lines: int = 15) -> str:
        """The end of the log of `kubelet`, `containerd` or `kube-proxy`."""
        return self.processes.log_of(f"{self.name}-{component}", lines)

    def _ctr(self, first: int, *arguments: str) -> str:
        socket = f"/proc/{first}/root/run/containerd.sock"
        command = ("--address", socket, "--namespace", golden.NAMESPACE, *arguments)
        return output(binary("ctr"), *command, timeout=300)

    def _inside(self) -> list[str]:
        return ["nsenter", f"--target={self._running()}", "--all", "--"]

    def _running(self) -> int:
        first = self._first_process()
        if first is None:
            raise ClusterBroken(f"node {self.name} has no power")
        return first

    def _first_process(self) -> int | None:
        """The node's PID 1 as this machine sees it: the child of the `unshare` that was started."""
        outer = self.processes.pid(f"node-{self.name}")
        if outer is None:
            return None
        children = Path(f"/proc/{outer}/task/{outer}/children")
        try:
            words = children.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return int(words[0]) if words else None
