"""The glossary explains every word of the closed lists."""

from __future__ import annotations

import re
from typing import get_args, get_type_hints

import pytest

from tests.docs.documents import ROOT, heading_of, section, tables
from tests.docs.test_failure_model import problems_of_agents
from trainrun.contract.agent_state import Outcome, Phase
from trainrun.contract.answer import Order, SaveOrder
from trainrun_operator.api.run.status import PhaseName
from trainrun_operator.api.run.status_parts import Cause, EndingKind
from trainrun_operator.core.run.display import LASTING

GLOSSARY = ROOT / "docs" / "glossary.md"
TEXT = GLOSSARY.read_text()
LISTS = "## Closed lists of words"

WORDS = {
    *(cause.value for cause in Cause),
    *get_args(PhaseName),
    *LASTING,
    *problems_of_agents(),
    *(order.__name__ for order in get_args(Order)),
    *get_args(Outcome),
    *get_args(Phase),
    *get_args(get_type_hints(SaveOrder)["stage"]),
    *get_args(EndingKind),
}
ROWS = [row for table in tables(TEXT[: TEXT.index(LISTS)]) for row in table]


def words_in_tables(text: str) -> set[str]:
    """The first two columns: conditions have their reasons in the second one."""
    cells = [cell for table in tables(text) for row in table for cell in row[:2]]
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def listed() -> set[str]:
    """Words in the tables that the section about closed lists has and links to."""
    own = section(TEXT, LISTS)
    found = words_in_tables(own)
    for target in re.findall(r"\]\(([^)]+)\)", own):
        path, _, anchor = target.partition("#")
        text = (GLOSSARY.parent / path).read_text()
        found |= words_in_tables(section(text, heading_of(text, anchor)) if anchor else text)
    return found


@pytest.mark.parametrize("word", sorted(WORDS))
def test_every_word_of_a_closed_list_has_a_row(word: str) -> None:
    assert word in listed()


def test_no_word_has_two_entries() -> None:
    words = [word for row in ROWS for word in row[0].split(", ")]
    assert len(words) == len(set(words))


def test_the_entries_stand_where_people_begin_to_read() -> None:
    assert "](docs/glossary.md)" in (ROOT / "README.md").read_text()
    assert "](glossary.md)" in (ROOT / "docs" / "architecture.md").read_text()
