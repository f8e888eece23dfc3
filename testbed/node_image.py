"""The image of kind's nodes, made where no registry is reached: only podman's way needs it.

From what is at hand: the files that kind's own module brings for it, Debian packages, and the
binaries that the embedded cluster runs.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import golden
from testbed.archives import write_archive
from testbed.binaries import (
    KIND,
    KIND_NODE,
    KUBEADM,
    KUBERNETES,
    KUBERNETES_VERSION,
    SHIM,
    TOOLS,
    binary,
    module_folder,
)
from testbed.images import PAUSE_IMAGE, pause_image
from testbed.packages import SUPERUSER_PATH, install
from testbed.places import PACKAGE, cache, locked, progress
from testbed.shell import output

if TYPE_CHECKING:
    from collections.abc import Iterable

NODE_IMAGE = "localhost/trainrun/kind-node"
_OURS = PACKAGE / "kind_node" / "files"
_SUITE = "bookworm"
"""Its systemd still starts with cgroups of version 1; the one of trixie refuses."""
_PACKAGES = (
    *(
        "bash",
        "ca-certificates",
        "conntrack",
        "curl",
        "e2fsprogs",
        "ethtool",
        "iproute2",
        "iptables",
    ),
    *("jq", "kmod", "mount", "nftables", "procps", "runc", "systemd", "util-linux"),
)
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# In the images of the control plane, of which nothing but the names differs.
_SERVERS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"),
    *("etcd", "dns"),
)
_ON_NODE = {
    "usr/bin": ("kubeadm", "kubectl", "kubelet"),
    "usr/local/bin": ("containerd", "ctr", SHIM),
}


def node_image() -> tuple[Path, str]:
    """The archive of the image and its reference; built where it is not in the cache."""
    key = _key()
    target = cache() / "images" / f"kind-node-{key}.tar"
    name = f"{NODE_IMAGE}:{key}"
    with locked(target.with_name(".kind-node.lock"), waiting_for=f"building {NODE_IMAGE}"):
        if not target.is_file():
            install()
            for program in ("kubelet", "containerd", *_SERVERS, "kubeadm"):
                binary(program)
            progress(f"building {NODE_IMAGE} (once, two minutes)")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".node-") as folder:
                _build(target, name, Path(folder))
            for old in target.parent.glob("kind-node-*.tar"):
                if old != target:
                    old.unlink()
    return target, name


def _key() -> str:
    """Of everything that the image is made from."""
    digest = hashlib.sha256(json.dumps([_SUITE, _PACKAGES]).encode())
    for module in (KUBERNETES, TOOLS, KIND, KIND_NODE, KUBEADM):
        digest.update(module.target.name.encode())
    for path in (Path(__file__), *sorted(_OURS.iterdir())):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _build(target: Path, name: str, work: Path) -> None:
    tree = work / "tree"
    _copy_files(tree)
    _copy_images(tree / "var/lib/containerd", work)
    hook = f'sh {_OURS / "install.sh"} "$1" {tree} {PAUSE_IMAGE}'
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    layer = work / "layer.tar"
    output(
        *("mmdebstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", *options),
        *(f"--customize-hook={hook}", "--format=tar", _SUITE, layer),
        timeout=1200,
    )
    run = {
        "Env": [f"PATH={SUPERUSER_PATH}", "container=docker"],
        "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
        "StopSignal": "SIGRTMIN+3",
    }
    write_archive(target, name=name, layer=layer, run=run)


def _copy_files(tree: Path) -> None:
    """What kind brings for its nodes, our binaries, and what stands in for kindnet."""
    files = module_folder(KIND, "sigs.k8s.io/kind") / "images/base/files"
    for path in files.rglob("*"):
        if path.is_file():
            executable = path.parent.name == "bin"
            _put(path, tree / path.relative_to(files), mode=0o755 if executable else 0o644)
    for folder, programs in _ON_NODE.items():
        for program in programs:
            _put(binary(program), tree / folder / program, mode=0o755)
    units = tree / "etc/systemd/system"
    _put(_OURS / "pods.sh", tree / "kind/bin/pods.sh", mode=0o755)
    _put(_OURS / "pods.service", units / "trainrun-pods.service")
    _put(_OURS / "containerd.conf", units / "containerd.service.d/trainrun.conf")
    _put(_OURS / "default-cni.yaml", tree / "kind/manifests/default-cni.yaml")
    (tree / "kind/version").write_text(KUBERNETES_VERSION)
    spec = json.loads(output(binary("ctr"), "oci", "spec"))
    spec["process"].pop("rlimits", None)
    hook = {"path": "/kind/bin/mount-product-files.sh"}
    spec["hooks"] = {"createContainer": [hook]}
    (tree / "etc/containerd/cri-base.json").write_text(json.dumps(spec))


def _copy_images(target: Path, work: Path) -> None:
    """Put the control plane's images into a node's store, under the names that kubeadm gives."""
    layer, archive = work / "servers.tar", work / "servers.oci.tar"
    with tarfile.open(layer, "w") as tar:
        for program in _SERVERS:
            name = "coredns" if program == "dns" else program
            tar.add(binary(program), arcname=f"usr/local/bin/{name}")
        for path in _with_libraries("/usr/sbin/nft"):
            tar.add(path.resolve(), arcname=str(path).removeprefix("/"))
    first, *others = _image_names()
    run = {"Env": ["PATH=/usr/local/bin:/usr/sbin"], "Entrypoint": ["/usr/local/bin/coredns"]}
    write_archive(archive, name=first, layer=layer, run=run, others=others)
    store = work / "store"
    store.mkdir()
    shutil.move(golden.fill(store, [pause_image(), archive]), _made(target))


def _image_names() -> list[str]:
    command = (binary("kubeadm"), "config", "images", "list")
    listed = output(*command, "--kubernetes-version", KUBERNETES_VERSION).split()
    return [name for name in listed if "/pause:" not in name]


def _with_libraries(program: str) -> Iterable[Path]:
    """A program of this machine and the libraries that it loads, by the paths of its loader."""
    found = {Path(program)}
    for line in output("ldd", program).splitlines():
        found |= {Path(word) for word in line.split() if word.startswith("/")}
    return sorted(found)


def _put(source: Path, target: Path, *, mode: int = 0o644) -> None:
    shutil.copyfile(source, _made(target))
    target.chmod(mode)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
