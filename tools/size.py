"""Code lines and files by capability: python -m tools.size [FOLDER ...] (default: what is shipped).

A code line is neither blank nor part of a comment or a docstring alone. Small files have fewer than
40 of them.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

import click

SHIPPED = ("worker_image/trainrun", "operator/trainrun_operator")
SMALL = 40
_OTHER = frozenset({"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "ENCODING"})


def code_lines(text: str) -> int:
    """How many lines of code this is."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] not in _OTHER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main() -> None:
    """Print a line for each folder that holds code, and the sum."""
    folders = [Path(name) for name in sys.argv[1:] or SHIPPED]
    sizes = {path: code_lines(path.read_text()) for top in folders for path in top.rglob("*.py")}
    lines, files = Counter[Path](), Counter[Path]()
    for path, size in sizes.items():
        lines[path.parent] += size
        files[path.parent] += 1
    for folder in sorted(lines):
        click.echo(f"{lines[folder]:7,}  {files[folder]:4}  {folder}")
    small = sum(size < SMALL for size in sizes.values())
    click.echo(
        f"{sum(lines.values()):7,}  {sum(files.values()):4}  in all; {small} files are small"
    )


if __name__ == "__main__":
    main()
