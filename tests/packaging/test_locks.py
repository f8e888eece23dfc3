"""What images install is a part of what the tests run with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("operator/requirements.lock", "operator/clerk.lock", "worker_image/requirements.lock")


def pins(lock: str) -> dict[str, str]:
    """Package -> its version, conditions and hashes."""
    entries: dict[str, str] = {}
    name = ""
    for line in (ROOT / lock).read_text().splitlines():
        words = line.partition("#")[0].rstrip(" \\")
        if words[:1].isalnum():
            name = words.partition("==")[0]
            entries[name] = words
        elif name and words:
            entries[name] += words
    return entries


@pytest.mark.parametrize("part", PARTS)
def test_an_image_installs_the_versions_that_the_tests_run_with(part: str) -> None:
    whole = pins("requirements.lock")

    assert [name for name, pin in pins(part).items() if whole[name] != pin] == [], "run `make lock`"


def test_the_images_install_all_that_their_side_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = project["dependencies"], extras["cli"] + extras["operator"]
    worker, operator = ({word.partition(">")[0] for word in words} for words in named)
    operator -= {"trainrun[cli]"}  # the extra of the operator names the other one

    assert worker <= pins("worker_image/requirements.lock").keys()
    assert worker | operator <= pins("operator/requirements.lock").keys()
    assert "torch" not in pins("operator/requirements.lock")


def test_the_frameworks_are_tried_with_the_versions_that_all_else_is_tested_with() -> None:
    whole, tried = pins("requirements.lock"), pins("tests/frameworks/requirements.lock")

    assert {"transformers", "lightning", "accelerate", "mlflow-skinny", "torch"} <= tried.keys()
    assert [n for n in tried.keys() & whole.keys() if tried[n] != whole[n]] == [], "run `make lock`"


@pytest.mark.parametrize("part", [*PARTS, "tests/frameworks/requirements.lock", "tools/syft.lock"])
def test_no_part_of_the_lock_names_a_package_index(part: str) -> None:
    text = (ROOT / part).read_text()

    assert "://" not in text
    assert all("--hash=sha256:" in pin for pin in pins(part).values())
