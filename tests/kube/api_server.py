"""A real API server with etcd, and nothing else: no controllers, no nodes, no kubelets.

Both are children that the kernel kills when the test runner dies, however it dies. Users are known
by static tokens, so a test can have one with few rights.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from testbed.binaries import binary
from testbed.errors import ClusterUnavailable
from tests.support.kubeconfigs import written_kubeconfig
from trainrun_operator.cluster.ca import issue, new_ca

ADMIN_TOKEN = "admin-token"
POWERLESS_TOKEN = "powerless-token"
"""Of a user who may do nothing but ask who they are."""


@dataclass(kw_only=True)
class ApiServer:
    """`kill` and `start` may be repeated: port and data stay."""

    directory: Path
    port: int = field(default_factory=lambda: _free_ports(1)[0])
    etcd: subprocess.Popen[bytes] | None = None
    process: subprocess.Popen[bytes] | None = None
    etcd_port: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    def prepare(self) -> None:
        """Certificates, keys and users."""
        now = datetime.now(UTC)
        pair = new_ca(common_name="test cluster", now=now)
        serving = issue(pair, dns_names=["localhost"], ips=["127.0.0.1"], now=now)
        self.ca.write_bytes(pair.certificate)
        (self.directory / "serving.crt").write_bytes(serving.certificate)
        (self.directory / "serving.key").write_bytes(serving.key)
        key = ec.generate_private_key(ec.SECP256R1())
        (self.directory / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        (self.directory / "sa.pub").write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        (self.directory / "tokens.csv").write_text(
            f'{ADMIN_TOKEN},admin,1,"system:masters"\n{POWERLESS_TOKEN},nobody,2,""\n'
        )

    def start_etcd(self) -> None:
        self.etcd_port, peer = _free_ports(2)
        client_url, peer_url = (f"http://127.0.0.1:{port}" for port in (self.etcd_port, peer))
        options = {
            "data-dir": self.directory / "etcd",
            # Benchmarks fill the usual two gigabytes with revisions of large objects.
            "quota-backend-bytes": 8 * 1024**3,
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"default={peer_url}",
            "unsafe-no-fsync": "true",
            "logger": "zap",
            "log-level": "error",
        }
        self.etcd = self._spawn("etcd", [_etcd(), *_flags(options)])

    def start(self, timeout: float = 60.0) -> None:
        """Return once it is ready. Only in the main thread: with its thread it would be killed."""
        options = {
            "etcd-servers": f"http://127.0.0.1:{self.etcd_port}",
            "secure-port": self.port,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "tls-cert-file": self.directory / "serving.crt",
            "tls-private-key-file": self.directory / "serving.key",
            "token-auth-file": self.directory / "tokens.csv",
            "authorization-mode": "RBAC",
            "allow-privileged": "true",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self.directory / "sa.pub",
            "service-account-signing-key-file": self.directory / "sa.key",
            "service-cluster-ip-range": "10.0.0.0/24",
            # There is no controller that would make the service accounts it asks for.
            "disable-admission-plugins": "ServiceAccount",
        }
        self.process = self._spawn("apiserver", [kube_binary("kube-apiserver"), *_flags(options)])
        deadline = time.monotonic() + timeout
        while not self._is_ready():
            log = (self.directory / "apiserver.log").read_text(errors="replace")[-3000:]
            assert self.process.poll() is None, f"kube-apiserver ended: {log}"
            assert time.monotonic() < deadline, f"kube-apiserver was not ready in time: {log}"
            time.sleep(0.1)

    def kill(self) -> None:
        """As by a power loss. (SIGTERM would drain, and keep the port for long.)"""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """It hangs: connections stay open, nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def forget_history(self) -> None:
        """Restart with nothing but the present: older resourceVersions are gone."""
        self.kill()
        revision = self._ask_etcd("maintenance/status", {})["header"]["revision"]
        self._ask_etcd("kv/compaction", {"revision": revision})
        self.start()

    def close(self) -> None:
        self.kill()
        if self.etcd is not None:
            self.etcd.kill()
            self.etcd.wait()

    def kubeconfig(self, path: Path, token: str = ADMIN_TOKEN) -> Path:
        """Write a kubeconfig for the user with this token."""
        return written_kubeconfig(path, self.url, token=token, ca=self.ca.read_bytes())

    def kubectl(self, *arguments: str) -> str:
        """What it prints."""
        config = self.kubeconfig(self.directory / f"kubectl-{secrets.token_hex(4)}")
        return subprocess.run(
            [kube_binary("kubectl"), "--kubeconfig", config, *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env={"HOME": str(self.directory), "PATH": os.environ["PATH"]},
        ).stdout

    def _ask_etcd(self, path: str, body: dict[str, str]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.etcd_port}/v3/{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, data=json.dumps(body).encode(), timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _is_ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.ca))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
        )
        try:
            with opener.open(request, timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _spawn(self, name: str, command: list[str | Path]) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )


def kube_binary(name: str) -> Path:
    try:
        return binary(name)
    except ClusterUnavailable as error:
        pytest.skip(f"NO REAL API SERVER: {error}")


def _etcd() -> str:
    found = shutil.which("etcd")
    if found is None:
        pytest.skip("NO REAL API SERVER: etcd was not found; install the package etcd-server")
    return found


def _flags(options: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
