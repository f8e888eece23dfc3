"""`make mutants`: every small mistake in what counts, settles and resumes is noticed by a test.

For each mutant a process is forked that runs the tests which cover its line until one fails. Prints
the survivors; ends with 1 if fewer than nine of ten are killed. What is known to be equivalent, and
left out, stands in `equivalent.txt`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from tools.mutants.child import OPTIONS, TESTED
from tools.mutants.coverage import ROOT, covered
from tools.mutants.target import Result, Target, say

CORE = "operator/trainrun_operator/core/run"
STORE = "worker_image/trainrun/checkpoint"
TARGETS = {
    "causes": f"{CORE}/causes.py",
    "ledger": f"{CORE}/incidents/ledger.py",
    "losses": f"{CORE}/incidents/losses.py",
    "attribution": f"{CORE}/incidents/attribution.py",
    "choice": f"{STORE}/choice.py",
    "resolution": f"{STORE}/resolution.py",
    "fencing": f"{STORE}/selection.py",
}
"""Causes, ledger, losses, attribution, resume, and fencing, which is a rule of selection."""
AIM = 0.9
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def main() -> int:
    """Try all mutants of the targets named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if unknown := {*options.targets} - {*TARGETS}:
        parser.error(f"no targets: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    known = {line for line in EQUIVALENT.read_text().splitlines() if line and line[0] != "#"}
    results: list[Result] = []
    for area, base in (("core", CORE), ("checkpoint", STORE)):
        names = [name for name in options.targets or TARGETS if TARGETS[name].startswith(base)]
        if names:
            results += _try(area, names, known, options.jobs)
    return _report(results)


def _try(area: str, names: list[str], known: set[str], jobs: int) -> list[Result]:
    """First what needs imports of its own, while nothing is imported yet; then the rest."""
    tests = covered(TESTED[area], [TARGETS[name] for name in names])
    targets = [
        Target(
            name,
            TARGETS[name],
            tests[TARGETS[name]],
            folders=TESTED[area],
            known=known,
            jobs=jobs,
        )
        for name in names
    ]
    for target in targets:
        target.try_tables()
    pytest.main([*OPTIONS, *TESTED[area]], plugins=[_InTurn(targets)])
    return [result for target in targets for result in target.results]


class _InTurn:
    """Tries the functions of all targets instead of running what was collected."""

    def __init__(self, targets: list[Target]) -> None:
        self._targets = targets

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for target in self._targets:
            target.try_functions(session)
        return True


def _report(results: list[Result]) -> int:
    good = bool(results)
    for name in dict.fromkeys(result.target for result in results):
        outcomes = [result.outcome for result in results if result.target == name]
        killed, counted = outcomes.count("Killed"), len(outcomes) - outcomes.count("Equivalent")
        share = killed / counted if counted else 1.0
        good = good and share >= AIM
        say(f"{name}: {killed} of {counted} killed ({share:.1%}), {_rest(outcomes)}")
    return 0 if good else 1


def _rest(outcomes: list[str]) -> str:
    words = ("Survived", "Uncovered", "Equivalent")
    return ", ".join(f"{outcomes.count(word)} {word.lower()}" for word in words)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
