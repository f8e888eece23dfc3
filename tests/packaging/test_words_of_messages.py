"""What a user reads has the words of the field, not those that we say among ourselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("operator/trainrun_operator", "worker_image/trainrun", "worker_image/inject")
BETTER = {
    r"any more": "no longer",
    r"anew": "again, from scratch",
    r"go(?:es)? on|went on|gone on|going on": "continue",
    r"so long": "until, while",
    r"nobody|somebody|everybody|whoever": "name who: the user, the operator, another process",
    r"he|him|his": "it, its",
    r"in vain": "failed",
    r"besides": "also",
    r"tells?|telling|told": "report, show, say",
    r"hears?|heard|unheard": "receive, answer, heartbeat",
    r"for ever": "forever",
    r"lately|of late": "recently",
    r"again and again": "repeatedly",
    r"(?:is|are|was|were) to (?!blame)": "must, should, will",
    r"begun": "started",
}
"""A pattern of words that no message may have, and what to say instead."""
_WORDS = re.compile("|".join(rf"\b(?P<w{i}>{words})\b" for i, words in enumerate(BETTER)), re.I)


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string of two or more words that is no docstring: what may be shown."""
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (node not in docstrings and " " in node.value.strip())
        ):
            yield node.lineno, node.value


def better_words(text: str) -> list[str]:
    """For each word that no message may have: the word, and what to say instead."""
    choices = list(BETTER.values())
    return [
        f"{found[0]!r}: better {choices[int(str(found.lastgroup)[1:])]}"
        for found in _WORDS.finditer(text)
    ]


def test_no_message_has_a_word_that_only_we_use() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {word} in {text!r}"
        for shipped in SHIPPED
        for path in sorted((ROOT / shipped).rglob("*.py"))
        for line, text in messages(path.read_text())
        for word in better_words(text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the run goes on", ["goes on"]),
        ("no pod is left any more", ["any more"]),
        ("the worker is to be deleted", ["is to "]),
        ("there is more to be done", []),
        ("the store has forgotten this", []),
    ],
)
def test_such_words_are_found_in_a_text(text: str, words: list[str]) -> None:
    assert [found.split(":")[0].strip("'") for found in better_words(text)] == words


def test_a_docstring_may_have_them() -> None:
    source = '"""Nobody is told."""\nwhy = f"it goes on {x}"\n'
    assert [text for _, text in messages(source)] == ["it goes on "]
