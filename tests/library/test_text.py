"""Texts from outside are made harmless, and clean ones are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.support.levels import examples
from tests.support.texts import ANY_TEXT
from trainrun._common.text import LONGEST_TEXT, cleaned, one_line


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: bad batch",
        "損失 0.5 ±1e-3",
        "a\tb\nc",
        "हिन्दी",
        "👩‍👩‍👧",
        "…" * LONGEST_TEXT,
    ],
)
def test_a_clean_text_is_left_alone(text: str) -> None:
    assert cleaned(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("half \udc80 a character", "half \ufffd a character"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        (
            "\x1b]8;;https://host\x1b\\link\x1b]8;;\x07, \x1b]0;title\nand\x1b(B all",
            "link, \nand all",
        ),
        ("bell \x07, escape \x1b, NUL \x00", "bell \ufffd, escape \ufffd, NUL \ufffd"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("exec(\u202etxt.\u202c)", "exec(\ufffdtxt.\ufffd)"),
        ("\u0085", "\ufffd"),
    ],
)
def test_what_nobody_can_write_or_show_is_marked(text: str, clean: str) -> None:
    assert cleaned(text) == clean


def test_a_huge_text_is_cut_with_a_sign() -> None:
    assert cleaned("x" * 10_000_000) == "x" * (LONGEST_TEXT - 1) + "…"


@settings(max_examples=examples(500), deadline=None)
@given(text=ANY_TEXT)
def test_any_text_can_be_written_afterwards_and_is_clean(text: str) -> None:
    clean = cleaned(text)
    clean.encode()
    assert cleaned(clean) == clean
    assert len(clean) <= LONGEST_TEXT


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a b", "a b"),
        (" indented", " indented"),
        ("CUDA error: x\n\n  see the log\n", "CUDA error: x see the log"),
        ("one\u2028two\x0bthree", "one two three"),
        ("tab\there", "tab\there"),
    ],
)
def test_a_text_of_several_lines_becomes_one(text: str, line: str) -> None:
    assert one_line(text) == line
