"""Links lead somewhere, and files that documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.documents import DOCUMENTS, ROOT, section, tables

SIDES = (ROOT / "operator", ROOT / "worker_image")
PLACES = (ROOT, *SIDES, SIDES[0] / "trainrun_operator", SIDES[1] / "trainrun")
"""What a path may be relative to."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|yaml|toml))`")


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {text.replace(" ", "-") for text in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_lead_somewhere(document: Path) -> None:
    for target in _LINK.findall(document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_files_that_are_named_are_there(document: Path) -> None:
    for name in _FILE.findall(document.read_text()):
        assert any((place / name).exists() for place in PLACES), name


def test_every_module_of_the_core_has_its_place_in_the_map() -> None:
    text = section((ROOT / "docs" / "architecture.md").read_text(), "## Where to find what")
    cells = [row[1] for table in tables(text) for row in table]
    named = {name for cell in cells for name in re.findall(r"core/\w+", cell)}
    modules = (ROOT / "operator" / "trainrun_operator" / "core").glob("[a-z]*.py")
    assert {f"core/{path.stem}" for path in modules} == named


def test_the_verbs_that_are_named_are_in_the_makefile() -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        text = document.read_text()
        for verb in re.findall(r"(?:^|`)make ([a-z-]*[a-z])\b(?!-)", text, re.MULTILINE):
            assert verb in verbs, f"{document.name}: make {verb}"
