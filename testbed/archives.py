"""Image archives: one tar file that holds an image in the layout of the Open Container Initiative.

Layers stay uncompressed: the archives live on this machine, and are unpacked far more often than
they are moved.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_INDEXES = ("index.json", "manifest.json")


def write_archive(
    target: Path, *, name: str, layer: Path, run: dict[str, Any], others: Sequence[str] = ()
) -> None:
    """Write an image of one layer; `run` is its `config` (Env, Cmd, Entrypoint, ...).

    `name` is the full reference, host name included, that pods use; `others` name the same image.
    """
    partial = target.with_name(f".{target.name}.partial")
    digest = _digest_of(layer)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    with tarfile.open(partial, "w") as archive:
        _add_bytes(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        archive.add(layer, arcname=_blob(digest), filter=_plain)
        described_config = _add_blob(archive, _CONFIG, config)
        described_layer = {"mediaType": _LAYER, "digest": digest, "size": layer.stat().st_size}
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": described_config,
            "layers": [described_layer],
        }
        described = _add_blob(archive, _MANIFEST, manifest)
        manifests = [described | {"annotations": _named(each)} for each in (name, *others)]
        index = {"schemaVersion": 2, "manifests": manifests}
        _add_bytes(archive, "index.json", json.dumps(index).encode())
    partial.replace(target)


def identity(archive: Path) -> str:
    """What tells two images apart: the digest of the archive's table of contents."""
    digest = hashlib.sha256()
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.name.removeprefix("./") in _INDEXES:
                content = opened.extractfile(member)
                assert content is not None
                digest.update(content.read())
    return digest.hexdigest()


def names(archive: Path) -> list[str]:
    """The references of the images in an archive, of either usual format."""
    with tarfile.open(archive) as opened:
        tables: dict[str, Any] = {}
        for member in opened:
            name = member.name.removeprefix("./")
            content = opened.extractfile(member) if name in _INDEXES else None
            if content is not None:
                tables[name] = json.load(content)
    found = [tag for image in tables.get("manifest.json", []) for tag in image["RepoTags"] or []]
    for image in tables.get("index.json", {}).get("manifests", []):
        annotations = image.get("annotations", {})
        found.append(
            annotations.get("io.containerd.image.name")
            or annotations.get("org.opencontainers.image.ref.name", "")
        )
    return sorted({name for name in found if name})


def _named(name: str) -> dict[str, str]:
    # containerd reads the first, buildah and skopeo the second.
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _add_blob(archive: tarfile.TarFile, media_type: str, content: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(content).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    _add_bytes(archive, _blob(digest), data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member
