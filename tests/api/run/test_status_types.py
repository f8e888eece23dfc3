"""A decision that is not remembered as meant must not pass the type checker."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mypy import api as mypy

ROOT = Path(__file__).parents[3]

CHANGES = """
from dataclasses import replace

from trainrun_operator.api.run.status_parts import Ending
from trainrun_operator.api.run.status import TrainRunStatus


def right(status: TrainRunStatus) -> TrainRunStatus:
    return replace(status, fruitless=0, save_asked=None)


def misspelt(status: TrainRunStatus) -> TrainRunStatus:
    return replace(status, fruitles=0)


def of_another_type(status: TrainRunStatus) -> TrainRunStatus:
    return replace(status, fruitless="none")


def misspelt_inside(ending: Ending) -> Ending:
    return replace(ending, notBefore=None)


def in_place(status: TrainRunStatus) -> None:
    status.fruitless = 0
"""


@pytest.mark.slow
def test_a_misspelt_or_ill_typed_change_of_the_status_is_refused() -> None:
    out, _, code = mypy.run(["--config-file", str(ROOT / "pyproject.toml"), "-c", CHANGES])

    errors = [line.partition(" error: ")[2] for line in out.splitlines() if " error: " in line]
    assert code == 1
    assert errors == [
        'Unexpected keyword argument "fruitles" for "replace" of "TrainRunStatus"; '
        'did you mean "fruitless"?  [call-arg]',
        'Argument "fruitless" to "replace" of "TrainRunStatus" has incompatible type "str"; '
        'expected "int"  [arg-type]',
        'Unexpected keyword argument "notBefore" for "replace" of "Ending"; '
        'did you mean "not_before"?  [call-arg]',
        'Property "fruitless" defined in "TrainRunStatus" is read-only  [misc]',
    ]


def test_the_core_hides_no_change_from_the_type_checker() -> None:
    """`replace(status, **changes)` of a dict[str, Any] would pass unseen."""
    hidden = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted((ROOT / "operator/trainrun_operator/core").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "replace"
        and any(keyword.arg is None for keyword in call.keywords)
    ]

    assert hidden == []
