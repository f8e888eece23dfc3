"""etcd, API server, controller manager, scheduler and DNS, as processes of this machine."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.addresses import API_PORT
from testbed.binaries import binary
from testbed.errors import ClusterBroken

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.addresses import Addresses
    from testbed.processes import Processes

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
# One entry per answered request, without bodies: enough to compare rights with calls.
AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Metadata
"""
# Names of the cluster and nothing else. The second block stands apart, since `template` would
# answer before `kubernetes` does; it makes unknown names fail at once instead of timing out.
_COREFILE = """
cluster.local:53 in-addr.arpa:53 {{
  bind {host}
  errors
  ready {loopback}:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig} {context}
    pods insecure
    ttl 1
  }}
}}
.:53 {{
  bind {host}
  template IN ANY . {{
    rcode NXDOMAIN
  }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The control plane of a cluster; `state` holds its certificates, kubeconfigs and data."""

    name: str
    state: Path
    addresses: Addresses
    processes: Processes

    @property
    def audit_log(self) -> Path:
        return self.state / "audit.log"

    def start(self) -> None:
        """Start what does not run; return once the API server is ready."""
        if self.processes.pid("etcd") is None:
            self._start_etcd()
        self.start_api_server()
        for name, start in (
            ("kube-controller-manager", self._start_controller_manager),
            ("kube-scheduler", self._start_scheduler),
            ("coredns", self._start_dns),
        ):
            if self.processes.pid(name) is None:
                start()

    def start_api_server(self, timeout: float = 60.0) -> None:
        """Start the API server unless it runs; return once it is ready."""
        if self.processes.pid("kube-apiserver") is None:
            (self.state / "audit-policy.yaml").write_text(AUDIT_POLICY)
            self.processes.start("kube-apiserver", self._api_server_command())
        self.wait_for(
            "kube-apiserver", f"{self.addresses.api_url}/readyz?exclude=shutdown", timeout
        )

    def wait_for_dns(self, timeout: float = 30.0) -> None:
        """Return once names can be resolved."""
        self.wait_for("coredns", f"http://{self.addresses.loopback}:8181/ready", timeout)

    def wait_for(self, name: str, url: str, timeout: float) -> None:
        """Return once `url` answers 200; ClusterBroken with the log when it never does."""
        context = ssl.create_default_context(cafile=self.state / "certificates" / "ca.crt")
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        deadline = time.monotonic() + timeout
        while True:
            try:
                with opener.open(url, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                ended = self.processes.pid(name) is None
                if ended or time.monotonic() > deadline:
                    state = "ended" if ended else f"was not ready within {timeout:.0f} s"
                    raise ClusterBroken(f"{name} {state}: {self.processes.log_of(name)}") from None
            time.sleep(0.05)

    def _start_etcd(self) -> None:
        client, peer = (f"http://{self.addresses.loopback}:{port}" for port in (2379, 2380))
        options: dict[str, str | Path] = {
            "data-dir": self.state / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            # The data live as long as the cluster: no need to wait for the disk.
            "unsafe-no-fsync": "true",
            "logger": "zap",
            "log-level": "warn",
        }
        self.processes.start("etcd", _command("etcd", options))

    def _api_server_command(self) -> list[str | Path]:
        certificates = self.state / "certificates"
        options: dict[str, str | Path] = {
            "etcd-servers": f"http://{self.addresses.loopback}:2379",
            "secure-port": str(API_PORT),
            "bind-address": self.addresses.host,
            "advertise-address": self.addresses.host,
            "cert-dir": self.state / "apiserver",
            "tls-cert-file": certificates / "apiserver.crt",
            "tls-private-key-file": certificates / "apiserver.key",
            "client-ca-file": certificates / "ca.crt",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": certificates / "sa.pub",
            "service-account-signing-key-file": certificates / "sa.key",
            "service-cluster-ip-range": self.addresses.services,
            "allow-privileged": "true",
            "kubelet-client-certificate": certificates / "admin.crt",
            "kubelet-client-key": certificates / "admin.key",
            # Node names do not resolve here: logs and exec go by address.
            "kubelet-preferred-address-types": "InternalIP",
            "audit-policy-file": self.state / "audit-policy.yaml",
            "audit-log-path": self.audit_log,
        }
        return _command(binary("kube-apiserver"), options)

    def _start_controller_manager(self) -> None:
        certificates = self.state / "certificates"
        options: dict[str, str | Path] = {
            **self._as_client("controller-manager"),
            "secure-port": "10257",
            "root-ca-file": certificates / "ca.crt",
            "service-account-private-key-file": certificates / "sa.key",
            "use-service-account-credentials": "true",
            "cluster-signing-cert-file": certificates / "ca.crt",
            "cluster-signing-key-file": certificates / "ca.key",
            # Kubernetes' 40 s would make every test of a lost node wait that long.
            "node-monitor-period": "500ms",
            "node-monitor-grace-period": "5s",
        }
        command = _command(binary("kube-controller-manager"), options)
        self.processes.start("kube-controller-manager", command)

    def _start_scheduler(self) -> None:
        options = {**self._as_client("scheduler"), "secure-port": "10259"}
        self.processes.start("kube-scheduler", _command(binary("kube-scheduler"), options))

    def _as_client(self, user: str) -> dict[str, str | Path]:
        kubeconfig = self.state / "kubeconfigs" / user
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": self.addresses.loopback,
            "cert-dir": self.state / user,
            "leader-elect": "false",
        }

    def _start_dns(self) -> None:
        corefile = self.state / "Corefile"
        corefile.write_text(
            _COREFILE.format(
                host=self.addresses.host,
                loopback=self.addresses.loopback,
                kubeconfig=self.state / "kubeconfig",
                context=self.name,
            )
        )
        self.processes.start("coredns", [binary("coredns"), "-conf", corefile])


def _command(program: str | Path, options: dict[str, str | Path]) -> list[str | Path]:
    return [program, *(f"--{name}={value}" for name, value in options.items())]
