"""A release: the same commit makes the same packages, and the chart takes one image alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
import yaml
from click.testing import CliRunner

from tests.chart.rendering import helm
from tests.support.registry import a_registry
from tools import release
from trainrun_operator.api.loading import load_trainrun

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGE = f"127.0.0.1:1/trainrun/operator@sha256:{'a' * 64}"


def verified(folder: Path) -> str:
    return CliRunner().invoke(release.main, ["verify", str(folder)]).output


def contents(paths: Sequence[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release without images."""
    folder = tmp_path_factory.mktemp("made") / "release"
    release.make(folder)
    return folder


@pytest.mark.slow
def test_two_builds_of_one_commit_elsewhere_and_later_are_the_same_bit_for_bit(
    made: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = subprocess.run(listed, cwd=release.ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, names.stdout.split("\0")):
        copy = other / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / name, copy)
        os.utime(copy, (1e9, 1e9))
    again = contents(release.packages(tmp_path / "dist", other))

    assert sorted(again) == ["trainrun-0.1.0-py3-none-any.whl", "trainrun-0.1.0.tar.gz"]
    assert again == contents(list(made.glob("trainrun-*")))


@pytest.mark.slow
def test_a_release_of_this_commit_is_known_again_and_a_changed_file_is_found(
    made: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "release"
    shutil.copytree(made, folder)
    wheel, sdist = next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))
    assert verified(folder) == (
        f"{folder}: {wheel.name}, {sdist.name} are what this commit makes; no signature was looked "
        "at (KEY, IDENTITY); not made again and compared: provenance.json\n"
    )

    wheel.write_bytes(wheel.read_bytes() + b" ")
    differs = f"Error: {wheel.name} is not as SHA256SUMS says; fetch the release again\n"
    assert verified(folder) == differs
    (folder / release.SUMS).write_text(release.sums_of(folder))
    assert verified(folder) == f"Error: {wheel.name} differs from what this commit makes\n"


@pytest.mark.slow
def test_a_chart_with_another_template_is_found_though_the_sums_were_written_anew(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helm()
    folder = shutil.copytree(made, tmp_path / "release")
    (folder / release.REFERENCES).write_text(json.dumps({"operator": IMAGE}))
    for name in ("operator.spdx.json", "worker.spdx.json"):
        (folder / name).write_text("{}")
    chart = release.pinned_chart(folder, IMAGE)
    (folder / release.SUMS).write_text(release.sums_of(folder))
    told = verified(folder)
    assert f"{chart.name} are what this commit makes" in told
    others = "operator.spdx.json, provenance.json, release.json, worker.spdx.json, the images"
    assert told.endswith(f"not made again and compared: {others}\n")

    changed = shutil.copytree(release.CHART, tmp_path / "chart")
    (changed / "templates" / "extra.yaml").write_text("kind: Secret\n")
    with monkeypatch.context() as patch:
        patch.setattr(release, "CHART", changed)
        release.pinned_chart(folder, IMAGE)
    (folder / release.SUMS).write_text(release.sums_of(folder))
    assert verified(folder) == f"Error: {chart.name} differs from what this commit makes\n"


@pytest.mark.slow
def test_the_chart_of_a_release_takes_the_image_of_its_digest_and_no_other(tmp_path: Path) -> None:
    helm()
    archive = release.pinned_chart(tmp_path, IMAGE)

    shown = subprocess.run([helm(), "template", archive], capture_output=True, text=True)
    page = subprocess.run([helm(), "show", "chart", archive], capture_output=True, text=True)
    assert f"      image: {IMAGE}\n" in page.stdout
    images = {line.split()[-1] for line in shown.stdout.splitlines() if " image: " in line}
    assert images == {IMAGE}


def test_the_page_of_the_chart_shows_its_image_and_a_run_that_is_valid() -> None:
    chart = yaml.safe_load((release.CHART / "Chart.yaml").read_text())
    shown = {
        name: yaml.safe_load(text)
        for name, text in chart["annotations"].items()
        if name.startswith("artifacthub.io/")
    }

    assert shown["artifacthub.io/images"] == [{"name": "operator", "image": release.OPERATOR.name}]
    assert {crd["kind"] for crd in shown["artifacthub.io/crds"]} == {"TrainRun", "TrainSweep"}
    (example,) = shown["artifacthub.io/crdsExamples"]
    assert load_trainrun(yaml.safe_dump(example), source="Chart.yaml").spec.workers.replicas == 2


def test_the_workflow_signs_verifies_and_only_then_publishes_a_release() -> None:
    text = (release.ROOT / ".github" / "workflows" / "release.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    lines = "\n".join(step.get("run", "") for step in job["steps"])

    assert lines.index("make release KEY=keyless") < lines.index("make verify-release IDENTITY=")
    assert lines.index("make verify-release IDENTITY=") < lines.index("gh release create")
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == []


@pytest.mark.slow
def test_the_provenance_of_a_release_without_images_names_its_commit_and_its_files(
    made: Path,
) -> None:
    told = json.loads((made / "provenance.json").read_text())
    head = ("git", "rev-parse", "HEAD")
    commit = subprocess.run(head, cwd=release.ROOT, capture_output=True, text=True, check=True)

    origin = {"digest": {"gitCommit": commit.stdout.strip()}}
    assert told["predicateType"] == "https://slsa.dev/provenance/v1"
    assert told["predicate"]["buildDefinition"]["resolvedDependencies"] == [origin]
    names = ["trainrun-0.1.0-py3-none-any.whl", "trainrun-0.1.0.tar.gz"]
    assert [subject["name"] for subject in told["subject"]] == names


def test_a_release_of_another_commit_is_not_verified(made: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(made, tmp_path / "release")
    told = folder / "provenance.json"
    told.write_text(re.sub(r'"gitCommit": "\w+"', '"gitCommit": "0"', told.read_text()))
    (folder / release.SUMS).write_text(release.sums_of(folder))

    assert verified(folder).startswith("Error: provenance.json names another commit than ")


def test_a_key_without_its_passphrase_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COSIGN_PASSWORD", raising=False)
    missing = "the passphrase of a.key is not known: set COSIGN_PASSWORD"
    with pytest.raises(click.ClickException, match=missing):
        release.make(tmp_path / "release", key="a.key")
    assert not (tmp_path / "release").exists()


@pytest.mark.slow
def test_the_chart_is_pushed_as_an_artefact_that_helm_finds_by_its_version(tmp_path: Path) -> None:
    helm()
    archive = release.pinned_chart(tmp_path, IMAGE)
    with a_registry() as registry:
        reference = release.push_chart(archive, f"{registry.host}/ml")
        manifest = registry.manifest("ml/charts/trainrun", "0.1.0")

    assert reference.partition("@")[2] in registry.by_digest
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    assert registry.blobs[manifest["layers"][0]["digest"]] == archive.read_bytes()
