"""Rules for the tree that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "operator" / "trainrun_operator", ROOT / "worker_image" / "trainrun")
CORE = PACKAGES[0] / "core"
TASKS = PACKAGES[1] / "tasks"

TREES = (*PACKAGES, ROOT / "testbed")

KEY = re.compile(
    r"/?(checkpoints|owners|attempts|bad|metrics)/|/checkpoints"
    r"|(.*/)?(run|finished|manifest)\.json|(step|worker|-attempt)-|(.*)\.done\.json|\.beat"
)
SPELL_KEYS = {
    "contract/layout.py",
    "contract/checkpoint_id.py",
    "_process/staging.py",  # names of folders of its own, on the worker's disk
}

NOT_THE_LIBRARY = {"_common", "_samplers", "agent", "checkpoint", "contract", "errors", "sweep"}
"""Of the package `trainrun`: the agent's side, the clerk's, and what both sides may import."""
PUBLIC = {"accelerate", "errors", "lightning", "mlflow", "tasks", "torch", "transformers"}
"""What a script may import of it, beside the package itself."""

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


def test_a_test_that_is_named_after_a_module_stands_where_the_module_stands() -> None:
    homes: dict[str, set[Path]] = {}
    for package in PACKAGES:
        for path in modules(package):
            homes.setdefault(f"test_{path.name}", set()).add(path.parent.relative_to(package))
    wings = {folder.parts[0] for folders in homes.values() for folder in folders if folder.parts}
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        same_wing = {h for h in homes.get(path.name, set()) if h.parts[:1] == folder.parts[:1]}
        if folder.parts[0] in wings and same_wing:
            assert folder in same_wing, path


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_the_packages_say_that_they_are_typed(package: Path) -> None:
    assert (package / "py.typed").exists()


@pytest.mark.parametrize("wing", [False, True], ids=["all-else", "tasks"])
def test_no_name_of_a_class_occurs_twice_but_in_modules_for_frameworks(*, wing: bool) -> None:
    found: dict[str, list[str]] = {}
    # Whoever trains with one of these knows nothing of the other. Tasks have the words of Ray's
    # core and of a program's log, and are read by themselves.
    frameworks = {"lightning.py", "transformers.py"}
    paths = (path for tree in TREES for path in modules(tree) if path.name not in frameworks)
    for path in (path for path in paths if (TASKS in path.parents) == wing):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert twice == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_only_the_layout_spells_a_key_of_the_store(package: Path) -> None:
    for path in modules(package):
        if path.relative_to(package).as_posix() in SPELL_KEYS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not KEY.fullmatch(node.value), f"{path}:{node.lineno}: {node.value}"


def test_every_module_of_the_library_stands_in_both_walls_to_the_agent() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    walls = {wall["name"]: wall for wall in contracts["contracts"]}
    there = {path.stem for path in PACKAGES[1].iterdir() if path.suffix == ".py" or path.is_dir()}
    library = {f"trainrun.{name}" for name in there - NOT_THE_LIBRARY if name[:2] != "__"}

    from_agent = walls["the agent knows nothing of the library that user code imports"]
    from_library = walls["the library that user code imports knows nothing of the agent"]

    assert set(from_agent["forbidden_modules"]) == library | {"torch"}
    assert set(from_library["source_modules"]) == library


def test_modules_at_the_top_of_the_library_are_a_users_to_import() -> None:
    modules_there = {path.stem for path in PACKAGES[1].glob("*.py")} - {"__init__"}

    assert modules_there <= PUBLIC


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
