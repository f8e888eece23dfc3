"""What `make mutants` changes in a source, and what it leaves alone."""

from __future__ import annotations

import ast
import os
from types import ModuleType
from typing import NoReturn

import pytest

from tools.mutants.child import FAILED, code_of, forked, function_at
from tools.mutants.operators import mutants


def changes(source: str) -> list[str]:
    return [mutant.what for mutant in mutants(ast.parse(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a < b  ->  a <= b"]),
        (
            "x = a and b",
            ["a and b  ->  a or b", "a and b  ->  b and b", "a and b  ->  a and a"],
        ),
        ("x = not a", ["not a  ->  not not a"]),
        ("x = min(a)", ["min  ->  max"]),
        ("x = f(a=b)", ["f(a=b)  ->  f()"]),
        ("x = 3", ["3  ->  4"]),
        ("x = {a, b}", ["{a, b}  ->  {b}", "{a, b}  ->  {a}"]),
    ],
)
def test_each_change_is_one_mistake_that_somebody_might_make(
    source: str, expected: list[str]
) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        'x = "a text"',
        'x = f"{a < b}"',
        "x: int | None = y",
        "def f(x: int | None) -> a | b: ...",
        '"""A docstring."""',
        "if TYPE_CHECKING:\n    x = 1",
        "x = f(message=a, advice=b)",
        "Names = Literal[1, 2]",
        "assert a < b",
    ],
)
def test_texts_and_types_are_left_alone(source: str) -> None:
    assert changes(source) == []


def test_a_condition_of_a_comprehension_is_found_at_its_line() -> None:
    (mutant,) = mutants(ast.parse("x = [\n    a\n    for a in b\n    if a\n]"))
    assert mutant.line == 3


def test_a_change_is_made_and_taken_back() -> None:
    tree = ast.parse("x = a < b")
    (mutant,) = mutants(tree)
    mutant.apply()
    assert ast.unparse(tree) == "x = a <= b"
    mutant.undo()
    assert ast.unparse(tree) == "x = a < b"


SOURCE = """
class A:
    @property
    def b(self):
        return 1

def c(x=0):
    return [y for y in (1, 2)]
"""


def test_the_function_of_a_line_is_found_and_its_code_exchanged() -> None:
    module, tree = ModuleType("m"), ast.parse(SOURCE)
    exec(compile(tree, "m", "exec"), module.__dict__)
    found = function_at(module, tree, 5)
    assert found is not None
    function, name = found
    assert name == "A.b"
    other = code_of(compile(SOURCE.replace("return 1", "return 7"), "m", "exec"), name)
    assert other is not None
    function.__code__ = other
    assert module.A().b == 7
    assert function_at(module, tree, 7) is None  # what its head says, an import executes


def test_the_function_that_is_changed_is_the_one_that_its_decorators_call() -> None:
    source = "import functools\n\n@functools.cache\ndef answer():\n    return 1\n"
    module = ModuleType("decorated")
    exec(source, vars(module))
    found = function_at(module, ast.parse(source), 5)
    assert found is not None
    function, name = found
    function.__code__ = code_of(compile(source.replace("1", "2"), "decorated", "exec"), name)
    assert module.answer() == 2


def test_a_child_that_could_not_be_made_does_not_go_on_as_its_parent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken() -> NoReturn:
        raise ValueError("its code does not fit")

    _, status = os.waitpid(forked(broken), 0)
    assert os.waitstatus_to_exitcode(status) == FAILED
    assert "its code does not fit" in capfd.readouterr().err
