"""A signed release in a real registry: what verifies it, and what each damage is told as."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from testbed.packages import install
from tests.support.s3_server import free_port
from tools import release
from tools.signing import BUNDLE, PROVENANCE, SPDX, Signer, Verifier, run

COSIGN_SIGN = "https://sigstore.dev/cosign/sign/v1"
PREDICATES = {PROVENANCE: "https://slsa.dev/provenance/v1", SPDX: "https://spdx.dev/Document"}


@dataclass(frozen=True)
class SignedRelease:
    """Its files, what is in the registry, and who verifies it."""

    folder: Path
    blobs: Path
    verifier: Verifier

    @property
    def references(self) -> dict[str, str]:
        return json.loads((self.folder / release.REFERENCES).read_text())

    def blob(self, digest: str) -> Path:
        """Where the registry keeps a blob or manifest."""
        algorithm, _, hexadecimal = digest.rpartition(":")
        return self.blobs / (algorithm or "sha256") / hexadecimal[:2] / hexadecimal / "data"

    def layer(self, part: str) -> Path:
        """The largest blob of an image or chart."""
        manifest = json.loads(self.blob(self.references[part].partition("@")[2]).read_text())
        largest = max(manifest["layers"], key=lambda layer: layer["size"])
        return self.blob(largest["digest"])

    def bundle(self, part: str, predicate: str) -> Path:
        """What is signed of it, as the registry keeps it."""
        wanted = self.references[part].partition("sha256:")[2]
        for path in self.blobs.glob("*/*/*/data"):
            if b"vnd.dev.sigstore.bundle" not in path.read_bytes()[:200]:
                continue
            envelope = json.loads(path.read_text()).get("dsseEnvelope")
            told = json.loads(base64.b64decode(envelope["payload"])) if envelope else {}
            subjects = [each["digest"]["sha256"] for each in told.get("subject", [])]
            if wanted in subjects and told["predicateType"] == predicate:
                return path
        raise LookupError(f"no {predicate} of {part}")

    def refused(self, folder: Path | None = None) -> str:
        """What is said of its signatures."""
        with pytest.raises(click.ClickException) as caught:
            release.check_signatures(folder or self.folder, self.verifier)
        return caught.value.message


@contextmanager
def a_real_registry(folder: Path) -> Iterator[str]:
    """`docker-registry` on this machine; its host and port."""
    install({"docker-registry": "docker-registry"})
    host = f"127.0.0.1:{free_port()}"
    settings = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder)}},
        "http": {"addr": host},
    }
    path = folder / "settings.json"  # which is YAML too
    path.write_text(json.dumps(settings))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", path], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://{host}/v2/", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.1)
        yield host
    finally:
        process.terminate()
        process.wait()


def a_key(folder: Path) -> str:
    """A new private key; the public one lies beside it, as `.pub`."""
    folder.mkdir()
    run("cosign", "generate-key-pair", "--output-key-prefix", folder / "cosign")
    return str(folder / "cosign.key")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedRelease]:
    folder = tmp_path_factory.mktemp("signed")
    (folder / "registry").mkdir()
    os.environ["COSIGN_PASSWORD"] = "of the test"
    with a_real_registry(folder / "registry") as host:
        key = a_key(folder / "key")
        release.make(folder / "dist", f"{host}/ml", key=key)
        blobs = folder / "registry/docker/registry/v2/blobs"
        yield SignedRelease(folder / "dist", blobs, Verifier(key=key.replace(".key", ".pub")))
    del os.environ["COSIGN_PASSWORD"]


@contextmanager
def one_byte_changed(path: Path) -> Iterator[None]:
    """In the middle of a file; put right afterwards."""
    middle = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(middle)
        before = file.read(1)
        file.seek(middle)
        file.write(bytes([before[0] ^ 1]))
        file.flush()
        try:
            yield
        finally:
            file.seek(middle)
            file.write(before)


def test_a_release_that_nobody_touched_is_verified(made: SignedRelease) -> None:
    release.check(made.folder)
    release.check_signatures(made.folder, made.verifier)

    assert sorted(made.references) == ["chart", "operator", "worker"]
    chart = run(release.binary("helm"), "template", made.folder / "trainrun-0.1.0.tgz")
    assert f"image: {made.references['operator']}\n" in chart


@pytest.mark.parametrize(("part", "package"), [("operator", "kopf"), ("worker", "torch")])
def test_the_list_of_an_image_names_what_was_installed_from_debian_and_by_pip(
    part: str, package: str, made: SignedRelease
) -> None:
    bill = json.loads((made.folder / f"{part}.spdx.json").read_text())

    assert {package, "libc6"} <= {each["name"] for each in bill["packages"]}
    assert bill["name"] == made.references[part].partition("@")[0]


def test_the_provenance_names_the_commit_each_file_and_each_digest(made: SignedRelease) -> None:
    told = json.loads((made.folder / "provenance.json").read_text())

    commit = run("git", "rev-parse", "HEAD").strip()
    (source,) = told["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source == {"digest": {"gitCommit": commit}}
    assert {each["name"] for each in told["subject"]} == {
        *("operator.spdx.json", "worker.spdx.json", "release.json"),
        *("trainrun-0.1.0-py3-none-any.whl", "trainrun-0.1.0.tar.gz", "trainrun-0.1.0.tgz"),
        *(reference.partition("@")[0] for reference in made.references.values()),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("operator.spdx.json", "worker.spdx.json", "provenance.json", "release.json"),
        *("trainrun-0.1.0-py3-none-any.whl", "trainrun-0.1.0.tar.gz", "trainrun-0.1.0.tgz"),
        f"provenance.json{BUNDLE}",
    ],
)
def test_a_changed_file_is_named_and_new_sums_are_not_signed(
    name: str, made: SignedRelease, tmp_path: Path
) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "dist")
    with one_byte_changed(folder / name):
        with pytest.raises(click.ClickException) as caught:
            release.check(folder)
        expected = f"{name} is not as SHA256SUMS says; fetch the release again"
        assert caught.value.message == expected

        (folder / release.SUMS).write_text(release.sums_of(folder))
        assert made.refused(folder).startswith("SHA256SUMS must not be trusted: ")


def test_a_changed_signature_of_the_sums_is_named(made: SignedRelease, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "dist")
    with one_byte_changed(folder / f"{release.SUMS}{BUNDLE}"):
        assert made.refused(folder).startswith("SHA256SUMS must not be trusted: ")


@pytest.mark.parametrize("part", ["operator", "worker", "chart"])
def test_a_changed_byte_of_an_image_or_chart_in_the_registry_is_named(
    part: str, made: SignedRelease
) -> None:
    with one_byte_changed(made.layer(part)):
        assert made.refused().startswith(f"{made.references[part]} must not be trusted: ")


@pytest.mark.parametrize(
    ("part", "predicate"),
    [
        *((part, COSIGN_SIGN) for part in ("operator", "worker", "chart")),
        *((part, PREDICATES[PROVENANCE]) for part in ("operator", "worker", "chart")),
        *((part, PREDICATES[SPDX]) for part in ("operator", "worker")),
    ],
)
def test_a_changed_signature_in_the_registry_is_named(
    part: str, predicate: str, made: SignedRelease
) -> None:
    with one_byte_changed(made.bundle(part, predicate)):
        assert made.refused().startswith(f"{made.references[part]} must not be trusted: ")


def test_the_signature_of_somebody_else_is_not_ours(made: SignedRelease, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "dist")
    Signer(a_key(tmp_path / "other")).sign_file(folder / release.SUMS)

    assert made.refused(folder).startswith("SHA256SUMS must not be trusted: ")
