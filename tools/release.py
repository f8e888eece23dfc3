"""What a release consists of, made from this checkout: python -m tools.release make|verify FOLDER.

`make`: wheel and sdist; with a registry also two images and the chart, which names the operator's
image by its digest. `release.json` in FOLDER lists the digests of what was pushed, `NAME.spdx.json`
what is in an image, `provenance.json` from which commit all was made, SHA256SUMS the digests of the
files. With a key, images, chart, SHA256SUMS and what is said of them are signed.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.binaries import binary
from testbed.images import Pinned
from testbed.project_images import IMAGES, OPERATOR, VERSION, build, push
from tools.signing import (
    KEYLESS,
    PROVENANCE,
    ROOT,
    SPDX,
    Signer,
    Verifier,
    bill_of_materials,
    provenance,
    run,
    sha256,
    statement,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHART = ROOT / "charts" / "trainrun"
SUMS, REFERENCES, ORIGIN = "SHA256SUMS", "release.json", "provenance.json"
_DIGEST = re.compile(r"^Digest: (sha256:[0-9a-f]{64})$", re.MULTILINE)


def packages(folder: Path, source: Path = ROOT) -> list[Path]:
    """Wheel and sdist. The same commit makes the same bytes: every time in them is the commit's."""
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    kinds = ("--target", "sdist", "--target", "wheel")
    command = (sys.executable, "-m", "hatchling", "build", *kinds, "--directory", folder.resolve())
    run("env", "-C", source, *command, SOURCE_DATE_EPOCH=epoch)
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
        shown = (copy / "Chart.yaml").read_text()
        (copy / "Chart.yaml").write_text(
            shown.replace(f"image: {OPERATOR.name}", f"image: {image}")
        )
        run(binary("helm"), "package", copy, "--destination", folder.resolve())
    return folder / f"trainrun-{VERSION}.tgz"


def push_chart(archive: Path, registry: str) -> str:
    """Upload it below `registry`/charts; returns its reference with digest."""
    plain = ["--plain-http"] if registry.startswith(("localhost", "127.0.0.1")) else []
    target = f"oci://{registry}/charts"
    said = run(binary("helm"), "push", archive.resolve(), target, *plain)
    digest = _DIGEST.search(said)
    assert digest, said
    return f"{registry}/charts/trainrun@{digest[1]}"


def sums_of(folder: Path) -> str:
    """As `sha256sum` prints them."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith(SUMS))
    return "".join(f"{sha256(path)}  {path.name}\n" for path in files)


def _by_name(sums: str) -> dict[str, str]:
    return {
        name: digest for digest, _, name in (line.partition("  ") for line in sums.splitlines())
    }


def _pushed(folder: Path, registry: str, bases: Sequence[str]) -> dict[str, str]:
    """Build and push images and chart, and write down what is in them; part -> NAME@sha256:..."""
    references = {}
    for image, base in zip(IMAGES, bases, strict=True):
        name = image.name_in(registry)
        archive = build(image, Pinned(base) if base else None)
        references[image.short] = f"{name.rpartition(':')[0]}@{push(archive, name)}"
        bill_of_materials(archive, references[image.short], folder / _bill(image.short))
    chart = pinned_chart(folder, references[OPERATOR.short])
    references["chart"] = push_chart(chart, registry)
    (folder / REFERENCES).write_text(json.dumps(references, indent=2) + "\n")
    return references


def _bill(short: str) -> str:
    return f"{short}.spdx.json"


def make(folder: Path, registry: str = "", bases: Sequence[str] = ("", ""), key: str = "") -> None:
    """Build into a new `folder`, an absolute path; push and sign where there is a registry, a key.

    `bases`: of the images of operator and worker, NAME@sha256:..., or "" for our own.
    """
    signer = Signer(key) if key else None
    folder.mkdir(parents=True)
    begun = _now()
    packages(folder)
    references = _pushed(folder, registry, bases) if registry else {}
    commit = run("git", "rev-parse", "HEAD").strip()
    predicate = provenance(commit, [base for base in bases if base], (begun, _now()))
    subjects = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    for name, _, digest in (reference.partition("@sha256:") for reference in references.values()):
        subjects[name] = digest
    (folder / ORIGIN).write_text(json.dumps(statement(subjects, predicate), indent=2) + "\n")
    (folder / SUMS).write_text(sums_of(folder))
    if signer:
        check(folder)
        _sign(folder, references, predicate, signer)
        (folder / SUMS).write_text(sums_of(folder))
        signer.sign_file(folder / SUMS)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _sign(
    folder: Path, references: Mapping[str, str], predicate: Mapping[str, Any], signer: Signer
) -> None:
    signer.attest_files(folder / ORIGIN)
    with tempfile.TemporaryDirectory() as name:
        origin = Path(name, ORIGIN)
        origin.write_text(json.dumps(predicate))
        for part, reference in references.items():
            signer.sign(reference)
            signer.attest(reference, PROVENANCE, origin)
            if (bill := folder / _bill(part)).exists():
                signer.attest(reference, SPDX, bill)


def check(folder: Path) -> set[str]:
    """Raises ClickException unless `folder`, an absolute path, holds what this commit makes.

    Returns the names of the files that it has made again and compared: packages and chart.
    """
    sums, now = _by_name((folder / SUMS).read_text()), _by_name(sums_of(folder))
    for name in sorted(sums.keys() | now.keys()):
        if sums.get(name) != now.get(name):
            raise click.ClickException(f"{name} is not as {SUMS} says; fetch the release again")
    commit = run("git", "rev-parse", "HEAD").strip()
    if f'"gitCommit": "{commit}"' not in (folder / ORIGIN).read_text():
        raise click.ClickException(f"{ORIGIN} names another commit than {commit}; check that out")
    with tempfile.TemporaryDirectory() as temporary:
        same = {
            made.name: sha256(made) == sums.get(made.name) for made in packages(Path(temporary))
        }
        if (folder / REFERENCES).exists():
            image = json.loads((folder / REFERENCES).read_text())[OPERATOR.short]
            made = pinned_chart(Path(temporary), image)
            same[made.name] = made.name in sums and _packed(made) == _packed(folder / made.name)
    for name, is_same in same.items():
        if not is_same:
            raise click.ClickException(f"{name} differs from what this commit makes")
    return {*same}


def _packed(archive: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content by name: Helm also writes the time into an archive."""
    found = {}
    with tarfile.open(archive) as members:
        for each in members:
            content = members.extractfile(each)
            found[each.name] = each.mode, content.read() if content else each.type
    return found


def check_signatures(folder: Path, verifier: Verifier) -> None:
    """Raises ClickException, which names what in `folder`, or in the registry, is not as signed."""
    verifier.file(folder / SUMS)
    origin = json.loads((folder / ORIGIN).read_text())
    for subject in origin["subject"]:
        if (path := folder / subject["name"]).is_file():
            verifier.attested_file(path, folder / ORIGIN)
    told = folder / REFERENCES
    references = json.loads(told.read_text() if told.exists() else "{}")
    for part, reference in references.items():
        verifier.signature(reference)
        expected = {PROVENANCE: origin["predicate"]}
        if (bill := folder / _bill(part)).exists():
            expected[SPDX] = json.loads(bill.read_text())
        for kind, predicate in expected.items():
            if predicate not in verifier.attested(reference, kind):
                raise click.ClickException(f"{reference} must not be trusted: another {kind}")
    for reference in references.values():
        verifier.content(reference)


@click.group()
def main() -> None:
    """Make a release from this checkout, or compare one with it."""


@main.command("make")
@click.argument("folder", type=click.Path(path_type=Path, resolve_path=True))
@click.option("--registry", default="", help="where images and chart go, HOST/PATH; none: nowhere")
@click.option("--operator-base", default="", help="base of the operator's image, NAME@sha256:...")
@click.option("--worker-base", default="", help="base of the worker's image, likewise")
@click.option(
    "--key", default="", help=f"cosign's private key, or `{KEYLESS}`; none: no signatures"
)
def make_release(
    folder: Path, registry: str, operator_base: str, worker_base: str, key: str
) -> None:
    """Build into FOLDER, push images and chart to the registry, and sign all that."""
    if run("git", "status", "--porcelain"):
        raise click.ClickException("the checkout has changes: a release is made from a commit")
    make(folder, registry.rstrip("/"), (operator_base, worker_base), key)
    click.echo((folder / SUMS).read_text(), nl=False)


@main.command("verify")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, resolve_path=True))
@click.option("--key", default="", help="cosign's public key")
@click.option("--identity", default="", help="of the workflow that signed without a key, a URL")
def verify_release(folder: Path, key: str, identity: str) -> None:
    """Say what of FOLDER is what this commit makes, and whether all of it was signed."""
    compared = check(folder)
    if signed := key or identity:
        check_signatures(folder, Verifier(key=key, identity=identity))
    others = sorted(_by_name((folder / SUMS).read_text()).keys() - compared)
    images = ["the images"] if (folder / REFERENCES).exists() else []
    by = f"all is signed by {signed}" if signed else "no signature was looked at (KEY, IDENTITY)"
    click.echo(
        f"{folder}: {', '.join(sorted(compared))} are what this commit makes; {by}; not made again "
        f"and compared: {', '.join([*others, *images])}"
    )


if __name__ == "__main__":
    main()
