"""The picture of the README: a recording, small, and of what the command prints now."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tests.docs.documents import ROOT
from tools.picture import COMMAND, picture

FILE = ROOT / "docs" / "first-run.svg"


def shown(svg: str) -> str:
    root = ElementTree.fromstring(svg)
    lines = (node.text or "" for node in root.iter() if node.tag.endswith("}text"))
    return " ".join(" ".join(lines).replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_picture_is_small_asks_nobody_and_shows_both_resumes() -> None:
    svg = FILE.read_text()

    assert len(svg.encode()) < 30_000
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    text = shown(svg)
    assert text.startswith(f"$ {COMMAND} ")
    assert "rank 2 was killed by SIGKILL" in text
    assert "Run first succeeded" in text
    assert "failures 2/3" in text


def test_the_readme_runs_what_its_picture_shows() -> None:
    readme = (ROOT / "README.md").read_text()

    assert "](docs/first-run.svg)" in readme
    assert COMMAND.replace(" train.yaml ", " first/train.yaml ") in readme
    assert readme.count("\n") <= 101


def test_what_went_wrong_is_red_and_text_stays_text() -> None:
    svg = picture("AppError: a < b\n")

    assert re.search(r'class="run-r1"[^>]*>AppError<', svg)
    assert "a&#160;&lt;&#160;b" in svg
