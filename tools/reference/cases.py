"""Every case that a test shows, from the marks `pytest.mark.case(area, text, counted=...)`.

Read from the source, not imported: no framework, cluster or GPU need be there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.reference.markdown import code, document, table

ROOT = Path(__file__).parents[2]

AREAS = {
    "processes": "Training processes",
    "nodes": "Workers and nodes",
    "operator": "Operator, driver and network",
    "storage": "Storage and checkpoints",
    "decisions": "What the spec or the script decides",
    "script": "Mistakes in the script",
    "strangers": "Others in the cluster",
    "sweeps": "Sweeps",
    "tasks": "Tasks",
}
"""First argument of the mark, and its heading."""

ABOUT = """\
Each case with what it is charged to, or its outcome, and the tests that show it.
`pytest FILE::TEST` runs one. What a user has to know is in the
[failure model](../failure-model.md)."""

MARK = "pytest.mark.case"
Case = tuple[str, str, str]
"""Area, text, and what it is charged to."""


def page() -> str:
    """The page. Raises KeyError for an area that is not in AREAS."""
    found: dict[Case, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if MARK not in source:  # most files: parsing all takes seconds
            continue
        for case, name in _marks(ast.parse(source)):
            test = f"{path.relative_to(ROOT)}{'::' if name else ''}{name}"
            found.setdefault(case, []).append(test)
    rows: dict[str, list[tuple[str, ...]]] = {area: [] for area in AREAS}
    for (area, text, counted), tests in sorted(found.items()):
        rows[area].append((text, counted, "<br>".join(map(code, tests))))
    parts = [
        f"## {title}\n\n{table(('Case', 'Charged to, or outcome', 'Tests'), rows[area])}"
        for area, title in AREAS.items()
    ]
    return document("Failure cases", "the marks `pytest.mark.case` on the tests", ABOUT, *parts)


def _marks(tree: ast.Module) -> Iterator[tuple[Case, str]]:
    """Cases with the name of their test; no name: the mark is that of the whole module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((case, node.name) for mark in node.decorator_list for case in _cases(mark))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from ((case, "") for case in _cases(node.value))


def _cases(marks: ast.expr) -> Iterator[Case]:
    for node in ast.walk(marks):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == MARK:
            area, text = map(ast.literal_eval, node.args)
            named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            yield area, text, named.get("counted", "never")
