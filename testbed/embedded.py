"""The embedded cluster: control plane and three nodes as processes of this machine, no Docker."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed import cgroups, docker, golden, network, packages
from testbed.addresses import CLUSTERS, Addresses, is_free
from testbed.api import Api, ApiError
from testbed.archives import identity
from testbed.certificates import identities, make_certificates
from testbed.control_plane import ControlPlane
from testbed.errors import ClusterBroken, ClusterUnavailable
from testbed.images import base_image, pause_image
from testbed.kubeconfigs import write_kubeconfig
from testbed.limits import raise_limits
from testbed.nodes import Node
from testbed.places import clusters, locked
from testbed.processes import Processes
from testbed.readiness import wait_until_usable
from testbed.s3 import S3, ServerProcess
from testbed.shell import output, succeeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_RECORD = "cluster.json"
_PROXY_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kube-proxy"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:node-proxier",
    },
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy"}
    ],
}


def check_possible() -> None:
    """Raise ClusterUnavailable where no embedded cluster can run."""
    advice = "Start Docker to get the cluster from kind, or use a Debian machine as root."
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise ClusterUnavailable(f"{docker.why_not()}, and we are not root on Linux. {advice}")
    packages.install()
    probe = (
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "ip",
        "link",
        "add",
        "type",
        "bridge",
    )
    if not succeeds(*probe):
        raise ClusterUnavailable(f"root may not make namespaces and bridges here. {advice}")
    if not cgroups.hierarchies():
        raise ClusterUnavailable(f"no cgroups are mounted. {advice}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The embedded cluster whose state lies in `state`, running or not."""

    name: str
    state: Path

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def shared(self) -> Path:
        # Nodes share the disk of this machine.
        return self.state / "shared"

    @property
    def audit_log(self) -> Path:
        return self.control_plane.audit_log

    @property
    def processes(self) -> Processes:
        return Processes(state=self.state)

    @property
    def addresses(self) -> Addresses:
        return Addresses(index=int(str(self._record()["index"])))

    @property
    def control_plane(self) -> ControlPlane:
        return ControlPlane(
            name=self.name, state=self.state, addresses=self.addresses, processes=self.processes
        )

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            Node(state=self.state, addresses=self.addresses, place=place, processes=self.processes)
            for place in self.addresses.all_nodes()
        )

    @property
    def s3(self) -> S3:
        folder = self.state / "s3"
        url = self.addresses.s3_url
        return S3(
            locate=lambda: url,
            access_key="tester",
            secret_key=str(self._record()["secret"]),
            folder=folder,
            server=ServerProcess(
                processes=self.processes, address=url.removeprefix("http://"), folder=folder
            ),
        )

    def is_running(self) -> bool:
        return (self.state / _RECORD).exists() and self.processes.holder() is not None

    def up(self, images: Sequence[Path]) -> None:
        """Start it, or what of it does not run; return once it is usable."""
        check_possible()
        raise_limits()
        archives = [pause_image(), base_image("python"), *images]
        if self.is_running() and "images" in self._record():
            self._repair(archives)
        else:
            self.down()
            self._start(archives)
        names = [node.name for node in self.nodes]
        wait_until_usable(Api(self.kubeconfig), names, timeout=120, log=self._why)
        self.control_plane.wait_for_dns()

    def load(self, archive: Path) -> None:
        """Import an image archive into all nodes that run."""
        running = [node for node in self.nodes if node.is_on()]
        with ThreadPoolExecutor(len(running) or 1) as pool:
            list(pool.map(lambda node: node.load(archive), running))
        self._remember(images=[*self._loaded(), identity(archive)])

    def down(self) -> None:
        """End and remove everything; nothing when there is nothing."""
        self.processes.kill_all()
        if (self.state / _RECORD).exists():
            network.remove(self.addresses)
            cgroups.remove(self.addresses.cgroup)
        if self.state.exists():
            output("rm", "-rf", "--one-file-system", self.state, timeout=300)

    @property
    def host_address(self) -> str:
        """This machine as pods see it."""
        return self.addresses.host

    def stop_api_server(self) -> None:
        self.processes.kill("kube-apiserver")

    @contextlib.contextmanager
    def about_to_stop_api_server(self) -> Iterator[Callable[[], None]]:
        """Yield what stops it within milliseconds."""
        yield self.stop_api_server

    def start_api_server(self) -> None:
        self.control_plane.start_api_server()

    def left_over(self) -> list[str]:
        """What of the cluster is still on this machine, in words; empty after `down`."""
        found = [f"process {pid}" for pid in [self.processes.holder()] if pid]
        if (self.state / _RECORD).exists():
            found += network.left_over(self.addresses)
            found += map(str, cgroups.left_over(self.addresses.cgroup))
        return found + ([str(self.state)] if self.state.exists() else [])

    def _start(self, archives: Sequence[Path]) -> None:
        store = golden.prepared(archives)
        self._claim_index()
        self.processes.start_holder()
        with ThreadPoolExecutor(4) as pool:
            network.add_bridge(self.addresses)
            self.s3.start()
            ready = [pool.submit(node.prepare, store) for node in self.nodes]
            certificates = self.state / "certificates"
            make_certificates(certificates, self.addresses)
            self._write_kubeconfigs(certificates)
            self.control_plane.start()
            self._allow_kube_proxy()
            for prepared in ready:
                prepared.result()
            list(pool.map(Node.power_on, self.nodes))
        self._remember(images=[identity(archive) for archive in archives])

    def _repair(self, archives: Sequence[Path]) -> None:
        self.s3.start()
        self.control_plane.start()
        for node in self.nodes:
            node.power_on()
        loaded = self._loaded()
        for archive in archives:
            if identity(archive) not in loaded:
                wait_until_usable(
                    Api(self.kubeconfig), [n.name for n in self.nodes], timeout=60, log=self._why
                )
                self.load(archive)

    def _claim_index(self) -> None:
        """Take the first free set of addresses, and write down whose it is."""
        with locked(clusters() / ".index.lock", waiting_for="another cluster's start", timeout=60):
            taken = {
                json.loads(record.read_text())["index"]
                for record in clusters().glob(f"*/{_RECORD}")
            }
            free = (i for i in range(CLUSTERS) if i not in taken and is_free(i))
            index = next(free, None)
            if index is None:
                raise ClusterBroken(f"all {CLUSTERS} address ranges for clusters are in use")
            self.state.mkdir(parents=True, exist_ok=True)
            self._remember(index=index, secret=secrets.token_hex(16))

    def _record(self) -> dict[str, object]:
        try:
            record: dict[str, object] = json.loads((self.state / _RECORD).read_text())
        except FileNotFoundError:
            raise ClusterBroken(
                f"there is no cluster {self.name!r}; `python -m testbed up` starts one"
            ) from None
        return record

    def _loaded(self) -> list[str]:
        loaded = self._record()["images"]
        assert isinstance(loaded, list)
        return loaded

    def _remember(self, **facts: object) -> None:
        path = self.state / _RECORD
        record = self._record() if path.exists() else {}
        partial = path.with_name(f".{_RECORD}")
        partial.write_text(json.dumps({**record, **facts}))
        partial.replace(path)

    def _write_kubeconfigs(self, certificates: Path) -> None:
        folder = self.state / "kubeconfigs"
        folder.mkdir(exist_ok=True)
        url = self.addresses.api_url
        for user in identities(self.addresses):
            path = self.kubeconfig if user == "admin" else folder / user
            write_kubeconfig(path, certificates=certificates, user=user, server=url, name=self.name)

    def _allow_kube_proxy(self) -> None:
        path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        try:
            Api(self.kubeconfig).post(path, _PROXY_BINDING)
        except ApiError as error:
            if error.status != 409:
                raise

    def _why(self) -> str:
        """The ends of the logs of everything, for somebody who has to find out."""
        parts = [f"-- {node.name} kubelet\n{node.log_of('kubelet', 5)}" for node in self.nodes]
        parts += [
            f"-- {node.name}\n{self.processes.log_of(f'node-{node.name}')}" for node in self.nodes
        ]
        return f"logs are in {self.state / 'logs'}\n" + "\n".join(parts)
