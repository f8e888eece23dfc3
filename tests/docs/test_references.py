"""Links lead somewhere, and files that documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.documents import DOCUMENTS, NAMED, PLACES, ROOT, anchor_of, find, section, tables

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|yaml|toml))`")


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    return {anchor_of(head) for head in re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)}


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_what_is_named_in_a_file_is_defined_there(document: Path) -> None:
    for name, path in NAMED.findall(document.read_text()):
        assert re.search(rf"\b{name}\b", find(path).read_text()), f"{name} in {path}"


def test_each_walk_through_the_code_counts_its_files() -> None:
    document = (ROOT / "docs" / "architecture.md").read_text()
    text = section(document, "## Four walks through the code")
    walks = re.findall(r"^\*\*(.*)\*\*: (\d+) files$", text, re.MULTILINE)
    assert len(walks) == 4
    for (walk, files), table in zip(walks, tables(text), strict=True):
        named = {name for row in table for name in re.findall(r"`([\w/]+\.py)`", " ".join(row))}
        assert len(named) == int(files), walk


def test_the_verbs_that_are_named_are_in_the_makefile() -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        text = document.read_text()
        for verb in re.findall(r"(?:^|`)make ([a-z-]*[a-z])\b(?!-)", text, re.MULTILINE):
            assert verb in verbs, f"{document.name}: make {verb}"
