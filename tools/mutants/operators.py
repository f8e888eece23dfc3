"""What may be wrong in a source: one small change of its syntax tree each.

Left out are texts, docstrings, annotations and what only a type checker reads.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SWAPPED: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
TEXTS = ("message", "advice", "one", "known_by")
"""Keywords that say something to people."""
TYPES = ("Literal", "Callable", "Mapping", "Annotated", "dict", "tuple", "list", "Sequence")
"""What makes the names of types."""
NOTHING = ast.Constant(None)
LONG = 160
"""Characters of code that are shown whole."""


@dataclass(frozen=True)
class Mutant:
    """A change at a line; `apply` makes it in the tree, `undo` takes it back."""

    line: int
    what: str
    apply: Callable[[], None]
    undo: Callable[[], None]


def mutants(tree: ast.Module) -> Iterator[Mutant]:
    """Every change of this tree, one at a time."""
    for node in _code(tree):
        for field, new in _changes(node):
            yield _change(node, field, new)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is in it, without annotations, decorators, texts and type checking."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_out(child):
                yield from _code(child)


def _is_left_out(node: ast.AST) -> bool:
    typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    says = isinstance(node, ast.keyword) and node.arg in TEXTS
    names = isinstance(node, ast.Subscript) and ast.unparse(node.value) in TYPES
    left_out = ast.JoinedStr | ast.Assert | ast.Raise
    return typing or text or says or names or isinstance(node, left_out)


def _changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Fields of this node, and what may stand there instead."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield "ops", [SWAPPED[type(op)]()]
        case ast.BoolOp(op=op, values=values):
            yield "op", SWAPPED[type(op)]()
            for rest in _without_one(values):
                yield "values", rest if len(rest) > 1 else rest * 2
        case ast.BinOp(op=op) if type(op) in SWAPPED:
            yield "op", SWAPPED[type(op)]()
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not isinstance(test, ast.Compare | ast.BoolOp):
                yield "test", ast.UnaryOp(ast.Not(), test)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "operand", ast.UnaryOp(ast.Not(), operand)
        case ast.comprehension(ifs=[_, *_] as tests):
            yield from (("ifs", rest) for rest in _without_one(tests))
        case ast.Constant(value=bool() as value):
            yield "value", not value
        case ast.Constant(value=int() | float() as value):
            yield "value", value + 1
        case ast.Name(id=name) if name in OPPOSITES:
            yield "id", OPPOSITES[name]
        case ast.Return(value=value) if value is not None and not _is_nothing(value):
            yield "value", NOTHING
        case ast.Call(keywords=keywords) if keywords:
            for word in keywords:
                if word.arg not in TEXTS:
                    yield "keywords", [other for other in keywords if other is not word]
        case ast.Tuple(elts=elts, ctx=ast.Load()) | ast.Set(elts=elts) if len(elts) > 1:
            yield from (("elts", rest) for rest in _without_one(elts))
        case ast.FunctionDef(body=body) | ast.If(body=body) | ast.For(body=body):
            for number, line in enumerate(body):
                if isinstance(line, ast.AugAssign) or _is_call(line):
                    yield "body", [*body[:number], ast.Pass(), *body[number + 1 :]]


def _is_nothing(value: ast.expr) -> bool:
    """None, or as good as that."""
    return isinstance(value, ast.Constant) and not value.value


def _is_call(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)


def _without_one(values: list[ast.expr]) -> Iterator[list[ast.expr]]:
    for number in range(len(values)):
        yield [*values[:number], *values[number + 1 :]]


def _change(node: ast.AST, field: str, new: object) -> Mutant:
    old, before = getattr(node, field), ast.unparse(node)
    setattr(node, field, new)
    after = ast.unparse(ast.fix_missing_locations(node))
    setattr(node, field, old)
    where = node.target if isinstance(node, ast.comprehension) else node  # that has no line itself
    return Mutant(
        line=getattr(where, "lineno", 0),
        what=_told(before, after),
        apply=lambda: setattr(node, field, new),
        undo=lambda: setattr(node, field, old),
    )


def _told(before: str, after: str) -> str:
    """The two, without the lines that are the same in both."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) > 1:
        old, new = [o for o in old if o not in new], [n for n in new if n not in old]
    lines = [" ".join(" ".join(code).split()) for code in (old, new)]
    if max(map(len, lines)) > LONG:
        # What both begin with says little of a call with twenty arguments.
        pairs = enumerate(zip(*lines, strict=False))
        differ = next((number for number, (one, other) in pairs if one != other), 0)
        begin = max(differ - LONG // 4, 0)
        lines = [f"{'...' if begin else ''}{line[begin:]}" for line in lines]
    return "  ->  ".join(line if len(line) <= LONG else f"{line[: LONG - 3]}..." for line in lines)
