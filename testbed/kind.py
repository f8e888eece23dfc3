"""The same cluster by kind, on machines with Docker: nodes are containers."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import string
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.api import Api, wait_until
from testbed.binaries import binary
from testbed.control_plane import AUDIT_POLICY
from testbed.errors import ClusterBroken, ClusterUnavailable
from testbed.images import base_image
from testbed.places import PACKAGE
from testbed.readiness import wait_until_usable
from testbed.s3 import S3
from testbed.shell import output, succeeds
from testbed.versitygw import arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

_NETWORK = "kind"
_WORKERS = 3
_S3_PORT = 9000
_API_SERVER_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
_UNPLUGGED = "inet trainrun_unplugged"
_DROP_ALL = f"""
table {_UNPLUGGED} {{
  chain received {{
    type filter hook prerouting priority raw;
    iifname "eth0" drop
  }}
  chain sent {{
    type filter hook postrouting priority srcnat + 1;
    oifname "eth0" drop
  }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindNode:
    """A worker of kind; `name` is its name in Kubernetes and in Docker."""

    name: str

    @property
    def ip(self) -> str:
        return _address(self.name)

    def is_on(self) -> bool:
        return output("docker", "inspect", "-f", "{{.State.Running}}", self.name).strip() == "true"

    def power_on(self) -> None:
        # A container that starts has a fresh network: nothing is unplugged any more.
        output("docker", "start", self.name)

    def power_off(self) -> None:
        if self.is_on():
            self.unplug()
            self.crash()

    def crash(self) -> None:
        output("docker", "kill", self.name)

    def plug(self) -> None:
        if self.is_on():
            self.run("nft", "-f", "-", text=f"table {_UNPLUGGED}\ndelete table {_UNPLUGGED}\n")

    def unplug(self) -> None:
        # Docker would give another address to a container that is connected anew, and a link that
        # was down has lost its routes.
        self.plug()
        self.run("nft", "-f", "-", text=_DROP_ALL)

    def run(self, *command: str | Path, text: str = "", timeout: float = 60.0) -> str:
        inside = ("docker", "exec", "--interactive", "--privileged", self.name)
        return output(*inside, *command, text=text, timeout=timeout)

    def start_in_background(self, *command: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["docker", "exec", "--privileged", self.name, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_kubelet(self) -> None:
        self.run("systemctl", "start", "kubelet")

    def signal_kubelet(self, which: signal.Signals) -> None:
        # systemd would start a killed kubelet again.
        if which == signal.SIGKILL:
            self.run("systemctl", "kill", "--signal=SIGKILL", "kubelet")
            self.run("systemctl", "stop", "kubelet")
        else:
            self.run("systemctl", "kill", f"--signal={which.name}", "kubelet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContainer:
    """versitygw as a container in the network of kind."""

    name: str
    folder: Path

    def start(self, *, access_key: str, secret_key: str) -> None:
        program = binary("versitygw")
        mounts = ("--volume", f"{program}:/versitygw:ro", "--volume", f"{self.folder}:/s3")
        keys = ("--env", f"ROOT_ACCESS_KEY={access_key}", "--env", f"ROOT_SECRET_KEY={secret_key}")
        options = ("--detach", "--network", _NETWORK, "--name", self.name, *mounts, *keys)
        user = ("--user", f"{os.getuid()}:{os.getgid()}")
        command = ("/versitygw", *arguments(f"0.0.0.0:{_S3_PORT}", Path("/s3")))
        image = "debian:trixie-slim"
        output("docker", "run", *options, *user, image, *command, timeout=300)

    def stop(self) -> None:
        succeeds("docker", "rm", "--force", self.name)

    def freeze(self) -> None:
        output("docker", "pause", self.name)

    def thaw(self) -> None:
        output("docker", "unpause", self.name)

    def is_running(self) -> bool:
        return succeeds("docker", "inspect", self.name)

    def log(self) -> str:
        return output("docker", "logs", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The cluster that kind runs under the name `trainrun-NAME`."""

    name: str
    state: Path

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.state / "audit.log"

    @property
    def nodes(self) -> tuple[KindNode, ...]:
        names = [f"{self._name}-worker{number}" for number in ("", *range(2, _WORKERS + 1))]
        return tuple(KindNode(name=name) for name in names)

    @property
    def s3(self) -> S3:
        container = f"{self._name}-s3"
        folder = self.state / "s3"
        return S3(
            locate=lambda: f"http://{_address(container)}:{_S3_PORT}",
            access_key="tester",
            secret_key=(self.state / "secret").read_text(),
            folder=folder,
            server=ServerContainer(name=container, folder=folder),
        )

    @property
    def _name(self) -> str:
        return f"trainrun-{self.name}"

    def is_running(self) -> bool:
        return self._name in output(_kind(), "get", "clusters").split()

    def up(self, images: Sequence[Path]) -> None:
        archives = [base_image("python"), *images]
        if not self.is_running():
            self._create()
        for archive in archives:
            self.load(archive)
        self.s3.start()
        names = [node.name for node in self.nodes]
        wait_until_usable(Api(self.kubeconfig), names, timeout=180, log=lambda: "")

    def load(self, archive: Path) -> None:
        command = (_kind(), "load", "image-archive", archive, "--name", self._name)
        output(*command, timeout=600)

    def down(self) -> None:
        if self.state.exists():
            self.s3.stop()
        output(_kind(), "delete", "cluster", "--name", self._name, timeout=300)
        shutil.rmtree(self.state, ignore_errors=True)

    @property
    def host_address(self) -> str:
        """This machine as pods see it: the gateway of the network of kind."""
        networks = json.loads(output("docker", "network", "inspect", _NETWORK))[0]["IPAM"]["Config"]
        gateways = [each["Gateway"] for each in networks if ":" not in each.get("Gateway", ":")]
        return str(gateways[0])

    def stop_api_server(self) -> None:
        self._control_plane("mv", _API_SERVER_MANIFEST, "/etc/kubernetes/")
        self._control_plane("pkill", "-KILL", "-x", "kube-apiserver")

    def start_api_server(self) -> None:
        self._control_plane("mv", "/etc/kubernetes/kube-apiserver.yaml", _API_SERVER_MANIFEST)
        api = Api(self.kubeconfig)

        def missing() -> str:
            return "" if api.get("/version") else "the API server does not know its version"

        wait_until(missing, timeout=60, log=lambda: "")

    def _control_plane(self, *command: str) -> None:
        output("docker", "exec", f"{self._name}-control-plane", *command)

    def left_over(self) -> list[str]:
        found = output("docker", "ps", "--all", "--format", "{{.Names}}").split()
        mine = [name for name in found if name.startswith(f"{self._name}-")]
        return mine + ([str(self.state)] if self.state.exists() else [])

    def _create(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "secret").write_text(secrets.token_hex(16))
        (self.state / "audit-policy.yaml").write_text(AUDIT_POLICY)
        template = string.Template((PACKAGE / "kind.yaml").read_text())
        config = template.substitute(STATE=self.state)
        options = ("--name", self._name, "--kubeconfig", self.kubeconfig, "--wait", "180s")
        output(_kind(), "create", "cluster", *options, "--config", "-", text=config, timeout=900)


def _kind() -> str:
    found = shutil.which("kind")
    if found is None:
        raise ClusterUnavailable(
            "Docker runs here, so the cluster would come from kind, which was not found. "
            "Install kind (https://kind.sigs.k8s.io)."
        )
    return found


def _address(container: str) -> str:
    networks = json.loads(output("docker", "inspect", container))[0]["NetworkSettings"]["Networks"]
    address: str = networks.get(_NETWORK, {}).get("IPAddress", "")
    if not address:
        raise ClusterBroken(f"{container} has no address in the network {_NETWORK}")
    return address
