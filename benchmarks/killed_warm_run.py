"""Kills of a training with a warm start, each start of which tells all that a script could notice.

Ranks run the script of the tests of warm starts: it writes down every property of its start, those
of torch and of loading processes included, and then trains as `remember.py` does. What it finds is
held against a start of the same rank in a run without standbys. A start that differs is wrong; one
that does not come within `PATIENCE` hangs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.killed_run import RANKS, SCRIPT, Trial
from tests.agent.processes.same_start import differences, differences_of_torch
from tests.worlds.local.local_runs import LocalRuns

PROCESSES = Path(__file__).parent.parent / "tests" / "agent" / "processes"
TELLING = PROCESSES / "properties_of_a_start.py"
LATEST = 15.0
"""Seconds after all ranks have begun: standbys are loaded some seconds after the first step."""
OF_A_WORKER = re.compile(r"\b(tiny-\d+)-\d+")
"""Its name: one that takes the place of another has a higher number."""
TOLD = 6
"""Differences of a run that are told."""
WIDTH = 300
"""Characters of a difference that is told."""


@dataclass
class WarmTrial(Trial):
    """One run whose ranks begin warm, as far as their standbys have come."""

    script: Path = TELLING
    latest: float = LATEST
    starts: int = field(default=0, init=False)
    """That have told their properties."""
    warm: int = field(default=0, init=False)
    """Of which a standby became the process."""

    def live(self, kills: int) -> list[str]:
        """Everything that was wrong."""
        try:
            wrong = super().live(kills)
        except AssertionError as error:
            return [f"hung: {error}: {self.drivers[-1].out.read_text()[-3000:]}"]
        outs = self.runs.folder.glob("out-*.txt")
        self.warm = sum(out.read_text().count(": warm start") for out in outs)
        differ = self._starts()
        more = [f"and {len(differ) - TOLD} differences more"] if len(differ) > TOLD else []
        return [*wrong, *differ[:TOLD], *more]

    def told(self) -> str:
        """How many starts were looked at."""
        return f", {self.starts} starts looked at, {self.warm} warm"

    def spec(self) -> dict[str, Any]:
        """With standbys."""
        return {**super().spec(), "workers": {"warmStart": {"preload": ["torch"]}}}

    def _runs(self, name: str) -> LocalRuns:
        runs = super()._runs(name)
        found = runs.folder / "found"
        found.mkdir()
        runs.env |= {"THEN": str(SCRIPT), "FOUND": str(found), "PYTHONHASHSEED": "7"}
        return runs

    @cached_property
    def cold(self) -> dict[int, dict[str, Any]]:
        """What each rank finds in a run without standbys."""
        runs = self._runs("cold")
        runs.spec = super().spec()
        runs.journal.mkdir()
        try:
            ended = self._end(runs, runs.start(), at=1)
        finally:
            runs.close()
        assert ended.code == 0, ended.err
        return {rank: self._found(runs, 1, rank) for rank in range(RANKS)}

    def _starts(self) -> list[str]:
        """Those of which a script could tell that they are no cold ones."""
        wrong = []
        for rank in range(RANKS):
            cold = self.cold[rank]
            for attempt in sorted({row[0] for row in self.runs.steps(rank)}):
                found, self.starts = self._found(self.runs, attempt, rank), self.starts + 1
                differ = [
                    *differences(cold["start"], found["start"], attempts_differ=True),
                    *differences_of_torch(cold["torch"], found["torch"], attempts_differ=True),
                ]
                wrong += [f"attempt {attempt}, rank {rank}: {one[:WIDTH]}" for one in differ]
        return wrong

    def _found(self, runs: LocalRuns, attempt: int, rank: int) -> dict[str, Any]:
        """With what is the run's own, or its worker's, under another name."""
        text = (runs.folder / "found" / f"{attempt}-{rank}.json").read_text()
        text = OF_A_WORKER.sub(r"\1-N", text.replace(str(runs.folder), "FOLDER"))
        found: dict[str, Any] = json.loads(text)
        return found
