"""`make images REGISTRY=... PUSH=1`: what is pushed, and what is said about it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.builders import builder
from testbed.errors import ClusterUnavailable
from testbed.images import Pinned
from testbed.project_images import OPERATOR, main, push
from tests.support.registry import a_registry

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def a_small_image(folder: Path) -> Path:
    """An archive as builders make it, of one file."""
    layer, archive = folder / "layer.tar", folder / "image.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(__file__, arcname="file")
    diff = f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    named = [
        {
            "Config": "config.json",
            "RepoTags": ["localhost/trainrun/small:1"],
            "Layers": ["layer.tar"],
        }
    ]
    (folder / "manifest.json").write_text(json.dumps(named))
    with tarfile.open(archive, "w") as tar:
        for name in ("manifest.json", "config.json", "layer.tar"):
            tar.add(folder / name, arcname=name)
    return archive


def test_an_image_is_pushed_under_its_name_in_the_registry(tmp_path: Path) -> None:
    with a_registry() as registry:
        reference = OPERATOR.name_in(f"{registry.host}/ml")
        try:
            digest = push(a_small_image(tmp_path), reference)
        except ClusterUnavailable as error:
            pytest.skip(f"NO IMAGES COULD BE BUILT: {error}")
        tag = OPERATOR.name.rpartition(":")[2]
        manifest = registry.manifest("ml/trainrun/operator", tag)
        assert digest in registry.by_digest
        blobs = [manifest["config"], *manifest["layers"]]
        assert {blob["digest"] for blob in blobs} == set(registry.blobs)


def test_an_image_keeps_its_name_and_gets_another_registry() -> None:
    name = OPERATOR.name.removeprefix("docker.io/")
    assert OPERATOR.name_in("registry.example.com") == f"registry.example.com/{name}"
    assert OPERATOR.name_in("localhost:5000/a/") == f"localhost:5000/a/{name}"


def test_pushing_needs_a_registry() -> None:
    ended = CliRunner().invoke(main, ["--push"])
    assert ended.exit_code == 2
    assert "--push needs --registry (make images REGISTRY=... PUSH=1)" in ended.output


def test_an_image_is_built_on_a_base_of_this_very_digest(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nLABEL built=yes\n")
    with a_registry() as registry:
        reference = f"{registry.host}/somebody/base:1"
        try:
            push(a_small_image(tmp_path), reference)
        except ClusterUnavailable as error:
            pytest.skip(f"NO IMAGES COULD BE BUILT: {error}")
        (digest,) = registry.by_digest
        target = tmp_path / "built.tar"
        builder().build(
            tmp_path,
            "Dockerfile",
            base=Pinned(f"{registry.host}/somebody/base@{digest}"),
            name="localhost/trainrun/on-a-digest:1",
            target=target,
        )
    with tarfile.open(target) as built:
        manifest = built.extractfile("manifest.json")
        assert manifest is not None
        (image,) = json.load(manifest)
        config = built.extractfile(image["Config"])
        assert config is not None
        assert json.load(config)["config"]["Labels"]["built"] == "yes"
        (layer,) = [name for name in image["Layers"] if _holds(built, name, "file")]
        assert layer


def _holds(archive: tarfile.TarFile, layer: str, name: str) -> bool:
    with tarfile.open(fileobj=archive.extractfile(layer)) as inner:
        return name in inner.getnames()


@pytest.mark.parametrize("base", ["python:3.13-slim-trixie", "python@sha256:0123", "@sha256:"])
def test_a_base_without_its_digest_is_refused(base: str) -> None:
    ended = CliRunner().invoke(main, ["--operator-base", base])
    assert ended.exit_code == 2
    assert f"{base} has no digest: write NAME@sha256:... (64 digits)" in ended.output
