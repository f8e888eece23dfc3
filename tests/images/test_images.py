"""The images that this repository makes, as archives: what is in them, and what must not be."""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import project_images
from testbed.errors import ClusterUnavailable
from testbed.index_access import secrets
from testbed.project_images import IMAGES, OPERATOR, ROOT, WORKER, build, compressed_size

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class Opened:
    """One image out of its archive."""

    archive: Path
    names: list[str]
    config: dict[str, Any]
    files: frozenset[str]
    """Paths without the slash in front, of all layers."""

    def contents(self, start: str, end: str) -> dict[str, bytes]:
        """Path -> what the files hold whose paths start and end so."""
        found = {}
        with tarfile.open(self.archive) as outer:
            (manifest,) = json.load(member(outer, "manifest.json"))
            for layer in manifest["Layers"]:
                with tarfile.open(fileobj=member(outer, layer)) as inner:
                    for entry in inner:
                        name = entry.name.removeprefix("./")
                        if name.startswith(start) and name.endswith(end) and entry.isfile():
                            found[name] = member(inner, entry.name).read()
        return found

    @property
    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = self.config["config"]
        return found


@pytest.fixture(scope="module")
def images() -> dict[str, Opened]:
    """By the references of the images."""
    try:
        return {image.name: opened(build(image)) for image in IMAGES}
    except ClusterUnavailable as error:
        pytest.skip(f"NO IMAGES COULD BE BUILT: {error}")


def opened(archive: Path) -> Opened:
    with tarfile.open(archive) as outer:
        (manifest,) = json.load(member(outer, "manifest.json"))
        config = json.load(member(outer, manifest["Config"]))
        files: set[str] = set()
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=member(outer, layer)) as inner:
                files |= {name.removeprefix("./") for name in inner.getnames()}
    return Opened(archive, manifest["RepoTags"], config, frozenset(files))


def member(archive: tarfile.TarFile, name: str) -> Any:
    found = archive.extractfile(archive.getmember(name))
    assert found is not None
    return found


def test_the_archives_name_the_images_as_the_chart_does(images: dict[str, Opened]) -> None:
    chart = yaml.safe_load((ROOT / "charts" / "trainrun" / "Chart.yaml").read_text())
    operator = f"docker.io/trainrun/operator:{chart['appVersion']}"
    worker = f"docker.io/trainrun/worker:{chart['appVersion']}"

    assert {name: image.names for name, image in images.items()} == {
        operator: [operator],
        worker: [worker],
    }


def test_the_operators_image_is_small(images: dict[str, Opened]) -> None:
    assert compressed_size(images[OPERATOR.name].archive) <= 150e6


def test_no_image_runs_as_root(images: dict[str, Opened]) -> None:
    assert {image.run["User"] for image in images.values()} == {"65532:65532"}


def test_the_operators_image_starts_the_operator(images: dict[str, Opened]) -> None:
    run = images[OPERATOR.name].run

    assert run["Entrypoint"] == ["python3", "-m", "trainrun_operator.cluster.app"]
    assert "PYTHONPATH=/opt/trainrun/app:/opt/trainrun/site" in run["Env"]


def test_the_operators_image_holds_the_agent_and_only_the_agent_knows_stores(
    images: dict[str, Opened],
) -> None:
    files = images[OPERATOR.name].files

    assert {
        "opt/trainrun/agent.zip",
        "opt/trainrun/app/trainrun_operator/cluster/app.py",
        "opt/trainrun/site/kopf/__init__.py",
    } <= files
    assert "opt/trainrun/site/boto3/__init__.py" not in files


def test_the_archive_holds_the_agent_with_what_it_needs(images: dict[str, Opened]) -> None:
    assert {
        "run.py",
        "trainrun/agent/main.py",
        "lib/trainrun/__init__.py",
        "libraries/boto3/__init__.py",
    } <= agent(images).keys()


OF_OTHERS = re.compile(r"(sweep/|checkpoint/(sweep_log|inspection)\.|_samplers/).*")
"""Modules of the process that keeps a sweep's log, which has an image of its own, and of the
command line."""


def test_an_edit_of_the_code_reaches_the_archive(images: dict[str, Opened]) -> None:
    source = ROOT / "worker_image" / "trainrun"
    expected = {
        path.relative_to(source).as_posix(): path.read_bytes() for path in source.rglob("*.py")
    }

    of_agent, of_scripts = modules(images, "trainrun/"), modules(images, "lib/trainrun/")

    assert {**of_agent, **of_scripts} == {
        name: content for name, content in expected.items() if not OF_OTHERS.fullmatch(name)
    }
    assert {"agent/__main__.py", "checkpoint/__init__.py"} <= of_agent.keys()
    assert {"_process/reporting.py", "tasks/__init__.py", "torch/__init__.py"} <= of_scripts.keys()


def modules(images: dict[str, Opened], folder: str) -> dict[str, bytes]:
    """The modules that workers fetch below this folder of the archive."""
    return {
        name.removeprefix(folder): content
        for name, content in agent(images).items()
        if name.startswith(folder) and name.endswith(".py")
    }


def agent(images: dict[str, Opened]) -> dict[str, bytes]:
    """The files that workers fetch."""
    (packed,) = images[OPERATOR.name].contents("opt/trainrun/agent.zip", "").values()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_operators_modules_are_compiled(images: dict[str, Opened]) -> None:
    # It cannot do that itself: its root file system is read-only.
    compiled = [
        name
        for name in images[OPERATOR.name].files
        if name.startswith("opt/trainrun/app/trainrun_operator/cluster/__pycache__/app.")
    ]

    assert len(compiled) == 1


def test_the_workers_image_has_our_packages_before_its_distributions(
    images: dict[str, Opened],
) -> None:
    installed = {
        name.partition("-packages/")[2]
        for name in images[WORKER.name].files
        if name.startswith("usr/local/lib/python3")
    }

    assert {"trainrun/agent/__main__.py", "boto3/__init__.py"} <= installed
    assert "USE_LIBUV=0" in images[WORKER.name].run["Env"]


@pytest.mark.parametrize(
    ("name", "place", "package"),
    [
        (OPERATOR.name, "opt/trainrun/app", "operator/trainrun_operator"),
        (OPERATOR.name, "opt/trainrun/app", "worker_image/trainrun"),
        (WORKER.name, "usr/local/lib/python3.13/dist-packages", "worker_image/trainrun"),
    ],
)
def test_an_edit_of_the_code_reaches_the_image(
    images: dict[str, Opened], name: str, place: str, package: str
) -> None:
    # The worker's image once held what an earlier build had cached.
    source = ROOT / package
    expected = {path.relative_to(source.parent).as_posix() for path in source.rglob("*.py")}
    found = images[name].contents(f"{place}/{source.name}/", ".py")

    assert {file.removeprefix(f"{place}/") for file in found} == expected
    for file, content in found.items():
        assert content == (source.parent / file.removeprefix(f"{place}/")).read_bytes(), file


def test_nothing_of_the_build_is_left_in_an_image(images: dict[str, Opened]) -> None:
    with secrets() as options:
        settings = Path(options[-1].partition("src=")[2]).read_text()
    values = [line.partition(" = ")[2] for line in settings.splitlines() if "://" in line]

    for image in images.values():
        assert [name for name in image.files if name.startswith("build")] == []
        assert not any(value in json.dumps(image.config) for value in values)


def test_an_unchanged_tree_builds_nothing(
    images: dict[str, Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_images, "builder", lambda: pytest.fail("it was built again"))

    assert build(OPERATOR) == images[OPERATOR.name].archive
