"""The same cluster by kind: nodes are containers of Docker, or of podman."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.api import Api, wait_until
from testbed.archives import identity
from testbed.armed import armed
from testbed.begun import end_what_was_begun
from testbed.control_plane import AUDIT_POLICY
from testbed.engine import engine
from testbed.errors import ClusterBroken, ClusterUnavailable
from testbed.images import base_image
from testbed.kind_nodes import KindNode
from testbed.places import PACKAGE, progress
from testbed.readiness import wait_until_usable
from testbed.s3 import S3
from testbed.server_container import S3_PORT, ServerContainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from testbed.engine import Engine

_WORKERS = 3
_API_SERVER_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
_MANIFEST_ASIDE = "/etc/kubernetes/kube-apiserver.yaml"
# The kubelet would start it again.
_STOP_API_SERVER = f"mv {_API_SERVER_MANIFEST} {_MANIFEST_ASIDE} && pkill -KILL -x kube-apiserver"
_LOADED = "loaded"
_REMOVAL_SECONDS = 900
"""Of the nodes' disks, on which images are gigabytes in small files, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The cluster that kind runs under the name `trainrun-NAME`, in a network of that name."""

    name: str
    state: Path

    @property
    def engine(self) -> Engine:
        return engine(network=self._name)

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.state / "control-plane" / "audit.log"

    @property
    def shared(self) -> Path:
        return self.state / "shared"

    @property
    def nodes(self) -> tuple[KindNode, ...]:
        self._refuse_missing()
        return tuple(KindNode(name=name, engine=self.engine) for name in self._node_names)

    @property
    def _node_names(self) -> list[str]:
        return [f"{self._name}-worker{number}" for number in ("", *range(2, _WORKERS + 1))]

    @property
    def _control_plane_name(self) -> str:
        return f"{self._name}-control-plane"

    @property
    def s3(self) -> S3:
        server = self._server
        self._refuse_missing()
        return S3(
            locate=lambda: f"http://{server.address}:{S3_PORT}",
            access_key="tester",
            secret_key=self._secret.read_text(),
            folder=server.folder,
            server=server,
        )

    @property
    def _server(self) -> ServerContainer:
        name = f"{self._name}-s3"
        return ServerContainer(name=name, engine=self.engine, folder=self.state / "s3")

    @property
    def _secret(self) -> Path:
        return self.state / "secret"

    @property
    def _name(self) -> str:
        return f"trainrun-{self.name}"

    def is_running(self) -> bool:
        return self.kubeconfig.is_file() and self._exists()

    def up(self, images: Sequence[Path]) -> None:
        """Start it, or what of it does not run; return once it is usable."""
        running = self.is_running()
        options = () if running else self.engine.prepare()
        archives = [base_image("python"), *images]
        if not running:
            self._refuse_others()
            # What a start that was killed has left.
            self.down()
            self._create(options)
        for node in self.nodes:
            node.power_on()
        for archive in archives:
            if identity(archive) not in self._loaded():
                self.load(archive)
        self.s3.start()
        names = [node.name for node in self.nodes]
        wait_until_usable(Api(self.kubeconfig), names, timeout=180, log=lambda: "")

    def load(self, archive: Path) -> None:
        """Import an image archive into all workers that run."""
        running = ",".join(node.name for node in self.nodes if node.is_on())
        progress(f"loading {archive.name} onto {running}")
        command = ("load", "image-archive", archive, "--name", self._name, "--nodes", running)
        self.engine.kind(*command, timeout=900)
        loaded = [*self._loaded(), identity(archive)]
        (self.state / _LOADED).write_text("\n".join(loaded))

    def down(self) -> None:
        """End and remove everything; nothing when there is nothing of ours."""
        if not self.state.exists():
            return
        end_what_was_begun(self.state, self._name, self.engine.program)
        self._server.remove()
        # podman would first ask the systemd of each to end, and wait.
        self.engine.succeeds("kill", self._control_plane_name, *self._node_names)
        self.engine.kind("delete", "cluster", "--name", self._name, timeout=_REMOVAL_SECONDS)
        # Once the containers are gone, kind no longer knows of the nodes' disks.
        if volumes := self._volumes():
            self.engine.run("volume", "rm", "--force", *volumes, timeout=_REMOVAL_SECONDS)
        if self._network():
            self.engine.run("network", "rm", self._name)
        self.engine.tidy()
        shutil.rmtree(self.state)

    @property
    def host_address(self) -> str:
        """This machine as pods see it: the gateway of the cluster's network."""
        return self.engine.gateway(self._control_plane_name)

    def stop_api_server(self) -> None:
        self._control_plane.run("bash", "-c", _STOP_API_SERVER)

    @contextlib.contextmanager
    def about_to_stop_api_server(self) -> Iterator[Callable[[], None]]:
        with armed(self._control_plane, "bash", "-c", _STOP_API_SERVER) as stop:
            yield stop

    def start_api_server(self) -> None:
        self._control_plane.run("mv", _MANIFEST_ASIDE, _API_SERVER_MANIFEST)
        ask = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw=/readyz")

        def missing() -> str:
            try:
                self._control_plane.run(*ask)
            except ClusterBroken as error:
                return str(error)
            return ""

        wait_until(missing, timeout=120, log=lambda: "")

    @property
    def _control_plane(self) -> KindNode:
        return KindNode(name=self._control_plane_name, engine=self.engine)

    def left_over(self) -> list[str]:
        """What of the cluster is still on this machine, in words; empty after `down`."""
        found = self.engine.run("ps", "--all", "--format", "{{.Names}}").split()
        mine = [f"container {name}" for name in found if name.startswith(f"{self._name}-")]
        mine += [f"volume {name}" for name in self._volumes()]
        mine += [f"network {self._name}"] if self._network() else []
        return mine + ([str(self.state)] if self.state.exists() else [])

    def _exists(self) -> bool:
        return self._name in self.engine.kind("get", "clusters").split()

    def _volumes(self) -> list[str]:
        """The disks of our nodes, where kind has labelled them: on podman."""
        found = [
            self.engine.run("volume", "ls", "--quiet", "--filter", f"label={name}").split()
            for name in (self._control_plane_name, *self._node_names)
        ]
        return [volume for volumes in found for volume in volumes]

    def _network(self) -> bool:
        return self.engine.succeeds("network", "inspect", self._name)

    def _loaded(self) -> list[str]:
        record = self.state / _LOADED
        return record.read_text().split() if record.is_file() else []

    def _refuse_missing(self) -> None:
        if not self._secret.is_file():
            raise ClusterBroken(
                f"there is no cluster {self.name!r}; `python -m testbed up` starts one"
            )

    def _refuse_others(self) -> None:
        """Leave alone what somebody else has made under our name."""
        if self._exists() and not self.state.exists():
            raise ClusterUnavailable(
                f"there is a cluster of kind called {self._name}, not made here. Use another "
                f"name (NAME=...), or remove it: kind delete cluster --name {self._name}"
            )

    def _create(self, options: Sequence[str]) -> None:
        folder = self.state / "control-plane"
        for each in (folder, self.shared):
            each.mkdir(parents=True, exist_ok=True)
        self._secret.write_text(secrets.token_hex(16))
        (folder / "audit-policy.yaml").write_text(AUDIT_POLICY)
        template = string.Template((PACKAGE / "kind.yaml").read_text())
        config = template.substitute(STATE=self.state, SHARED=self.shared)
        partial = self.state / ".kubeconfig"
        command = ("create", "cluster", "--name", self._name, "--kubeconfig", partial)
        more = ("--wait", "180s", *options, "--config", "-")
        self.engine.kind(*command, *more, text=config, timeout=900)
        partial.replace(self.kubeconfig)
