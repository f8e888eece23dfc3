"""What sweeps cost: an answer of the sampler, the death of a clerk, an operator's memory, a trial.

Method: see docs/benchmarks.md. Everything on this machine, in a folder; the clerk is the real
process, the operator's end its real server.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median

import optuna

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import machine
from tests.clerk.exchanges import Bureau, session
from tests.support.s3_server import running_server
from trainrun._samplers.optuna_study import frozen, places
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.clerk import Suggest
from trainrun.sweep.records import (
    Ask,
    LogEntry,
    Record,
    Reports,
    Targets,
    Tell,
    TrialReport,
    written,
)
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.search import FloatRange, Objective, Parameter, SamplerName, Search
from trainrun_operator.core.sweep.clerking import ClerkState, piece
from trainrun_operator.runtime.clerk_exchange import ClerkExchange
from trainrun_operator.runtime.clerk_work import suggest_of

TRIALS = 1_000
"""That have ended before anything is measured."""
ASKS = 15
KILLS = 5
ROUNDS = 5
TRIVIAL = 40
"""Trials of one round."""
SPACE = tuple(Parameter(f"p{at}", FloatRange(1e-3, 1.0, log=True)) for at in range(10))
LEARNING: tuple[SamplerName, ...] = ("TPE", "CmaEs")


def ended(trials: int, *, reports: int) -> list[Record]:
    """A log of this many trials that have succeeded."""
    dice = random.Random(1)
    records: list[Record] = [session()]
    for trial in range(trials):
        records.append(Ask(trial, {it.name: dice.uniform(1e-3, 1.0) for it in SPACE}))
        for first in range(1, reports + 1, 10):
            steps = range(first, min(first + 10, reports + 1))
            told = (TrialReport(trial, 1, 1, 0, at, at, written(1 / at)) for at in steps)
            records.append(Reports(tuple(told)))
        value = written(dice.random())
        records.append(Tell(trial, 1, "Succeeded", "Ended", value=value, step=reports, attempt=1))
    return records


def written_log(folder: RunStore, records: list[Record], suggest: Suggest) -> SweepLog:
    log = SweepLog(folder, suggest=suggest)
    for record in records:
        assert log.append(record)
    return log


# ------------------------------------------------------------------------------------- an answer


def asks(name: SamplerName) -> None:
    search = Search(space=SPACE, objective=Objective("loss"), sampler=name)
    samplers = optuna.samplers
    peer_sampler = samplers.CmaEsSampler(seed=1) if name == "CmaEs" else samplers.TPESampler(seed=1)
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as place:
        folder = RunStore(open_store(Path(place).as_uri()), "search")
        log = written_log(folder, ended(TRIALS, reports=10), suggest_of(name))
        study = optuna.create_study(sampler=peer_sampler)
        trials = log.view.trials.values()
        study.add_trials([frozen(trial, SPACE, places) for trial in trials])
        ours, peers = [], []
        targets = Targets(session=session(), asked=TRIALS)
        for count in range(ASKS + 1):
            begun = time.perf_counter()
            log.settle(Targets(session=targets.session, asked=TRIALS + count + 1), search)
            ours.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            trial = study.ask()
            for it in SPACE:
                trial.suggest_float(it.name, 1e-3, 1.0, log=True)
            peers.append(time.perf_counter() - begun)
    mine, peer = median(ours[1:]) * 1e3, median(peers[1:]) * 1e3
    print(
        f"{name}, {TRIALS} trials, 10 parameters: order -> committed {mine:.0f} ms, Optuna in "
        f"memory {peer:.0f} ms: {mine - peer:+.0f} ms (at most +30); the first "
        f"{ours[0] * 1e3:.0f} ms"
    )


# ------------------------------------------------------------------------------ a clerk's death


async def deaths(name: SamplerName, *, uri: str = "") -> None:
    """`uri`: of the storage, a folder by default."""
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as place:
        bureau = await Bureau.open(Path(place), uri=uri)
        written_log(RunStore(bureau.store, "search"), ended(TRIALS, reports=100), by_chance)
        took = []
        search = {"sampler": {"name": name}, "space": spec_space()}
        clerk = bureau.start_clerk()
        for count in range(KILLS):
            bureau.order(asked=TRIALS + count, spec_changes=search)
            await bureau.view(lambda it, n=TRIALS + count: it.asked == n, "the log is known")
            clerk.kill()
            clerk.wait()
            bureau.order(asked=TRIALS + count + 1, spec_changes=search)
            begun = time.perf_counter()
            clerk = bureau.start_clerk()
            await bureau.view(lambda it, n=TRIALS + count + 1: it.asked == n, "the next trial")
            took.append(time.perf_counter() - begun)
        await bureau.close()
    where = ", on S3" if uri else ""
    print(
        f"{name}: kill -9 of the clerk{where}, {TRIALS} trials of 100 reports: {median(took):.1f} "
        f"s until the next trial is asked for and known, at most {max(took):.1f} s (at most 4)"
    )


def spec_space() -> list[dict[str, object]]:
    return [{"name": it.name, "float": {"low": 1e-3, "high": 1.0, "log": True}} for it in SPACE]


# ------------------------------------------------------------------------------ an operator's side


def operator() -> None:
    entries = tuple(LogEntry(record) for record in ended(TRIALS, reports=10))
    bodies, known = [], 0
    while known < len(entries):
        sent = piece(entries[known:])
        state = ClerkState(sweep_uid="bench", position=len(entries), sent_after=known, records=sent)
        bodies.append(state.to_json())
        known += len(sent)
    tracemalloc.start()
    exchange = ClerkExchange(sweep_uid="bench", on_news=lambda: None)
    begun = time.process_time()
    for body in bodies:
        exchange.hear(ClerkState.from_json(json.loads(body)))
    used = time.process_time() - begun
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"the operator, {TRIALS} trials of 10 reports: {kept / 1e6:.1f} MB (at most 10), "
        f"{used / TRIALS * 1e3:.1f} ms of CPU for each trial while memory is traced (at most 30)"
    )


# ------------------------------------------------------------------------------- trivial trials

SWEEP = """
apiVersion: trainrun.dev/v1alpha1
kind: TrainSweep
metadata: {{name: bench}}
spec:
  storage: {{uri: "file://{folder}/storage"}}
  objective: {{metric: loss, goal: minimize}}
  space:
    - {{name: x, float: {{low: 0.0, high: 1.0}}}}
  sampler: {{name: TPE}}
  budget: {{trials: {trials}}}
  maxConcurrent: 2
  run:
    workers:
      template:
        spec:
          containers:
            - {{name: worker, image: none, command: ["{python}", "{script}"]}}
"""


def trivial() -> None:
    scripts = Path(__file__).parent / "scripts"
    ray = os.environ.get("RAY_PYTHON")
    ours, peers = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
            file = Path(folder) / "sweep.yaml"
            (Path(folder) / "storage").mkdir()
            script = scripts / "trivial_trial.py"
            file.write_text(
                SWEEP.format(folder=folder, trials=TRIVIAL, python=sys.executable, script=script)
            )
            begun = time.monotonic()
            command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(file), "--json"]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            ours.append(TRIVIAL / (time.monotonic() - begun) * 60)
        if ray:
            said = subprocess.run(
                [ray, str(scripts / "trivial_tune.py"), str(TRIVIAL)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            found = re.search(r"^seconds ([\d.]+)$", said, re.MULTILINE)
            assert found, said
            peers.append(TRIVIAL / float(found[1]) * 60)
    line = f"trivial trials, 2 at a time: {median(ours):.0f} a minute"
    if peers:
        line += f", Ray Tune {median(peers):.0f}: {median(ours) / median(peers):.1f} x (at least 4)"
    print(line)


def main() -> None:
    print(machine())
    for name in LEARNING:
        asks(name)
        asyncio.run(deaths(name))
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as place:
        with running_server(Path(place)) as server:
            os.environ.update(server.environment())
            asyncio.run(deaths("TPE", uri=f"s3://{server.make_bucket('sweeps')}/searches"))
    operator()
    trivial()


if __name__ == "__main__":
    main()
