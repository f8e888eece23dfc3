"""Fields changed in the text of a sweep's file: what else stands there stays to the letter."""

from __future__ import annotations

import difflib

import pytest

from trainrun.errors import InvalidSpec
from trainrun_operator.cli.sweeping.editing import FieldValue, edited

HEAD = "# a search\nmetadata: {name: lr}\n"
SPEC = """spec:   # what is wanted
  # at most two
  maxConcurrent: 2   # GPUs
  budget: {trials: 6}
"""


def after(text: str, **changes: FieldValue) -> list[str]:
    """The lines that were taken out and put in."""
    new = edited(text, changes, source="sweep.yaml")
    lines = difflib.ndiff(text.splitlines(keepends=True), new.splitlines(keepends=True))
    return [line for line in lines if line[0] in "+-"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_field_that_is_not_there_is_put_right_below_spec(newline: str) -> None:
    text = (HEAD + SPEC).replace("\n", newline)
    assert after(text, pausedTrials=(1, 3)) == [f"+   pausedTrials: [1, 3]{newline}"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pausedTrials: [1, 2]  # noisy", "pausedTrials: [1]  # noisy"),
        ("pausedTrials:  # none", "pausedTrials: [1]  # none"),
        ("pausedTrials: ~", "pausedTrials: [1]"),
        ('"pausedTrials" : []', '"pausedTrials" : [1]'),
        ("pausedTrials: [\n    1,\n    2,\n  ]  # noisy", "pausedTrials: [1]  # noisy"),
    ],
)
def test_a_value_is_replaced_and_its_comment_stays(old: str, new: str) -> None:
    text = f"{HEAD}{SPEC}  {old}\n  # the end\n"
    wanted = f"{HEAD}{SPEC}  {new}\n  # the end\n"
    assert edited(text, {"pausedTrials": (1,)}, source="") == wanted


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["  ", "    "])
def test_a_list_with_a_line_for_each_item_keeps_them(indent: str, newline: str) -> None:
    items = f"{indent}- 1  # noisy\n{indent}# slow ones\n{indent}- 2\n{indent}-  3  # why\n"
    text = f"{HEAD}{SPEC}  pausedTrials:\n{items}  suspend: false\n".replace("\n", newline)
    changed = after(text, pausedTrials=(1, 3, 5))
    assert changed == [f"- {indent}- 2{newline}", f"+ {indent}-  5{newline}"]
    emptied = edited(text, {"pausedTrials": ()}, source="")
    assert f"  pausedTrials: []{newline}{indent}# slow ones{newline}  suspend" in emptied


def test_a_list_at_the_very_end_of_the_text_is_changed() -> None:
    text = f"{HEAD}{SPEC}  pausedTrials:\n  - 1\n  - 2"
    assert edited(text, {"pausedTrials": (1, 2, 4)}, source="").endswith("  - 1\n  - 2\n  - 4")
    assert edited(text, {"pausedTrials": (1,)}, source="").endswith("  pausedTrials:\n  - 1\n")


def test_a_trial_goes_from_one_list_into_the_other() -> None:
    text = f"{HEAD}{SPEC}  pausedTrials: [1]\n"
    changed = after(text, pausedTrials=(), stoppedTrials=(1,))
    assert [line for line in changed if line[0] == "+"] == [
        "+   stoppedTrials: [1]\n",
        "+   pausedTrials: []\n",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"spec": {"budget": {"trials": 6}}}', "the file is not in block style"),
        ("spec: {budget: {trials: 6}}\n", "spec is not in block style"),
        ("x: &s\n  budget: {trials: 6}\nspec: *s\n", "spec is an alias"),
        ("x: &s\n  spec: {budget: {trials: 6}}\n<<: *s\n", "spec is not written out"),
        ("spec:\n  x: &p [1]\n  pausedTrials: *p\n", "pausedTrials is an alias"),
        ("spec:\n  pausedTrials: &p [1]\n  x: *p\n", "line 2 has a comment, an anchor or a tag"),
        ("spec:\n  pausedTrials: [ # why\n   1]\n", "line 2 has a comment, an anchor or a tag"),
        ("spec:\n  pausedTrials:\n    - &p 1\n  x: *p\n", "would not be valid any more"),
        ("spec:\n  pausedTrials:\n    -\n      1\n  x: 1\n", "a line of its own"),
        ("spec:\n  ? budget\n  : {trials: 6}\n", "would not be valid any more"),
        ("spec: &s\n  a: 1\nx: *s\n", "something else would change with it"),
    ],
)
def test_what_cannot_be_edited_safely_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        edited(text, {"pausedTrials": (2,)}, source="sweep.yaml")
    assert str(refused.value).startswith("sweep.yaml: is left as it is")
    assert why in str(refused.value)
    assert str(refused.value).endswith("write by hand: spec.pausedTrials: [2]")
