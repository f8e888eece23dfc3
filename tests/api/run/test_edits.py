"""The table of what an edit of each field does is whole, and the rules follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainrun_operator.api.base import CEL_RULES
from trainrun_operator.api.crd import structural
from trainrun_operator.api.run.edits import EDITS, REFUSED
from trainrun_operator.api.run.spec import TrainRunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPLATE = "workers.template"
"""The API of pods: what is in it belongs together."""
SPEC = structural(TrainRunSpec)


def leaves(node: dict[str, Any], path: str = "") -> Iterator[str]:
    """The fields of the spec below which there is no other one, in order."""
    fields = node.get("properties", {}) if path != TEMPLATE else {}
    if not fields:
        yield path
    for name, inner in fields.items():
        yield from leaves(inner, f"{path}.{name}".lstrip("."))


def test_every_field_of_the_spec_stands_in_the_table_once_and_in_order() -> None:
    assert [edit.path for edit in EDITS] == list(leaves(SPEC))


def test_what_cannot_be_edited_is_said_where_the_field_is_described() -> None:
    for edit in EDITS:
        node = SPEC
        for name in edit.path.split("."):
            node = node["properties"][name]
        said = "Cannot be changed." in node["description"]
        assert said == (edit in REFUSED), edit.path


def test_a_refused_edit_says_why_and_what_to_do_instead() -> None:
    said = {rule["fieldPath"]: rule["message"] for rule in SPEC[CEL_RULES]}
    for edit in REFUSED:
        assert said[f".{edit.path}"] == f"cannot be changed: {edit.note}"
        assert "create a new run" in edit.note
