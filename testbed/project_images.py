"""The project's own images, as archives that a cluster loads: `make images`, or `build_all()`.

An archive is named by the digest of all that goes into it, so that an unchanged tree costs nothing.
The tag is the one that the chart names by default, so that its commands work as they are printed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.builders import builder
from testbed.errors import ClusterBroken, ClusterUnavailable
from testbed.images import Pinned, base_image
from testbed.places import cache, locked, progress

if TYPE_CHECKING:
    from testbed.images import Kind

ROOT = Path(__file__).parents[1]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
REGISTRY = "docker.io"
"""The one that the chart names; its value `global.imageRegistry` puts another in its place."""
_DIGEST = "NAME@sha256:..."
_KEPT = 2
_IN_USE_SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectImage:
    """One image that this repository makes."""

    name: str
    """The full reference, which pods name."""
    dockerfile: str
    base: Kind
    sources: tuple[str, ...]
    """What the Dockerfile copies, and itself."""

    @property
    def short(self) -> str:
        return self.name.rpartition("/")[2].partition(":")[0]

    def name_in(self, registry: str) -> str:
        """The reference that it has in another registry, which may hold a path."""
        return f"{registry.rstrip('/')}/{self.name.removeprefix(f'{REGISTRY}/')}"


_SHARED = (
    ".dockerignore",
    "pyproject.toml",
    "worker_image/requirements.lock",
    "worker_image/trainrun",
)
OPERATOR = ProjectImage(
    name=f"{REGISTRY}/trainrun/operator:{VERSION}",
    dockerfile="operator/Dockerfile",
    base="python",
    sources=("operator", "worker_image/inject", *_SHARED),
)
WORKER = ProjectImage(
    name=f"{REGISTRY}/trainrun/worker:{VERSION}",
    dockerfile="worker_image/Dockerfile",
    base="torch",
    sources=("worker_image/Dockerfile", *_SHARED),
)
IMAGES = (OPERATOR, WORKER)


def build_all() -> list[Path]:
    """Archives of all images of the tree as it is; built where something has changed."""
    return [build(image) for image in IMAGES]


def build(image: ProjectImage, pinned: Pinned | None = None) -> Path:
    """The archive of one image, on our own base image or on a `pinned` one; ClusterUnavailable on a
    machine that can build none."""
    base = pinned.reference if pinned else base_image(image.base).name
    folder = cache() / "images"
    with locked(folder / f".{image.short}.lock", waiting_for=f"building {image.name}"):
        target = folder / f"{image.short}-{_digest_of(image, base, ROOT)}.tar"
        if not target.is_file():
            progress(f"building {image.name}")
            with tempfile.TemporaryDirectory(prefix="trainrun-context-") as name:
                # Somebody may go on editing meanwhile.
                context = Path(name)
                _copy(image, context)
                target = folder / f"{image.short}-{_digest_of(image, base, context)}.tar"
                partial = target.with_name(f".{target.name}.partial")
                partial.unlink(missing_ok=True)
                builder().build(
                    context,
                    image.dockerfile,
                    base=pinned or image.base,
                    name=image.name,
                    target=partial,
                )
                partial.replace(target)
            _forget_unused(image, target)
        # Somebody reads it after us, perhaps much later.
        os.utime(target)
    return target


def _copy(image: ProjectImage, context: Path) -> None:
    for source in image.sources:
        for path in _files(ROOT / source):
            copy = context / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def _digest_of(image: ProjectImage, base: str, context: Path) -> str:
    """Of everything that the image is made from, how it is made included."""
    digest = hashlib.sha256(f"{base} {image.name}".encode())
    digest.update(Path(__file__).with_name("builders.py").read_bytes())
    for path in (path for source in image.sources for path in _files(context / source)):
        digest.update(path.relative_to(context).as_posix().encode() + b"\0")
        digest.update(b"x" if path.stat().st_mode & 0o100 else b"-")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for path in sorted(place.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _forget_unused(image: ProjectImage, newest: Path) -> None:
    """Remove old archives, but none that another checkout may be loading just now."""
    archives = sorted(
        newest.parent.glob(f"{image.short}-*.tar"), key=lambda path: path.stat().st_mtime
    )
    for old in archives[:-_KEPT]:
        if old.stat().st_mtime < time.time() - _IN_USE_SECONDS:
            for path in (old, old.with_suffix(".size")):
                path.unlink(missing_ok=True)


def compressed_size(archive: Path) -> int:
    """Bytes of an archive as a registry would keep it, at most: it packs harder than we do here.

    Remembered, since it takes a while.
    """
    remembered = archive.with_suffix(".size")
    if not remembered.is_file():
        counter = _Counter()
        with (
            archive.open("rb") as source,
            gzip.GzipFile(fileobj=counter, mode="wb", compresslevel=1) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)
        remembered.write_text(str(counter.bytes))
    return int(remembered.read_text())


class _Counter:
    """A file that only counts what is written to it."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """Forget the data."""
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing to do."""


def push(archive: Path, reference: str) -> str:
    """Upload an archive's image to a registry, with the credentials of `docker login`.

    Returns its digest there.

    Raises ClusterBroken with what the registry said.
    """
    progress(f"pushing {reference}")
    return builder().push(archive, reference)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--registry", metavar="HOST[/PATH]", help="name the images in this registry")
@click.option("--push", "pushes", is_flag=True, help="upload them there")
@click.option("--operator-base", metavar=_DIGEST, help="base of the operator's image")
@click.option("--worker-base", metavar=_DIGEST, help="base of the worker's image")
def main(
    registry: str | None,
    operator_base: str | None,
    worker_base: str | None,
    *,
    pushes: bool,
) -> None:
    """Build the operator's and the worker's image; say where they are and how to use them."""
    if pushes and not registry:
        raise click.UsageError("--push needs --registry (make images REGISTRY=... PUSH=1)")
    try:
        bases = [Pinned(base) if base else None for base in (operator_base, worker_base)]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        for image, base in zip(IMAGES, bases, strict=True):
            _make(image, base, registry if pushes else None)
    except (ClusterUnavailable, ClusterBroken) as error:
        raise click.ClickException(str(error)) from error
    if registry:
        click.echo(f"for the chart: --set global.imageRegistry={registry.rstrip('/')}")


def _make(image: ProjectImage, base: Pinned | None, registry: str | None) -> None:
    archive = build(image, base)
    if registry:
        push(archive, image.name_in(registry))
        click.echo(image.name_in(registry))
        return
    line = f"{image.name}  {archive.stat().st_size / 1e6:.0f} MB"
    # Of the worker's image nearly all is its base, which takes a minute to compress.
    if image is OPERATOR:
        line += f", compressed {compressed_size(archive) / 1e6:.0f} MB"
    click.echo(f"{line}  {archive}")


if __name__ == "__main__":
    main()
