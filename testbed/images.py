"""The images that a cluster starts from: what holds a pod, and two Debian systems to build upon.

Each is made once, from Debian packages or our own binary, and kept as an archive in the cache;
another list of packages makes another archive.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed import docker
from testbed.archives import write_archive
from testbed.binaries import binary
from testbed.packages import install
from testbed.places import cache, locked, progress
from testbed.shell import output

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["python", "torch"]
KINDS: tuple[Kind, ...] = ("python", "torch")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A base image of somebody else, in one version for ever. Raises ValueError otherwise."""

    reference: str
    """`NAME@sha256:...`, with or without a tag before the @."""

    def __post_init__(self) -> None:
        """A tag alone may name another image tomorrow."""
        if not re.fullmatch(r"[^@\s]+@sha256:[0-9a-f]{64}", self.reference):
            raise ValueError(f"{self.reference} has no digest: write NAME@sha256:... (64 digits)")


PAUSE_IMAGE = "localhost/trainrun/pause:1"
_SUITE = "trixie"
_PYTHON = ("ca-certificates", "python-is-python3", "python3", "python3-pip", "python3-venv")
_PACKAGES: dict[Kind, tuple[str, ...]] = {
    "python": _PYTHON,
    "torch": (*_PYTHON, "python3-boto3", "python3-numpy", "python3-torch"),
}
_TOLD: dict[Kind, str] = {"python": "half a minute", "torch": "two to three minutes"}
# Nobody reads documentation in a container.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_name(kind: Kind) -> str:
    """The reference of a base image, for `FROM` and for pods."""
    return f"localhost/trainrun/base-{kind}:{_SUITE}"


def base_image(kind: Kind) -> Path:
    """The archive of a base image: Debian with Python, or with Python and a PyTorch for CPUs.

    The same file serves `buildah pull oci-archive:FILE` and a cluster's `load`. Built when it is
    not in the cache; ClusterUnavailable on a machine that can build none.
    """
    recipe = json.dumps([_SUITE, _PACKAGES[kind], _LEFT_OUT, "1"])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    target = cache() / "images" / f"base-{kind}-{key}.tar"
    if target.is_file():
        return target
    with locked(target.with_name(f".base-{kind}.lock"), waiting_for=f"building {base_name(kind)}"):
        if not target.is_file():
            progress(f"building {base_name(kind)} (once, {_TOLD[kind]})")
            if docker.is_running():
                docker.build_base(target, base_name(kind), _SUITE, _PACKAGES[kind])
            else:
                _bootstrap(target, base_name(kind), _PACKAGES[kind])
    return target


def pause_image() -> Path:
    """The archive of the image whose process holds the namespaces of a pod."""
    program = binary("pause")
    target = cache() / "images" / f"pause-{program.parent.name}.tar"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with _work_file(target) as layer:
            with tarfile.open(layer, "w") as tar:
                tar.add(program, arcname="pause")
            run = {"Entrypoint": ["/pause"], "User": "65535:65535"}
            write_archive(target, name=PAUSE_IMAGE, layer=layer, run=run)
    return target


def _bootstrap(target: Path, name: str, packages: tuple[str, ...]) -> None:
    install()
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    command = ("mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", *options)
    with _work_file(target) as layer:
        output(*command, "--format=tar", _SUITE, layer, timeout=1200)
        run = {"Env": [f"PATH={_PATH}", "LANG=C.UTF-8"], "Cmd": ["python3"]}
        write_archive(target, name=name, layer=layer, run=run)


@contextlib.contextmanager
def _work_file(target: Path) -> Iterator[Path]:
    """A temporary file beside `target`, where there is room for it."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".layer-") as folder:
        yield Path(folder) / "layer.tar"
