"""Who made a release, and from what: signatures and provenance by cosign, contents by syft.

Both are found on PATH; `make release` and `make verify-release` put theirs first.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[1]
KEYLESS = "keyless"
"""In the place of a key: cosign asks the workflow that it runs in who it is."""
BUNDLE = ".sigstore.json"
"""Behind the name of a file: cosign's signature of it."""
BUILD_TYPE = "https://trainrun.dev/docs/release#what-comes-out"
PROVENANCE, SPDX = "slsaprovenance1", "spdxjson"
_GITHUB = "https://token.actions.githubusercontent.com"


def run(*command: str | Path, **environment: str) -> str:
    """What it prints, errors among it. Raises ClickException with the last lines."""
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise click.ClickException(f"{command[0]} failed: {done.stdout.strip()[-2000:]}")
    return done.stdout


def bill_of_materials(archive: Path, reference: str, target: Path) -> None:
    """Write what is installed in an image, as SPDX; `reference` is its name and digest."""
    name, _, digest = reference.partition("@")
    said = ("--source-name", name, "--source-version", digest, "--output", f"spdx-json={target}")
    run(
        *("syft", "scan", "--quiet", f"docker-archive:{archive}", *said),
        SYFT_CHECK_FOR_APP_UPDATE="false",
    )


def provenance(commit: str, bases: Sequence[str], times: tuple[str, str]) -> dict[str, Any]:
    """A predicate of SLSA v1: what was built from which commit and base images, by whom.

    `bases`: NAME@sha256:... each; `times`: begin and end, RFC 3339.
    """
    at = {name: os.environ.get(f"GITHUB_{name}", "") for name in ("REPOSITORY", "REF", "RUN_ID")}
    server = os.environ.get("GITHUB_SERVER_URL", "")
    repository = f"{server}/{at['REPOSITORY']}"
    source: dict[str, Any] = {"digest": {"gitCommit": commit}}
    builder, run_of_it = f"{BUILD_TYPE}-by-hand", {}
    if at["REPOSITORY"]:
        source["uri"] = f"git+{repository}@{at['REF']}"
        builder = f"{server}/{os.environ['GITHUB_WORKFLOW_REF']}"
        run_of_it = {"invocationId": f"{repository}/actions/runs/{at['RUN_ID']}"}
    images = [
        {"uri": f"docker://{base}", "digest": {"sha256": base.rpartition(":")[2]}} for base in bases
    ]
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"source": source.get("uri", commit), "bases": list(bases)},
            "resolvedDependencies": [source, *images],
        },
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {"startedOn": times[0], "finishedOn": times[1], **run_of_it},
        },
    }


def statement(subjects: Mapping[str, str], predicate: dict[str, Any]) -> dict[str, Any]:
    """An in-toto statement; `subjects`: name -> hexadecimal SHA-256."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": n, "digest": {"sha256": d}} for n, d in subjects.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": predicate,
    }


def sha256(path: Path) -> str:
    """Of a file's content, hexadecimal."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs with a private key, whose passphrase is in COSIGN_PASSWORD, or as the workflow."""

    key: str

    def __post_init__(self) -> None:
        if self.key != KEYLESS and "COSIGN_PASSWORD" not in os.environ:
            raise click.ClickException(
                f"the passphrase of {self.key} is not known: set COSIGN_PASSWORD"
            )

    def sign(self, reference: str) -> None:
        """An image or chart in a registry, NAME@sha256:...; the signature goes there too."""
        self._cosign("sign", reference)

    def attest(self, reference: str, kind: str, predicate: Path) -> None:
        """Say of it, signed and beside it in the registry, what `predicate` holds."""
        self._cosign("attest", "--type", kind, "--predicate", predicate, reference)

    def sign_file(self, path: Path) -> None:
        """The signature lies beside it."""
        self._cosign("sign-blob", "--bundle", f"{path}{BUNDLE}", path)

    def attest_files(self, path: Path) -> None:
        """Sign the statement in `path`; the signature, which holds a copy, lies beside it."""
        self._cosign("attest-blob", "--bundle", f"{path}{BUNDLE}", "--statement", path)

    def _cosign(self, verb: str, *arguments: str | Path) -> None:
        if self.key == KEYLESS:
            run("cosign", verb, "--yes", *arguments)
            return
        with tempfile.TemporaryDirectory() as folder:
            # Without services: a key needs neither a certificate nor a public log.
            services = Path(folder, "services.json")
            run("cosign", "signing-config", "create", "--out", services)
            with_key = ("--yes", "--key", self.key, "--signing-config", services)
            run("cosign", verb, *with_key, *arguments)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Knows signatures of one public key, or of one workflow of GitHub at one tag.

    Each method raises ClickException, which names what is not signed as it must be.
    """

    key: str = ""
    identity: str = ""

    def signature(self, reference: str) -> None:
        """That an image or chart is signed."""
        self._cosign(reference, "verify", reference)

    def attested(self, reference: str, kind: str) -> list[dict[str, Any]]:
        """The predicates that are signed of it."""
        lines = self._cosign(reference, "verify-attestation", "--type", kind, reference)
        told = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
        return [json.loads(base64.b64decode(each["payload"]))["predicate"] for each in told]

    def file(self, path: Path) -> None:
        """That a file is signed."""
        self._cosign(path.name, "verify-blob", "--bundle", f"{path}{BUNDLE}", path)

    def attested_file(self, path: Path, told: Path) -> None:
        """That a signed statement, in `told`, names a file with this content."""
        bundle = ("--type", PROVENANCE, "--bundle", f"{told}{BUNDLE}")
        self._cosign(path.name, "verify-blob-attestation", *bundle, path)

    def content(self, reference: str) -> None:
        """That each byte in the registry is what its digest says."""
        with tempfile.TemporaryDirectory() as folder:
            _named(reference, "save", "--dir", folder, reference)

    def _cosign(self, what: str, verb: str, *arguments: str | Path) -> str:
        by_workflow = ("--certificate-oidc-issuer", _GITHUB, "--certificate-identity")
        by_key = ("--insecure-ignore-tlog", "--key")
        known = (*by_key, self.key) if self.key else (*by_workflow, self.identity)
        return _named(what, verb, *known, *arguments)


def _named(what: str, verb: str, *arguments: str | Path) -> str:
    try:
        return run("cosign", verb, *arguments)
    except click.ClickException as error:
        last = error.message.strip().splitlines()[-1]
        raise click.ClickException(f"{what} must not be trusted: {verb}: {last}") from error
