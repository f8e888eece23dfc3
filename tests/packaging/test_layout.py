"""Rules for the tree that no linter knows."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "operator" / "trainrun_operator", ROOT / "worker_image" / "trainrun")
CORE = PACKAGES[0] / "core"

CLOCKS = {"now", "utcnow", "today", "monotonic", "perf_counter", "time_ns"}
"""Methods of modules that core may import, and that read a clock."""


def modules(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")))


def tracked() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in listing.stdout.split("\0") if name]


def test_the_folder_operator_is_no_package() -> None:
    # It would shadow the standard library's module `operator` for whoever runs in the checkout.
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_no_folder_of_tests_is_called_operator() -> None:
    assert list((ROOT / "tests").rglob("operator")) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_module_says_what_it_is_for(package: Path) -> None:
    for path in modules(package):
        assert ast.get_docstring(ast.parse(path.read_text())), path


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_folder_of_a_package_is_a_package(package: Path) -> None:
    for folder in {path.parent for path in modules(package)}:
        assert (folder / "__init__.py").exists(), folder


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_the_packages_say_that_they_are_typed(package: Path) -> None:
    assert (package / "py.typed").exists()


def test_the_core_reads_no_clock_and_opens_nothing() -> None:
    for path in modules(CORE):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
                    pytest.fail(f"{path}:{node.lineno} reads a clock: {name}()")
                case ast.Call(func=ast.Name(id="open" | "print" | "input" as name)):
                    pytest.fail(f"{path}:{node.lineno} does I/O: {name}()")
                case _:
                    pass


def test_the_lock_names_no_package_index() -> None:
    text = (ROOT / "requirements.lock").read_text()

    assert "://" not in text
    assert "--hash=sha256:" in text


def test_the_lock_of_uv_is_not_committed() -> None:
    # It holds the address of the index that it was made with; see the Makefile.
    assert "uv.lock" not in tracked()
