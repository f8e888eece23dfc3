"""A list is read object by object, however large its objects are and wherever its text is cut."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given as given_that
from hypothesis import strategies as st

from trainrun_operator.kube.json_text import Items


def read(text: bytes, size: int) -> tuple[list[Any], Any]:
    items = Items()
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    found = [json.loads(item) for part in parts for item in items.feed(part)]
    return found, items.rest()


ODD = {"items": [{"items": [1]}], "text": 'a "quoted\\" ]}[{ text', "deep": [[[{}]]], "ü": "\\"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("order", ["metadata first", "metadata last"])
def test_the_objects_of_a_list_are_those_of_its_text_wherever_that_is_cut(
    size: int, order: str
) -> None:
    metadata = {"resourceVersion": "7", "continue": "items", "odd": [1, [2]]}
    given = [ODD, {}, {"metadata": {"name": "b"}}]
    listed = {"metadata": metadata, "kind": "List", "items": given}
    if order == "metadata last":
        listed = {"items": given, "kind": "List", "metadata": metadata}

    found, rest = read(json.dumps(listed, ensure_ascii=False).encode(), size)

    assert found == given
    assert rest == {**listed, "items": []}


TEXTS = st.text(alphabet='"\\]}[{<n\u00fc\n', max_size=12)
VALUES = st.recursive(
    TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given_that(
    objects=st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=4),
    around=st.dictionaries(TEXTS, VALUES, max_size=2),
    size=st.integers(1, 40),
    escaped=st.booleans(),
)
def test_no_text_however_escaped_and_cut_is_taken_for_another(
    objects: list[Any], around: dict[str, Any], size: int, escaped: bool
) -> None:
    listed = {**around, "items": objects, "metadata": around}
    text = json.dumps(listed, ensure_ascii=escaped)
    text = text.replace("<", "\\u003c") if escaped else text  # as the API server does

    found, rest = read(text.encode(), size)

    assert found == objects
    assert rest == {**listed, "items": []}


@pytest.mark.slow
def test_a_long_text_of_escapes_is_looked_at_once() -> None:
    """One environment variable kept the operator busy for eight seconds with every list."""
    text = b'{"items": [{"a": "' + b"\\u003c" * 1_200_000 + b'"}]}'
    begun = time.process_time()

    found, _ = read(text, 64 * 1024)

    assert [len(it["a"]) for it in found] == [1_200_000]
    assert time.process_time() - begun < 4


@pytest.mark.parametrize("items", ["null", "[]", "[ ]"])
def test_a_list_may_be_empty(items: str) -> None:
    found, rest = read(f'{{"items": {items}, "metadata": {{}}}}'.encode(), 5)

    assert (found, rest["metadata"]) == ([], {})


@pytest.mark.case("operator", "Somebody creates hundreds of objects of a megabyte each")
def test_no_more_than_one_object_is_held_at_a_time() -> None:
    items, held = Items(), 0
    large = json.dumps({"text": "x" * 100_000}).encode()
    for part in (b'{"items": [', *([large, b", "] * 50), large, b"]}"):
        for _ in items.feed(part):
            pass
        held = max(held, len(items._text))

    assert held < 2 * len(large)


def test_what_is_no_list_is_an_error_or_is_given_as_it_is() -> None:
    assert read(b'{"kind": "Status", "code": 404}', 3) == ([], {"kind": "Status", "code": 404})
    with pytest.raises(ValueError, match="Expecting"):
        read(b"<html>", 3)
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        read(b'{"items": [{"a": 1}, {"b', 4)
