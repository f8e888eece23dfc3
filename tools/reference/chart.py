"""The chart's values: the comments above them, and their defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tools.reference.markdown import code, document, table

VALUES = Path(__file__).parents[2] / "charts" / "trainrun" / "values.yaml"


def page() -> str:
    """The page."""
    text = VALUES.read_text(encoding="utf-8")
    root = yaml.compose(text)
    assert root is not None
    return document(
        "Values of the chart",
        "`charts/trainrun/values.yaml`",
        "See [install](../clusters.md#install). `values.schema.json` refuses all other names.",
        table(("Value", "Default", "Means"), _rows(root, text.splitlines(), "")),
    )


def _rows(node: yaml.Node, lines: list[str], prefix: str) -> Iterator[tuple[str, ...]]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        told = _comment(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and not told:
            yield from _rows(value, lines, f"{path}.")
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield (code(path), "", told)
            yield from _rows(value, lines, f"{path}.")
        else:
            yield (code(path), code(json.dumps(_plain(value))), told)


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def _comment(lines: list[str], line: int) -> str:
    """The comment that stands right above a line."""
    above: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].lstrip(" #"))
    return " ".join(above)
