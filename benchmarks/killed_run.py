"""One run of `make kills`: what strikes it, and what must be true of it afterwards.

Each attempt in which something was killed has one incident of its cause, charged once or, for the
driver, not at all; all ranks of the next one begin at one step, not before what was committed when
the kill struck; and the result is that of a run which nothing disturbs.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.eventually import eventually
from tests.worlds.local.local_runs import Driver, Ended, LocalRuns
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.variables import STANDBY_NAME

SCRIPT = Path(__file__).parent / "scripts" / "remember.py"
RANKS = 2
PATIENCE = 240.0
"""Seconds for a run to begin again."""
FURTHER = 100
"""Steps until the end, from when it is asked for: more than a rank does before it has heard."""
TWO = (("rank", "rank"), ("rank", "agent"), ("rank", "driver"), ("agent", "driver"))
CAUSES = {
    "rank": {"AppError"},
    "agent": {"Silent", "Unknown", "AppError"},
    "driver": {"Interrupted"},
}
"""What a run may say that has ended an attempt in which this was killed."""


@dataclass
class Kill:
    """One or two processes are killed at once."""

    targets: tuple[str, ...]
    attempt: int
    """The newest one of which a rank has begun."""
    trains: bool
    """All ranks of it had begun, and it is not known to be over."""
    committed: int
    """The newest step of which the storage had a manifest."""


@dataclass
class Trial:
    """One run, what strikes it, and what was wrong with it."""

    folder: Path
    torch: bool
    dice: random.Random
    kills: list[Kill] = field(default_factory=list)
    drivers: list[Driver] = field(default_factory=list)
    script: Path = SCRIPT
    latest: float = 3.0
    """Seconds after all ranks have begun up to which a kill strikes."""

    def __post_init__(self) -> None:
        self.runs = self._runs("killed")

    def _runs(self, name: str) -> LocalRuns:
        folder = self.folder / name
        folder.mkdir(parents=True)
        env, script = self.env(), str(self.script)
        return LocalRuns(folder, spec=self.spec(), env=env, script=script)

    def spec(self) -> dict[str, Any]:
        """Of the TrainRun; no budget is ever used up."""
        policy = {"maxFailures": -1, "noProgressLimit": -1, "backoff": {"initial": "0s"}}
        return {"failurePolicy": policy}

    def env(self) -> dict[str, str]:
        """What the script is told."""
        return {"TORCH": "1"} if self.torch else {}

    def live(self, kills: int) -> list[str]:
        """Everything that was wrong."""
        self.drivers.append(self.runs.start())
        try:
            for _ in range(kills):
                self._strike()
            self._wait_until_all_begin()
            ended = self._end(self.runs, self.drivers[-1], at=self._furthest() + FURTHER)
            return [*self._results(ended), *self._incidents(ended), *self.resumes()]
        finally:
            self.runs.close()

    def told(self) -> str:
        """What else is to be said of it."""
        return ""

    # ------------------------------------------------------------------ killing

    def _strike(self) -> None:
        if self.dice.random() < 0.75 or not self.kills:
            self._wait_until_all_begin()
        time.sleep(self.dice.uniform(0.0, self.latest))  # the moment is what is tried here
        one = self.dice.choice(("rank", "rank", "agent", "driver"))
        targets = self.dice.choice(TWO) if self.dice.random() < 0.25 else (one,)
        pids = [pid for pid in map(self._pid, targets) if pid is not None]
        attempt = self._attempt()
        trains = self._begun(attempt) == RANKS and attempt not in {k.attempt for k in self.kills}
        committed = self._committed()
        struck = sum(map(_is_killed, pids))
        if struck:
            surely = trains and struck == len(targets)
            self.kills.append(Kill(targets, attempt, surely, committed))
            print(f"  killed {' and '.join(targets)} in attempt {attempt}", flush=True)
        if "driver" in targets:
            self.drivers[-1].process.wait()
            self.drivers.append(self.runs.start())

    def _pid(self, target: str) -> int | None:
        if target == "driver":
            return self.drivers[-1].process.pid
        ours = self.runs.our_processes()
        agents = [pid for pid in ours if "trainrun.agent" in command_of(pid)]
        there = agents if target == "agent" else self._ranks(ours, agents)
        return self.dice.choice(there) if there else None

    def _ranks(self, ours: list[int], agents: list[int]) -> list[int]:
        """Not what a rank has started, nor what is to become one: a standby, which is younger than
        its rank, has the same command and is called otherwise only a moment after its start."""
        oldest: dict[int, int] = {}
        for pid in sorted(ours, key=_started, reverse=True):
            called = self.script.name in command_of(pid) and _name(pid) != STANDBY_NAME
            if called and (parent := parent_of(pid)) in agents:
                oldest[parent] = pid
        return list(oldest.values())

    # ------------------------------------------------------------------ looking

    def _attempt(self) -> int:
        return max(
            (attempt for r in range(RANKS) for attempt, _, _ in self.runs.steps(r)), default=0
        )

    def _begun(self, attempt: int) -> int:
        rows = (self.runs.steps(rank) for rank in range(RANKS))
        return sum(any(a == attempt and what == "begin" for a, _, what in row) for row in rows)

    def _wait_until_all_begin(self) -> None:
        """In an attempt in which nothing was killed yet."""
        struck = {kill.attempt for kill in self.kills}

        def begun() -> bool:
            driver = self.drivers[-1]
            assert driver.process.poll() is None, driver.out.with_suffix(".err").read_text()
            newest = self._attempt()
            return newest not in struck and self._begun(newest) == RANKS

        eventually(begun, timeout=PATIENCE, what=f"an attempt after {self._attempt()}")

    def _committed(self) -> int:
        run = layout.generation_folder(str(self.runs.storage / "tiny"), 1)
        folder = Path(run, layout.CHECKPOINTS)
        made = folder.iterdir() if folder.exists() else ()
        whole = [path.name for path in made if (path / layout.MANIFEST).exists()]
        newest = max(filter(None, map(CheckpointId.named, whole)), default=None)
        return newest.step if newest is not None else 0

    def _furthest(self) -> int:
        return max(int(path.read_text() or 0) for path in self.runs.journal.glob("at-*"))

    def _end(self, runs: LocalRuns, driver: Driver, *, at: int) -> Ended:
        (runs.journal / "new").write_text(str(at))
        (runs.journal / "new").rename(runs.journal / "last")
        return driver.end()

    # ------------------------------------------------------------------ judging

    def _results(self, ended: Ended) -> list[str]:
        """The same as of a run that nothing has disturbed."""
        if ended.code:
            return [f"ended with {ended.code}: {ended.out[-1000:]} {ended.err[-1000:]}"]
        calm = self._runs("undisturbed")
        calm.journal.mkdir()
        calm.env = {**calm.env, "PAUSE": "0"}
        try:
            step = next(step for _, step, what in self.runs.steps(0) if what.startswith("result"))
            again = self._end(calm, calm.start(), at=step)
        finally:
            calm.close()
        if again.code:
            return [f"undisturbed, it ended with {again.code}"]
        mine, right = (sorted(_outcomes(runs)) for runs in (self.runs, calm))
        return [] if mine == right else [f"came to {mine}, and undisturbed to {right}"]

    def _incidents(self, ended: Ended) -> list[str]:
        """Each kill made one incident of its attempt, which is counted once."""
        if ended.code:
            return []
        found, wrong = ended.incidents, []
        attempts = [incident["attempt"] for incident in found]
        if len({*attempts}) < len(attempts):
            wrong.append(f"attempts with several incidents: {attempts}")
        counted = sum(incident.get("counted", False) for incident in found)
        if (told := ended.status["failures"].get("counted", 0)) != counted:
            wrong.append(f"{told} failures counted, and {counted} incidents say so")
        if len(found) > len(self.kills):
            wrong.append(f"{len(self.kills)} kills made {len(found)} incidents: {_shown(found)}")
        by_attempt = {incident["attempt"]: incident for incident in found}
        for kill in self.kills:
            if kill.trains:
                wrong += self.of(kill, by_attempt.get(kill.attempt))
        return wrong

    def of(self, kill: Kill, incident: dict[str, Any] | None) -> list[str]:
        if incident is None:
            return [f"{kill} made no incident"]
        expected = set().union(*(CAUSES[target] for target in kill.targets))
        free = incident["cause"] == "Interrupted"
        if incident["cause"] not in expected or incident.get("counted", False) == free:
            return [f"{kill} made {_shown([incident])}"]
        return []

    def resumes(self) -> list[str]:
        """All ranks begin at the same step, not before what was committed when a kill struck."""
        wrong = []
        begins: dict[int, set[int]] = {}
        for rank in range(RANKS):
            for attempt, step, what in self.runs.steps(rank):
                if what == "begin":
                    begins.setdefault(attempt, set()).add(step)
        for attempt, steps in sorted(begins.items()):
            least = max((k.committed for k in self.kills if k.attempt < attempt), default=0)
            if len(steps) > 1 or min(steps) < least:
                wrong.append(f"attempt {attempt} begins at {steps}; {least} was committed")
        return wrong


def command_of(pid: int) -> str:
    """Empty: it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return STANDBY_NAME  # of no use either


def parent_of(pid: int) -> int:
    """The process that has started it."""
    return _stat(pid, 4)


def _is_killed(pid: int) -> bool:
    """False: it has ended by itself since it was chosen, as the ranks of a run that restarts do."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _started(pid: int) -> int:
    """In ticks since boot."""
    return _stat(pid, 22)


def _stat(pid: int, field: int) -> int:
    """A number of /proc/PID/stat, counted from 1 as in proc(5); 0 where it has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field - 3])
    except OSError:
        return 0


def _outcomes(runs: LocalRuns) -> list[tuple[int, str]]:
    rows = (row for rank in range(RANKS) for row in runs.steps(rank))
    return [(step, what) for _, step, what in rows if what.startswith("result")]


def _shown(incidents: list[dict[str, Any]]) -> str:
    return "; ".join(f"{i['attempt']} {i['cause']} {i['budget']} {i['message']}" for i in incidents)
