"""What may be said of a checkpoint in its manifest."""

from __future__ import annotations

import json
import math

import numpy
import pytest

from trainrun.contract import metrics


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


def test_any_small_json_object_is_read_as_it_was_written() -> None:
    given = {"tokenizer": "bpe-32k", "shape": [2, [3.5, None]], "eval": {"ü": True}, "": -1}
    assert json.loads(metrics.metadata_json(given)) == given
    assert json.loads(metrics.metadata_json({"shape": (1, 2)})) == {"shape": [1, 2]}
    assert json.loads(metrics.metadata_json(nested(16))) == nested(16)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0.5, "metadata must be a mapping of names to values, got float$"),
        ([1], "metadata must be a mapping of names to values, got list$"),
        ({3: 1}, r"metadata: names must be strings, got 3 \(int\)"),
        ({"a": [{}, {None: 1}]}, r"metadata\.a\[1\]: names must be strings, got None"),
        ({"loss": math.nan}, "metadata is not JSON: Out of range float values"),
        ({"a": numpy.array(1.0)}, "metadata is not JSON: Object of type ndarray"),
        ({"n": 10**5000}, "metadata is not JSON: "),
        (nested(17), r"metadata(\.in){16} is nested more than 16 objects and lists deep"),
    ],
)
def test_what_json_has_no_word_for_is_refused_by_its_place(given: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        metrics.metadata_json(given)  # type: ignore[arg-type]


def test_what_lies_in_itself_is_refused() -> None:
    given: dict[str, object] = {}
    given["self"] = given
    with pytest.raises(TypeError, match="more than 16 objects and lists deep"):
        metrics.metadata_json(given)
