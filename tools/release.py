"""What a release consists of, made from this checkout: python -m tools.release make|verify FOLDER.

`make`: wheel and sdist; with a registry also two images and the chart, which names the operator's
image by its digest. `release.json` in FOLDER lists the digests of what was pushed, SHA256SUMS those
of the files. Signatures and attestations are added by .github/workflows/release.yml.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from testbed.binaries import binary
from testbed.images import Pinned
from testbed.project_images import IMAGES, OPERATOR, VERSION, build, push

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "trainrun"
SUMS, REFERENCES = "SHA256SUMS", "release.json"
_DIGEST = re.compile(r"^Digest: (sha256:[0-9a-f]{64})$", re.MULTILINE)


def _run(*command: str | Path, **environment: str) -> str:
    """Its output. Raises ClickException with the last lines."""
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise click.ClickException(f"{command[0]} failed: {done.stdout.strip()[-2000:]}")
    return done.stdout


def packages(folder: Path, source: Path = ROOT) -> list[Path]:
    """Wheel and sdist. The same commit makes the same bytes: every time in them is the commit's."""
    epoch = _run("git", "log", "-1", "--format=%ct").strip()
    kinds = ("--target", "sdist", "--target", "wheel")
    command = (sys.executable, "-m", "hatchling", "build", *kinds, "--directory", folder.resolve())
    _run("env", "-C", source, *command, SOURCE_DATE_EPOCH=epoch)
    return sorted(folder.glob(f"trainrun-{VERSION}*"))


def pinned_chart(folder: Path, image: str) -> Path:
    """The chart as an archive in `folder`; it takes the operator's image, `name@sha256:...`."""
    repository, _, digest = image.partition("@")
    with tempfile.TemporaryDirectory() as name:
        copy = Path(shutil.copytree(CHART, Path(name, "trainrun")))
        values = (copy / "values.yaml").read_text()
        for key, value in (("repository", repository), ("digest", f'"{digest}"')):
            values, found = re.subn(rf"(?m)^  {key}: .*$", f"  {key}: {value}", values, count=1)
            assert found, key
        (copy / "values.yaml").write_text(values)
        _run(binary("helm"), "package", copy, "--destination", folder.resolve())
    return folder / f"trainrun-{VERSION}.tgz"


def push_chart(archive: Path, registry: str) -> str:
    """Upload it below `registry`/charts; returns its reference with digest."""
    plain = ["--plain-http"] if registry.startswith(("localhost", "127.0.0.1")) else []
    target = f"oci://{registry}/charts"
    said = _run(binary("helm"), "push", archive.resolve(), target, *plain)
    digest = _DIGEST.search(said)
    assert digest, said
    return f"{registry}/charts/trainrun@{digest[1]}"


def sums_of(folder: Path) -> str:
    """As `sha256sum` prints them."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)


@click.group()
def main() -> None:
    """Make a release from this checkout, or compare one with it."""


@main.command("make")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--registry", default="", help="where images and chart go, HOST/PATH; none: nowhere")
@click.option("--operator-base", default="", help="base of the operator's image, NAME@sha256:...")
@click.option("--worker-base", default="", help="base of the worker's image, likewise")
def make_release(folder: Path, registry: str, operator_base: str, worker_base: str) -> None:
    """Build into FOLDER, and push images and chart to the registry."""
    if _run("git", "status", "--porcelain"):
        raise click.ClickException("the checkout has changes: a release is made from a commit")
    folder.mkdir(parents=True)
    packages(folder)
    if registry := registry.rstrip("/"):
        references = {}
        for image, base in zip(IMAGES, (operator_base, worker_base), strict=True):
            name = image.name_in(registry)
            digest = push(build(image, Pinned(base) if base else None), name)
            references[image.short] = f"{name.rpartition(':')[0]}@{digest}"
        chart = pinned_chart(folder, references[OPERATOR.short])
        references["chart"] = push_chart(chart, registry)
        (folder / REFERENCES).write_text(json.dumps(references, indent=2) + "\n")
    (folder / SUMS).write_text(sums_of(folder))
    click.echo((folder / SUMS).read_text(), nl=False)


@main.command("verify")
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
def verify_release(folder: Path) -> None:
    """Say whether FOLDER holds what this commit makes, and whether its chart names its image."""
    if (folder / SUMS).read_text() != sums_of(folder):
        raise click.ClickException(f"{folder}: files differ from {SUMS}; fetch the release again")
    with tempfile.TemporaryDirectory() as name:
        for made in packages(Path(name)):
            if made.read_bytes() != (folder / made.name).read_bytes():
                raise click.ClickException(f"{made.name} differs from what this commit makes")
    if (folder / REFERENCES).exists():
        image = json.loads((folder / REFERENCES).read_text())[OPERATOR.short]
        chart = _run(binary("helm"), "template", (folder / f"trainrun-{VERSION}.tgz").resolve())
        if f"image: {image}\n" not in chart:
            raise click.ClickException(f"the chart does not name {image}")
    click.echo(f"{folder} is what this commit makes")


if __name__ == "__main__":
    main()
