"""What the API server sends is read, whatever one user has put into it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainrun_operator.kube.json_text import DEEPEST, decoded


@pytest.fixture(autouse=True)
def as_in_an_operator() -> Iterator[None]:
    """Other tests in this process may have had Python take more levels."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def nested(levels: int, opened: str, closed: str) -> str:
    return opened * levels + "1" + closed * levels


def levels_of(value: Any) -> int:
    levels = 0
    while value not in ([], {}, 1):
        value, levels = (value[0] if isinstance(value, list) else value["a"]), levels + 1
    return levels


def test_an_object_is_read_as_it_is() -> None:
    given = {"a": [1, {"b": 'ü "[{'}], "c": None}
    assert decoded(json.dumps(given).encode()) == given


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")], ids=["lists", "mappings"])
@pytest.mark.parametrize("levels", [2000, 10_000, 100_000])
def test_one_object_that_is_too_deep_does_not_hide_the_others_of_its_list(
    levels: int, brackets: tuple[str, str]
) -> None:
    """The API server takes 10,000 levels; a list with them was refused as a whole."""
    deep = nested(levels, *brackets)
    other = '{"text": "}]\\\\\\"[{", "many": [[], {}, [[2]]]}'
    text = f'{{"items": [{other}, {deep}, {other}], "metadata": {{"resourceVersion": "7"}}}}'

    found = decoded(text.encode())

    assert found["metadata"] == {"resourceVersion": "7"}
    assert found["items"][0] == found["items"][2] == json.loads(other)
    assert levels_of(found["items"][1]) + 3 == DEEPEST


def test_what_is_no_json_is_a_value_error_however_deep() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        decoded(b"[" * 2000)
    with pytest.raises(ValueError, match="Expecting value"):
        decoded(b"<html>")
