"""What of `make nightly` a change asks for: python -m tools.due BASE (a commit).

The Makefile says it, in the first line of each recipe: the beginnings of the paths that ask for it.
A change is what the checkout has that BASE has not, whether committed or not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[1]
_ASKED_FOR = re.compile(r"^([a-z-]+):.*\n\t@# asked for by (.+)$", re.MULTILINE)


def asked_for(makefile: str) -> dict[str, tuple[str, ...]]:
    """The beginnings of paths that ask for each target which says so."""
    return {target: tuple(paths.split()) for target, paths in _ASKED_FOR.findall(makefile)}


def due(asked: Mapping[str, tuple[str, ...]], changed: Sequence[str]) -> dict[str, list[str]]:
    """The targets that these files ask for, each with those that do."""
    asking = {
        target: [name for name in changed if name.startswith(paths)]
        for target, paths in asked.items()
    }
    return {target: names for target, names in asking.items() if names}


def changed_since(base: str) -> list[str]:
    """Files that differ from where this branch left `base`, and new ones."""
    begun = _git("merge-base", base, "HEAD")[0]
    return _git("diff", "--name-only", "--no-renames", begun) + _git(
        "ls-files", "--others", "--exclude-standard"
    )


def _git(*words: str) -> list[str]:
    command = ["git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout.splitlines()


def main() -> None:
    """Print a line for each target, with the first file that asks for it."""
    found = due(asked_for((ROOT / "Makefile").read_text()), changed_since(sys.argv[1]))
    for target, names in found.items():
        more = f" and {len(names) - 1} more" if names[1:] else ""
        click.echo(f"make {target:16} {names[0]}{more}")
    if not found:
        click.echo("nothing of make nightly")


if __name__ == "__main__":
    main()
