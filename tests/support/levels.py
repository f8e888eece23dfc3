"""What each test needs, read from where it stands and from its fixtures; `--quick` leaves it out.

Hypothesis profiles go with the levels: of the examples that a property promises, `quick` tries one
in a hundred, a call by hand one in four, and `make test` all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

FOLDERS = {
    "chart": "helm",
    "e2e": "cluster",
    "e2e_cluster": "cluster rare",
    "images": "cluster",
    "examples": "torch",
    "frameworks": "frameworks",
    "gpu": "torch",
    "kind": "cluster",
    "torch": "torch",
}
"""What all tests of a folder need, or are. `--quick` does not even import them."""
FIXTURES = {
    "archive": "agents",
    "workers": "agents",
    "bureau": "agents",
    "s3_server": "servers",
    "own_s3": "servers",
    "cloud_uri": "servers",
    "apiserver": "servers",
    "own_apiserver": "servers",
    "runs": "whole_runs",
    "finished": "whole_runs",
}
"""What a test needs that uses this fixture, also through another one."""
LEFT_OUT = frozenset(
    {"cluster", "frameworks", "torch", "helm", "servers", "agents", "whole_runs", "slow", "rare"}
)
"""Marks of the tests that `--quick` leaves out."""
NIGHT = frozenset({"frameworks", "rare"})
"""Marks of the tests that `make test` leaves out."""
FILES_OF_THE_NIGHT = pytest.StashKey[set[Path]]()
"""The collected files that have no other tests."""

PERCENT = {"quick": 1, "by_hand": 25, "thorough": 100}
"""Of the promised examples, by profile. The profile's number of examples is the percentage: so
properties that promise no number of their own follow it as well."""

for _name, _percent in PERCENT.items():
    # Seeded by the test, so that a failure is about the change and not about luck; by hand other
    # examples are tried each time, and more of them with TRAINRUN_LIVES.
    settings.register_profile(_name, max_examples=_percent, derandomize=_name != "by_hand")
settings.load_profile("by_hand")


def examples(promised: int) -> int:
    """How many examples to try of those that `make test` tries."""
    return max(1, promised * settings.default.max_examples // 100)


def some(cases: Sequence[T], *, quick: int) -> Sequence[T]:
    """All of these cases; with `--quick` so many, spread evenly over them."""
    if settings.default.max_examples > PERCENT["quick"]:
        return cases
    return [cases[number * len(cases) // quick] for number in range(quick)]


def later_rare(cases: Sequence[object], *, kept: int = 1, by: str) -> list[object]:
    """All of these cases; those behind the first `kept` are left to the night, as variants of one
    behaviour whose rule `by` (a file or test) proves in each `make test`."""
    return [
        case
        if number < kept
        else pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.rare(by)
        )
        for number, case in enumerate(cases)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="few examples; no slow tests, none that need a cluster, a server, torch, a whole run",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--quick") and _of_folder(collection_path, config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        needs = {FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES}
        for mark in sorted(needs | _of_folder(item.path, config)):
            item.add_marker(mark)
    config.stash[FILES_OF_THE_NIGHT] = _of_the_night_alone(items)
    if config.getoption("--quick"):
        left_out = [item for item in items if LEFT_OUT & {m.name for m in item.iter_markers()}]
        left_out += _further_lives(items)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        if "torch" in sys.modules:
            raise pytest.UsageError(
                "a test that --quick collects imports torch, which takes seconds in each process:"
                " put it into a folder that needs torch (FOLDERS in tests/support/levels.py),"
                " or import torch in the test"
            )


def _of_the_night_alone(items: Sequence[pytest.Item]) -> set[Path]:
    others = {it.path for it in items if not NIGHT & {mark.name for mark in it.iter_markers()}}
    return {it.path for it in items} - others


def _further_lives(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of each test of the simulated world all cases but the first: each lives a life, or many."""
    lives = [item for item in items if "simulation" in item.path.parts]
    firsts = {item.nodeid.partition("[")[0]: item for item in reversed(lives)}
    return [item for item in lives if item not in firsts.values()]


def _of_folder(path: Path, config: pytest.Config) -> set[str]:
    """What tests need because of the folder of `tests` that they stand in."""
    parts = path.relative_to(config.rootpath).parts if path.is_relative_to(config.rootpath) else ()
    return {mark for folder in parts[1:2] for mark in FOLDERS.get(folder, "").split()}
