"""What a fleet costs the operator: CPU seconds, memory, and how soon it does what it must.

    python -m benchmarks.fleet [--agents N] [--large N] [--quiet SECONDS]

Method: a real API server, two real operators (one leads), and one process that stands in for
kubelets and speaks the protocol for all agents, each over a TLS connection from an address of its
own (`benchmarks/on_fleet`). Runs of ten workers report a step a second. Figures are CPU seconds and
memory of the operator that leads, from /proc. Latencies are those between a crash and the last
start order of the run's next attempt, and from the death of the leader until every agent has been
heard by the next one; where the machine was saturated by the load that it makes itself, or by
others, this is said instead. Then, alone, the start of one large run. The yardstick, a fixed loop
in Python, tells how fast the machine was when a figure was taken: 30 ms on the machine of the
documented ones at its fastest.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local_job import machine
from benchmarks.on_fleet.meter import Meter, megabytes, yardstick
from benchmarks.on_fleet.scene import Process, WorkerObservation, scene

AGENTS, LARGE = 2000, 1000
GANG = 10
STEADY = 60.0
"""Seconds for which the fleet trains and nothing else happens."""
SETTLING = 20.0
"""Seconds before that, and before the first crash."""
CRASHES = 100
"""One after the other, and at once; no more than there are runs."""
PATIENCE = 120.0
"""Seconds until a recovery is given up."""
QUIET = 100.0
"""Seconds after a hand-over in which nothing may be counted: silence is judged after 90 at most."""
AT_ONCE = 20
"""Runs that are created together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the result."""

    what: str
    value: float | None
    """None: the machine was saturated."""
    unit: str
    most: float
    """What it must be."""

    def tell(self) -> str:
        """As a line."""
        if self.value is None:
            return f"{self.what:52} not told: the machine was saturated"
        verdict = "" if self.value <= self.most else "   TOO MUCH"
        return f"{self.what:52} {self.value:8.2f} {self.unit} (at most {self.most:g}){verdict}"


def say(text: str) -> None:
    """Now, for runs that take long."""
    print(text, flush=True)


def latency(meter: Meter, seconds: float) -> float | None:
    """What was measured, unless it says more of the machine than of the operator."""
    return None if meter.saturated else seconds


def surroundings(meter: Meter) -> str:
    """How the machine was used meanwhile."""
    alive = [pid for pid in meter.ours if Path(f"/proc/{pid}").exists()]
    return (
        f"  (machine {meter.busy:.0%} busy, {meter.others(alive):.2f} cores by others, "
        f"yardstick {yardstick():.0f} ms)"
    )


async def start_fleet(found: WorkerObservation, agents: int) -> None:
    """Create the runs, some at a time, and wait until all train."""
    leader, meter = await found.leader(), Meter(ours=found.pids())
    names = [f"run-{number:04d}" for number in range(agents // GANG)]
    for begin in range(0, len(names), AT_ONCE):
        some = names[begin : begin + AT_ONCE]
        await asyncio.gather(*(found.start(name, GANG) for name in some))
        await found.until_training((begin + len(some)) * GANG, PATIENCE * 2)
    say(
        f"{agents} agents in {len(names)} runs train after {meter.seconds:.0f} s; operator: "
        f"{meter.cpu(leader.pid):.1f} s of CPU{surroundings(meter)}"
    )


async def steady(found: WorkerObservation, agents: int) -> list[Figure]:
    """All train, and nothing happens."""
    await asyncio.sleep(SETTLING)
    leader, meter = await found.leader(), Meter(ours=found.pids())
    await asyncio.sleep(STEADY)
    cores = meter.cpu(leader.pid) / meter.seconds
    say(f"while all train: {cores:.3f} cores{surroundings(meter)}")
    per_agent = megabytes(leader.pid) / agents
    say(f"memory: {megabytes(leader.pid):.0f} MB, {1000 * per_agent:.0f} kB for each agent")
    return [
        Figure(what="operator while all train", value=cores, unit="cores", most=0.3),
        Figure(what="operator, memory", value=megabytes(leader.pid), unit="MB", most=350),
    ]


async def crashes(found: WorkerObservation, agents: int) -> list[Figure]:
    """One after the other, then all at once."""
    names = [f"run-{number:04d}" for number in range(min(CRASHES, agents // GANG))]
    leader, meter = await found.leader(), Meter(ours=found.pids())
    took = [(await found.ask("crash", [name], PATIENCE))[0] for name in names]
    single = sorted(PATIENCE if one is None else one for one in took)
    cpu = meter.cpu(leader.pid)
    say(
        f"{len(names)} crashes one by one: median {single[len(single) // 2]:.2f} s, slowest "
        f"{single[-1]:.2f} s; operator: {cpu:.1f} s of CPU in {meter.seconds:.0f} s"
        f"{surroundings(meter)}"
    )
    p99 = latency(meter, single[min(int(0.99 * len(single)), len(single) - 1)])
    await asyncio.sleep(SETTLING)
    meter = Meter(ours=found.pids())
    took = await found.ask("crash", names, PATIENCE)
    worst = max(PATIENCE if one is None else one for one in took)
    cpu, at_once = meter.cpu(leader.pid), latency(meter, worst)
    say(
        f"{len(names)} crashes at once: all start again after {worst:.2f} s; operator: {cpu:.1f} s "
        f"of CPU{surroundings(meter)}"
    )
    await asyncio.sleep(SETTLING)
    return [
        Figure(what="a crash until the next start order, p99", value=p99, unit="s", most=1),
        Figure(
            what=f"{len(names)} crashes at once, until the last start order",
            value=at_once,
            unit="s",
            most=5,
        ),
        Figure(what=f"{len(names)} crashes at once, CPU", value=cpu, unit="s", most=5),
    ]


async def hand_over(found: WorkerObservation, agents: int, quiet: float) -> list[Figure]:
    """The leader dies; another one leads, hears everybody and counts nothing."""
    before, died = await found.counted(), await found.leader()
    address = next(at for at, process in found.operators.items() if process is died)
    meter, moment = Meter(ours=found.pids()), time.monotonic()
    died.kill()
    died.wait()
    del found.operators[address]
    (leads,) = found.operators.values()
    heard = await until_heard(found, moment)
    cpu = meter.cpu(leads.pid)
    say(
        f"the leader was killed: all {agents} heard again after {heard:.1f} s; the new one: "
        f"{cpu:.1f} s of CPU{surroundings(meter)}"
    )
    told = latency(meter, heard)
    await asyncio.sleep(quiet)
    after = await found.counted()
    changed = [name for name, counts in after.items() if counts != before[name]]
    say(
        f"{quiet:.0f} s later: {len(changed)} runs have counted something {changed[:3]}; memory "
        f"{megabytes(leads.pid):.0f} MB, at most {megabytes(leads.pid, 'VmHWM'):.0f} MB"
    )
    await steady_after(found, leads)
    return [
        Figure(what="leader killed, until all are heard", value=told, unit="s", most=30),
        Figure(what="runs that counted something", value=len(changed), unit="", most=0),
        Figure(what="new leader, memory", value=megabytes(leads.pid), unit="MB", most=400),
    ]


async def steady_after(found: WorkerObservation, leads: Process) -> None:
    """Heartbeats that came together stay together for a while: is that dearer?"""
    meter = Meter(ours=found.pids())
    await asyncio.sleep(STEADY / 2)
    cores = meter.cpu(leads.pid) / meter.seconds
    say(f"after the hand-over: {cores:.3f} cores{surroundings(meter)}")


async def until_heard(found: WorkerObservation, moment: float) -> float:
    """Seconds from `moment` until every agent has been told since that it was heard."""
    while time.monotonic() < moment + PATIENCE * 2:
        heard = await found.ask("heard", moment)
        if heard is not None:
            return float(heard)
        await asyncio.sleep(0.2)
    return PATIENCE * 2


async def large_run(found: WorkerObservation, workers: int) -> list[Figure]:
    """From the creation of the TrainRun until all its processes have been started."""
    leader, meter = await found.leader(), Meter(ours=found.pids())
    await found.start("large", workers)
    await found.until_training(workers, PATIENCE * 5)
    cpu = meter.cpu(leader.pid)
    say(
        f"one run of {workers} trains after {meter.seconds:.0f} s; operator: {cpu:.1f} s of CPU"
        f"{surroundings(meter)}"
    )
    return [Figure(what=f"start of one run of {workers}, CPU", value=cpu, unit="s", most=10)]


async def measure(agents: int, large: int, quiet: float) -> list[Figure]:
    """All figures."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        if agents:
            async with scene(Path(folder) / "fleet") as found:
                await start_fleet(found, agents)
                figures += await steady(found, agents)
                figures += await crashes(found, agents)
                figures += await hand_over(found, agents, quiet)
        if large:
            async with scene(Path(folder) / "large") as found:
                figures += await large_run(found, large)
    return figures


def main() -> int:
    """Print the figures; 1 if one is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=AGENTS, help="in runs of ten; 0: none")
    parser.add_argument("--large", type=int, default=LARGE, help="workers of one run; 0: none")
    parser.add_argument("--quiet", type=float, default=QUIET, help="seconds after the hand-over")
    options = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    say(machine())
    figures = asyncio.run(measure(options.agents, options.large, options.quiet))
    for figure in figures:
        say(figure.tell())
    return 0 if all(f.value is None or f.value <= f.most for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
