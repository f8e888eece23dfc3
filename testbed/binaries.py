"""The server binaries: Go modules of this repository, built once into the cache.

A folder per set of sources, named by their digest: a changed go.mod builds anew, and two checkouts
with different versions do not get into each other's way.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.choice import choice
from testbed.errors import ClusterBroken, ClusterUnavailable
from testbed.places import PACKAGE, cache, locked, progress
from testbed.shell import output

KUBERNETES_VERSION = "v1.36.3"
SHIM = "containerd-shim-runc-v2"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_VERSION_PACKAGE = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.lstrip("v").split(".")
# Without these the API server calls itself v0.0.0, and charts with a kubeVersion refuse it.
_KUBERNETES_FLAGS = " ".join(
    f"-X {_VERSION_PACKAGE}.{name}={value}"
    for name, value in {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": _MAJOR,
        "gitMinor": _MINOR,
        "gitTreeState": "clean",
    }.items()
)
# Without these helm renders and lints for Kubernetes 1.20, which charts with a kubeVersion refuse.
_HELM_FLAGS = " ".join(
    f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{name}={value}"
    for package in ("chartutil", "lint/rules")
    for name, value in {"Major": _MAJOR, "Minor": _MINOR}.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A Go module and the commands that are built from it."""

    name: str
    folder: Path
    commands: dict[str, str]
    """Binary -> package."""
    flags: str = ""
    minutes: str
    """What to tell somebody who waits."""

    @property
    def sources(self) -> list[Path]:
        return sorted(
            path for path in self.folder.rglob("*") if path.suffix in {".go", ".mod", ".sum"}
        )

    @property
    def target(self) -> Path:
        """The folder of its binaries, whether they are built or not."""
        digest = hashlib.sha256(self.flags.encode())
        for path in self.sources:
            digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
        return cache() / "bin" / f"{self.name}-{digest.hexdigest()[:12]}"


KUBERNETES = Module(
    name="kubernetes",
    folder=PACKAGE / "kubernetes",
    commands={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        )
    },
    flags=_KUBERNETES_FLAGS,
    minutes="four to six minutes",
)
TOOLS = Module(
    name="tools",
    folder=PACKAGE / "tools",
    commands={
        "containerd": f"{_CONTAINERD}/containerd",
        SHIM: f"{_CONTAINERD}/{SHIM}",
        "ctr": f"{_CONTAINERD}/ctr",
        "coredns": "./coredns",
        "pause": "./pause",
        "helm": "helm.sh/helm/v3/cmd/helm",
    },
    flags=_HELM_FLAGS,
    minutes="three to four minutes",
)
# Only where a cluster comes from kind; kubeadm only where its nodes' image is made here.
KUBEADM = Module(
    name="kubeadm",
    folder=PACKAGE / "kubeadm",
    commands={"kubeadm": "k8s.io/kubernetes/cmd/kubeadm"},
    flags=_KUBERNETES_FLAGS,
    minutes="a minute",
)
KIND = Module(
    name="kind",
    folder=PACKAGE / "kind_node",
    commands={"kind": "sigs.k8s.io/kind"},
    minutes="half a minute",
)
KIND_NODE = replace(
    KIND,
    commands={"etcd": "go.etcd.io/etcd/server/v3", "dns": "./dns"},
    minutes="two minutes",
)
_MODULES = (KUBERNETES, TOOLS, KUBEADM, KIND, KIND_NODE)
VERSITYGW = Module(
    name="versitygw",
    folder=PACKAGE.parent / "tests" / "tools",
    commands={"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
    minutes="a minute",
)
"""Not among them, since `make test-tools` builds it at a place of its own."""


def binary(name: str) -> Path:
    """The path of a binary; builds its module when that has not been done yet."""
    if name == "versitygw":
        return _versitygw()
    module = next(module for module in _MODULES if name in module.commands)
    # kind brings the servers: of ours only the client is needed.
    alone = choice() == "docker" and module is KUBERNETES
    return (
        build(replace(module, commands={name: module.commands[name]}) if alone else module) / name
    )


def build_all() -> None:
    """Build whatever this machine's kind of cluster needs."""
    if choice() != "docker":
        build(KUBERNETES)
    build(TOOLS)
    binary("versitygw")


def build(module: Module) -> Path:
    """Build what is missing of a module; return the folder with its binaries."""
    target = module.target
    if all((target / name).is_file() for name in module.commands):
        return target
    go = _go()
    with locked(target.with_name(f".{module.name}.lock"), waiting_for=f"building {module.name}"):
        absent = {n: p for n, p in module.commands.items() if not (target / n).is_file()}
        if absent:
            progress(f"building {module.name} (once, {module.minutes})")
        for number, (name, package) in enumerate(absent.items(), start=1):
            started = time.monotonic()
            compile_command(go, module, package, target / name)
            seconds = time.monotonic() - started
            progress(f"  {number}/{len(absent)} {name} ({seconds:.0f} s)")
        _forget_older(target, module.name)
    return target


def module_folder(module: Module, path: str) -> Path:
    """Where the sources of a Go module lie that `module` requires; fetched if need be."""
    command = (_go(), "mod", "download", "-json", path)
    return Path(json.loads(output(*command, directory=module.folder, timeout=600))["Dir"])


def compile_command(go: Path, module: Module, package: str, target: Path) -> None:
    """`go build` of one command, in one step: either the whole binary is there or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    flags = f"-s -w {module.flags}".strip()
    done = subprocess.run(
        [go, "build", "-trimpath", "-ldflags", flags, "-o", partial, package],
        cwd=module.folder,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise ClusterBroken(f"go build {package} failed: {done.stderr.strip()[-3000:]}")
    partial.replace(target)


def _go() -> Path:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise ClusterUnavailable(
            "the servers of the cluster are built with Go, which was not found. "
            "Install Go 1.26 or newer."
        )
    return Path(found)


def _versitygw() -> Path:
    """The S3 server; `make test-tools` builds the same file."""
    target = cache() / "bin" / "versitygw"
    if not target.is_file():
        progress(f"building versitygw (once, about {VERSITYGW.minutes})")
        compile_command(_go(), VERSITYGW, VERSITYGW.commands["versitygw"], target)
    return target


def _forget_older(target: Path, name: str) -> None:
    """Keep the two newest builds of a module: half a gigabyte each."""
    builds = sorted(
        target.parent.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for old in builds[2:]:
        if old != target:
            shutil.rmtree(old, ignore_errors=True)
