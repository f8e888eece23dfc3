"""Two builders of the same Dockerfiles: Docker where it runs, else buildah.

buildah keeps its layers in a store of its own below the cache, so that nobody's images are touched,
and runs steps in a chroot: it needs root, but neither a daemon nor systemd.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from testbed import docker
from testbed.images import Pinned, base_image, base_name
from testbed.index_access import secrets
from testbed.packages import install
from testbed.places import cache, locked
from testbed.shell import output, succeeds

if TYPE_CHECKING:
    from testbed.images import Kind

_BUILD_SECONDS = 1200
_PUSH_SECONDS = 3600
_THIS_MACHINE = ("localhost", "127.0.0.1")
_MOST_LEFT_OVER = 40
"""Layers that no image names any more; each edit of the tree leaves one to three, a few MB each."""


class Builder(Protocol):
    """Makes an archive of the image that a Dockerfile describes."""

    def build(
        self, context: Path, dockerfile: str, *, base: Kind | Pinned, name: str, target: Path
    ) -> None:
        """Build what lies in `context` on a base image; write it to `target` (a docker archive)."""
        ...

    def push(self, archive: Path, reference: str) -> str:
        """Upload the image in a docker archive as `reference`; returns its digest there."""
        ...


def builder() -> Builder:
    """The one of this machine; ClusterUnavailable where there is none."""
    if docker.is_running():
        return _Docker()
    install()
    return _Buildah(cache() / "buildah")


class _Docker:
    def build(
        self, context: Path, dockerfile: str, *, base: Kind | Pinned, name: str, target: Path
    ) -> None:
        with secrets() as options:
            output(
                *("docker", "build", "--quiet", *options, "--tag", name),
                *(
                    "--build-arg",
                    f"BASE={self._base(base)}",
                    "--file",
                    context / dockerfile,
                    context,
                ),
                timeout=_BUILD_SECONDS,
                environment={"DOCKER_BUILDKIT": "1"},
            )
        output("docker", "save", "--output", target, name, timeout=600)

    def _base(self, base: Kind | Pinned) -> str:
        if isinstance(base, Pinned):
            return base.reference  # Docker pulls it
        if not succeeds("docker", "image", "inspect", base_name(base), timeout=20):
            output("docker", "load", "--input", base_image(base), timeout=600)
        return base_name(base)

    def push(self, archive: Path, reference: str) -> str:
        loaded = output("docker", "load", "--quiet", "--input", archive, timeout=600)
        output("docker", "tag", loaded.strip().removeprefix("Loaded image: "), reference)
        output("docker", "push", "--quiet", reference, timeout=_PUSH_SECONDS)
        listed = (
            "docker",
            "image",
            "inspect",
            "--format",
            '{{join .RepoDigests "\\n"}}',
            reference,
        )
        names = (line.split("@") for line in output(*listed).split())
        return next(digest for name, digest in names if name == reference.rpartition(":")[0])


@dataclass(frozen=True, slots=True)
class _Buildah:
    store: Path

    def build(
        self, context: Path, dockerfile: str, *, base: Kind | Pinned, name: str, target: Path
    ) -> None:
        # One at a time: there is one store, and two cores are busy with one build.
        with locked(self.store.with_name(".buildah.lock"), waiting_for="another image"):
            self._tidy()
            with secrets() as options:
                self._buildah(
                    *("build", "--quiet", "--isolation", "chroot", "--layers", *options),
                    # The same files make the same image, whenever that is.
                    *("--timestamp", "0"),
                    *("--build-arg", f"BASE={self._base(base)}", "--tag", name),
                    *("--file", context / dockerfile, context),
                )
            # An archive of this kind holds its name, which containerd then uses as it stands.
            self._buildah("push", "--quiet", name, f"docker-archive:{target}:{name}")

    def push(self, archive: Path, reference: str) -> str:
        with (
            TemporaryDirectory() as folder,
            locked(self.store.with_name(".buildah.lock"), waiting_for="another image"),
        ):
            pulled = self._buildah("pull", "--quiet", f"docker-archive:{archive}").strip()
            told = Path(folder, "digest")
            options = ("--quiet", "--digestfile", told, _encryption(reference))
            command = ("push", *options, pulled, f"docker://{reference}")
            output(*self._command, *command, timeout=_PUSH_SECONDS)
            return told.read_text().strip()

    def _tidy(self) -> None:
        """Remove what a build that was killed has left, and layers when there are many."""
        self._buildah("rm", "--all")
        unnamed = self._buildah("images", "--quiet", "--filter", "dangling=true").split()
        if len(unnamed) > _MOST_LEFT_OVER:
            # The next build makes its layers again, which takes a minute.
            self._buildah("rmi", "--prune")

    def _base(self, base: Kind | Pinned) -> str:
        if isinstance(base, Pinned):
            reference = base.reference
            self._buildah("pull", "--quiet", _encryption(reference), f"docker://{reference}")
            return reference
        archive = base_image(base)
        key = hashlib.sha256(archive.name.encode()).hexdigest()[:12]
        name = f"localhost/trainrun/base-{base}:{key}"
        if not self._id_of(name):
            pulled = self._buildah("pull", "--quiet", f"oci-archive:{archive}").strip()
            # The archive has no history, which the format allows; buildah then counts its layers
            # wrong in every image that is built on it. One commit gives it a history.
            container = self._buildah("from", "--pull-never", pulled).strip()
            self._buildah("commit", "--quiet", "--rm", "--squash", container, name)
            self._buildah("rmi", pulled)
        return name

    def _id_of(self, name: str) -> str:
        if not succeeds(*self._command, "inspect", "--type", "image", name):
            return ""
        return self._buildah("images", "--quiet", "--no-trunc", name).strip()

    def _buildah(self, *arguments: str | Path) -> str:
        return output(*self._command, *arguments, timeout=_BUILD_SECONDS)

    @property
    def _command(self) -> tuple[str | Path, ...]:
        key = hashlib.sha256(str(self.store).encode()).hexdigest()[:12]
        return ("buildah", "--root", self.store, "--runroot", f"/run/trainrun-buildah/{key}")


def _encryption(reference: str) -> str:
    """Plain HTTP is for this machine alone, as Docker has it."""
    host = reference.partition("/")[0].rpartition(":")[0] or reference.partition("/")[0]
    return f"--tls-verify={str(host not in _THIS_MACHINE).lower()}"
