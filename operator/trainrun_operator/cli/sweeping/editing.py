"""Fields of a sweep's file changed in its text: comments and form of all the rest stay.

Layer: cli; pure. Invariant: what comes out holds the same as before but for these fields, and where
that cannot be had the text is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from trainrun.errors import InvalidSpec
from trainrun_operator.api.yaml_document import read_document

FieldValue = bool | tuple[int, ...]


class _NotSafe(Exception):
    """The form of the text does not allow it; the message says what stands in the way."""


def edited(text: str, changes: Mapping[str, FieldValue], *, source: str) -> str:
    """`text`, which holds one TrainSweep, with these fields below `spec`.

    Raises InvalidSpec, which says what to write by hand, where its form does not allow it.
    """
    wanted = _document(text)
    wanted["spec"].update({field: _as_json(value) for field, value in changes.items()})
    try:
        for field, value in changes.items():
            text = _with(text, field, value)
        # Compared as JSON: to Python, 1 is true.
        if json.dumps(_document(text), sort_keys=True) != json.dumps(wanted, sort_keys=True):
            raise _NotSafe("something else would change with it")
    except (_NotSafe, InvalidSpec, yaml.YAMLError) as error:
        why = str(error) if isinstance(error, _NotSafe) else "it would not be valid any more"
        by_hand = ", ".join(f"spec.{field}: {_written(value)}" for field, value in changes.items())
        raise InvalidSpec(
            f"{source}: is left as it is, since it cannot be edited safely ({why}); write by hand: "
            f"{by_hand}"
        ) from error
    return text


def _document(text: str) -> dict[str, Any]:
    return read_document(text, source="the file", kind="TrainSweep")


def _as_json(value: FieldValue) -> bool | list[int]:
    return list(value) if isinstance(value, tuple) else value


def _written(value: FieldValue) -> str:
    return json.dumps(_as_json(value))


def _with(text: str, field: str, value: FieldValue) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = _entry(root, "spec", of="the file")
    if found is None:
        raise _NotSafe("spec is not written out")
    spec_key, spec = found
    entry = _entry(spec, field, of="spec")
    if entry is None:
        return _inserted(text, spec_key, spec, f"{field}: {_written(value)}")
    key, node = entry
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and isinstance(value, tuple):
        return _items_changed(text, key, node, _document(text)["spec"][field], value)
    return _replaced(text, node, _written(value))


def _entry(mapping: yaml.Node | None, name: str, *, of: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value; None where they are not there."""
    if not isinstance(mapping, yaml.MappingNode) or mapping.flow_style:
        raise _NotSafe(f"{of} is not in block style, with a line for each field")
    for key, value in mapping.value:
        if key.value == name:
            if value.start_mark.index < key.start_mark.index:
                raise _NotSafe(f"{name} is an alias")
            return key, value
    return None


def _inserted(text: str, spec_key: yaml.Node, spec: yaml.Node, line: str) -> str:
    """As the first field: right below `spec:`, so that no comment is parted from its field."""
    first = spec.value[0][0].start_mark
    if first.line == spec_key.start_mark.line:
        raise _NotSafe("spec is not in block style, with a line for each field")
    end = _line_end(text, spec_key.end_mark.index)
    return f"{text[:end]}{_newline(text)}{' ' * first.column}{line}{text[end:]}"


def _replaced(text: str, node: yaml.Node, written: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    old = text[start:end]
    if "#" in old or old[:1] in ("&", "!", "|", ">"):
        raise _NotSafe(f"line {node.start_mark.line + 1} has a comment, an anchor or a tag in it")
    space = "" if old else " "  # nothing stands after the colon
    return f"{text[:start]}{space}{written}{text[end:]}"


def _items_changed(
    text: str, key: yaml.Node, node: yaml.Node, old: list[int], new: tuple[int, ...]
) -> str:
    """Lines of their own are added and taken out, with the comments that stand in them."""
    marks = [item.start_mark.index for item in node.value]
    prefixes = [text[_line_start(text, mark) : mark] for mark in marks]
    if not all(re.fullmatch(r" *- +", prefix) for prefix in prefixes):
        raise _NotSafe("not every item of the list has a line of its own")
    at = _line_end(text, marks[-1])
    added = "".join(f"{_newline(text)}{prefixes[-1]}{it}" for it in new if it not in old)
    text = text[:at] + added + text[at:]
    for mark, number in reversed(list(zip(marks, old, strict=True))):
        if number not in new:
            text = text[: _line_start(text, mark)] + text[_next_line(text, mark) :]
    if not new:
        colon = text.index(":", key.end_mark.index) + 1
        text = f"{text[:colon]} []{text[colon:]}"
    return text


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _next_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1


def _line_end(text: str, index: int) -> int:
    """Before its line break, or at the end of the text."""
    found = re.compile(r"\r?\n|\Z").search(text, index)
    assert found is not None, "every text has an end"
    return found.start()
