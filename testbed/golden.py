"""Prepared image stores: images are imported once, and every node gets the result by hard links.

A store is the root folder of a containerd. Its snapshots and blobs are only ever read, so that
nodes may share them, and with them the page cache: a library that one node has loaded is warm on
the others. The databases are written, so each node gets a copy of those.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.archives import identity, names
from testbed.binaries import binary
from testbed.errors import ClusterBroken
from testbed.places import cache, locked, progress
from testbed.shell import output, succeeds

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMESPACE = "k8s.io"
"""Of containerd; where the kubelet's images live."""
_CONTENTS = "images.json"
_KEPT = 4
_CONFIG = """
version = 3
root = "{root}"
state = "{work}/state"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri"]
[grpc]
  address = "{work}/socket"
[ttrpc]
  address = "{work}/socket.ttrpc"
"""


@dataclass(frozen=True, slots=True)
class Golden:
    """One prepared store."""

    folder: Path

    @property
    def images(self) -> frozenset[str]:
        """The identities of the images in it."""
        return frozenset(json.loads((self.folder / _CONTENTS).read_text()))

    def clone(self, target: Path) -> None:
        """Make `target`, which must not exist, a store with the same images."""
        source = self.folder / "root"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not succeeds("cp", "-al", source, target, timeout=300):
            # Another file system than the cache's.
            shutil.rmtree(target, ignore_errors=True)
            output("cp", "-a", "--reflink=auto", source, target, timeout=600)
        for database in source.glob("*/*.db"):
            copy = target / database.relative_to(source)
            copy.unlink()
            shutil.copy2(database, copy)


def prepared(archives: Iterable[Path]) -> Golden:
    """The store with the images of these archives; made from the nearest one that there is."""
    wanted = {identity(archive): archive for archive in archives}
    key = hashlib.sha256(json.dumps(sorted(wanted)).encode()).hexdigest()[:12]
    folder = cache() / "golden" / key
    with locked(folder.with_name(".lock"), waiting_for="preparing the image store"):
        if not folder.is_dir():
            _build(folder, wanted)
        os.utime(folder)
        _forget_unused(folder.parent)
    return Golden(folder)


def fill(folder: Path, archives: list[Path]) -> Path:
    """Make a new store with these images in an empty folder; return the root of its containerd."""
    _import(folder, archives, keep={name for archive in archives for name in names(archive)})
    return folder / "root"


def _build(folder: Path, wanted: dict[str, Path]) -> None:
    nearest = _nearest(wanted, folder.parent)
    present = nearest.images if nearest else frozenset()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as name:
        partial = Path(name) / "store"
        partial.mkdir()
        if nearest:
            nearest.clone(partial / "root")
        missing = [wanted[image] for image in sorted(wanted.keys() - present)]
        keep = {name for archive in wanted.values() for name in names(archive)}
        _import(partial, missing, keep=keep)
        (partial / _CONTENTS).write_text(json.dumps(sorted(wanted)))
        partial.rename(folder)


def _import(partial: Path, archives: list[Path], *, keep: set[str]) -> None:
    """Add the images of these archives to a store; of all others only those in `keep` stay."""
    # A socket's path is short, so not below the cache.
    with tempfile.TemporaryDirectory(prefix="trainrun-") as name:
        work = Path(name)
        (work / "config.toml").write_text(_CONFIG.format(root=partial / "root", work=work))
        # It ends with us, also when we are killed; what it mounts is nobody else's.
        alone = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]
        log = work / "log"
        with (
            log.open("wb") as words,
            subprocess.Popen(
                [*alone, binary("containerd"), "--config", work / "config.toml"],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
            ) as server,
        ):
            try:
                _wait_for(work / "socket", server, log)
                client = (binary("ctr"), "--address", work / "socket", "--namespace", NAMESPACE)
                for archive in archives:
                    progress(f"importing {', '.join(names(archive))} into the image store")
                    importing = ("images", "import", "--snapshotter", "overlayfs", archive)
                    output(*client, *importing, timeout=600)
                _remove_others(client, keep)
            finally:
                # In peace, so that its databases are whole.
                server.terminate()


def _wait_for(socket: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while not socket.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise ClusterBroken(f"containerd did not start: {log.read_text()[-2000:]}")
        time.sleep(0.02)


def _remove_others(client: tuple[str | Path, ...], keep: set[str]) -> None:
    """Remove the other images, and what no image needs any more.

    Only after the imports: a new version of an image shares most of its layers with the old one.
    """
    present = output(*client, "images", "ls", "--quiet").split()
    if others := sorted(set(present) - keep):
        output(*client, "images", "rm", *others, timeout=120)
    # The end of a lease is what the collection of garbage can be waited for with.
    lease = output(*client, "leases", "create").strip()
    output(*client, "leases", "delete", "--sync", lease, timeout=120)


def _nearest(wanted: dict[str, Path], folder: Path) -> Golden | None:
    """The store that has most of the images, in bytes, whatever else it has; the one used last.

    That one tells most likely of older versions of an image, with the same layers below.
    """
    shared = {
        path.parent: sum(
            wanted[image].stat().st_size for image in Golden(path.parent).images & wanted.keys()
        )
        for path in folder.glob(f"*/{_CONTENTS}")
    }
    best = max(shared, key=lambda store: (shared[store], store.stat().st_mtime), default=None)
    return Golden(best) if best and shared[best] else None


def _forget_unused(folder: Path) -> None:
    """Keep the stores that were used last; what they share with older ones stays."""
    stores = sorted(
        (path for path in folder.iterdir() if (path / _CONTENTS).is_file()),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    for old in stores[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
