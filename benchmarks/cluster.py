"""Recovery on a real cluster: three nodes, the operator installed by its chart, trivial workers.

Every figure but two is from the moment something is broken to the moment the last rank of the next
attempt has been spawned (a file is the first thing that it makes); `warm` is until the first
optimizer step of PyTorch, and `buddy` counts the steps that a lost node costs. One round after the
other, medians of at least five. `make bench-cluster`; a single figure: `benchmarks/cluster.py
crash`.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import machine
from benchmarks.on_cluster.buddies import lose_nodes
from benchmarks.on_cluster.figures import tell
from benchmarks.on_cluster.gang import PAUSE, Gang
from benchmarks.on_cluster.peer import start_plain_pods
from benchmarks.on_cluster.quiet import sandboxes, wait_for_sandboxes, wait_until_calm
from benchmarks.on_cluster.stages import stages, tell_stages
from benchmarks.on_cluster.warm_starts import recovery, tell_rounds
from benchmarks.verdict import end, must
from testbed.cluster import Cluster
from testbed.faults import nodes, pods, processes
from testbed.images import base_image
from testbed.project_images import build_all
from tests.e2e.support.bed import Bed, a_bed
from tests.e2e.support.installation import Installation
from tests.e2e.support.operator_process import OperatorProcess

NAME = "bench"
ROUNDS = 5
LOSSES = 10
"""Of nodes with a buddy."""
PAIRS = 8
"""Of starts that are compared: the machine's speed may change from one to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all figures need."""

    cluster: Cluster
    installation: Installation
    folder: Path

    @contextmanager
    def bed(self, name: str) -> Iterator[Bed]:
        """A namespace, on a machine that has nothing else to do."""
        others = sandboxes()
        with a_bed(self.cluster, f"bench-{name}") as bed:
            wait_until_calm()
            yield bed
        wait_for_sandboxes(others)

    @contextmanager
    def gang(self, name: str, *, replicas: int = 6, heartbeat: str = "10s") -> Iterator[Gang]:
        """A gang that has been spawned."""
        with self.bed(name) as bed:
            gang = Gang.start(
                bed, name, folder=self.folder / name, replicas=replicas, heartbeat=heartbeat
            )
            gang.spawned(1)
            gang.settle()
            yield gang

    def rounds(self, gang: Gang, break_it: Break, *, number: int = ROUNDS) -> list[float]:
        """Break it so often; returns the seconds of each recovery, and prints their stages."""
        took, parts = [], []
        for turn in range(number):
            attempt = gang.attempt()
            with break_it(gang, turn) as strike:
                broken = time.time()
                strike()
                spawned = gang.spawned(attempt + 1)
            took.append(spawned - broken)
            name = f"{gang.run.bed.namespace}/{gang.run.name}"
            span = {"broken": broken, "spawned": spawned}
            parts.append(stages(self.installation, run=name, attempt=attempt + 1, **span))
            gang.settle()
        tell_stages(parts)
        return took


Break = Callable[[Gang, int], AbstractContextManager[Callable[[], object]]]
"""Prepares a fault; the round begins when it strikes."""


def kill_a_process(gang: Gang, turn: int) -> AbstractContextManager[Callable[[], object]]:
    """SIGKILL of one training process."""
    return processes.about_to_kill(
        gang.run.bed.cluster,
        _pod_of(gang, turn),
        matching="^sleep 1000000",
        namespace=gang.run.bed.namespace,
    )


@contextmanager
def delete_a_pod(gang: Gang, turn: int) -> Iterator[Callable[[], object]]:
    """`kubectl delete pod`, with the template's grace of 30 s."""
    pod, bed = _pod_of(gang, turn), gang.run.bed
    yield lambda: pods.delete(bed.cluster, pod, namespace=bed.namespace)


@contextmanager
def evict_a_pod(gang: Gang, turn: int) -> Iterator[Callable[[], object]]:
    """The eviction API, as a drain uses it."""
    pod, bed = _pod_of(gang, turn), gang.run.bed
    yield lambda: pods.evict(bed.cluster, pod, namespace=bed.namespace)


def _pod_of(gang: Gang, turn: int) -> str:
    return str(gang.run.pod(turn % gang.replicas)["metadata"]["name"])


# -------------------------------------------------------------------------------- the figures


def crash(bench: Bench) -> None:
    """kill -9 of a process, ten times in a row."""
    with bench.gang("crash") as gang:
        operator = OperatorProcess.leading(bench.installation)
        before = operator.cpu_seconds()
        took = bench.rounds(gang, kill_a_process, number=10)
        spent = (operator.cpu_seconds() - before) / len(took)
        tell("kill -9 of a process -> all spawned, gang of 6", took, limit=1.0)
        print(f"    the tenth crash in a row: {took[-1]:.2f} s")
        print(
            f"operator: {spent:.2f} CPU seconds per incident, its pauses of {PAUSE:g} s "
            f"included {must('CPU seconds per incident', spent, 0.3)}"
        )
        resident = operator.resident_bytes() / 1e6
        bound = must("the operator's memory", resident, 150, "MB")
        print(f"operator: {resident:.0f} MB resident with one run {bound}")


def deletion(bench: Bench) -> None:
    """A pod deleted by hand."""
    with bench.gang("deletion") as gang:
        took = bench.rounds(gang, delete_a_pod)
        tell("pod deleted by hand -> all spawned", took, limit=4.0)


def eviction(bench: Bench) -> None:
    """A pod evicted, with notice."""
    with bench.gang("eviction") as gang:
        took = bench.rounds(gang, evict_a_pod)
        tell("eviction -> all spawned", took, limit=4.0)


def power_loss(bench: Bench) -> None:
    """A node loses its power, and comes back."""
    _power_loss(bench, heartbeat="5s", limit=12.0)


def power_loss_by_default(bench: Bench) -> None:
    """The same with the default heartbeatTimeout."""
    _power_loss(bench, heartbeat="30s", limit=40.0)


def _power_loss(bench: Bench, *, heartbeat: str, limit: float) -> None:
    with bench.gang(f"power-{heartbeat}", heartbeat=heartbeat) as gang:
        took = []
        for turn in range(ROUNDS):
            attempt, victim = gang.attempt(), _node_of_workers(gang, turn)
            # That the leader goes, too, is another figure.
            bench.installation.lead_elsewhere(victim)
            gang.settle(6.0)
            broken = time.time()
            nodes.power_off(bench.cluster, victim)
            took.append(gang.spawned(attempt + 1) - broken)
            nodes.power_on(bench.cluster, victim)
            gang.settle(8.0)
            if gang.attempt() != attempt + 1:
                print(f"    the return of {victim} led to another restart")
        status = gang.run.status
        tell(f"node power loss, heartbeatTimeout {heartbeat} -> all spawned", took, limit=limit)
        print(f"    {ROUNDS} losses and returns: {status['failures']['counted']} counted")


def _node_of_workers(gang: Gang, turn: int) -> str:
    used = {pod["spec"]["nodeName"] for pod in gang.run.pods() if _is_alive(pod)}
    return sorted(used)[turn % len(used)]


def _is_alive(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def thirty(bench: Bench) -> None:
    """A gang of 30: its start against as many plain pods, and a crash."""
    gangs: list[float] = []
    plain: list[float] = []

    def start_a_gang(turn: int) -> None:
        with bench.bed(f"thirty-{turn}") as bed:
            folder = bench.folder / f"thirty-{turn}"
            gang = Gang.start(bed, f"thirty-{turn}", folder=folder, replicas=30)
            gangs.append(gang.spawned(1) - gang.applied)

    def start_the_peer(turn: int) -> None:
        with bench.bed(f"plain-{turn}") as bed:
            plain.append(start_plain_pods(bed, folder=bench.folder / f"plain-{turn}", number=30))

    for turn in range(PAIRS):
        # In turns: whatever the first leaves behind, neither has it to bear more often.
        pair = (start_the_peer, start_a_gang)
        for start in pair if turn % 2 == 0 else reversed(pair):
            start(turn)
    tell("30 plain pods: one Python process, one HTTPS call", plain)
    tell("gang of 30 -> all spawned", gangs)
    ratios = [ours / theirs for ours, theirs in zip(gangs, plain, strict=True)]
    tell("    ratio, each against the plain pods of its round", ratios, limit=2.0, unit="times")
    with bench.gang("thirty", replicas=30) as gang:
        took = bench.rounds(gang, kill_a_process)
        tell("kill -9 of a process -> all spawned, gang of 30", took, limit=1.5)


def warm(bench: Bench) -> None:
    """A pod deleted with force, until the first step of PyTorch: with standbys, and without."""
    bench.cluster.up([base_image("torch")])
    took: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for turn in range(ROUNDS):
        # In turns: whatever the first leaves behind, neither has it to bear more often.
        for kind in (True, False) if turn % 2 == 0 else (False, True):
            name = f"{'warm' if kind else 'cold'}-{turn}"
            with bench.bed(name) as bed:
                folder = bench.folder / name
                took[kind].append(recovery(bed, name, folder, turn=turn, warm=kind))
    tell_rounds(took[True], took[False])


def buddy(bench: Bench) -> None:
    """A node loses its power between two uploads, ten times: steps lost."""
    with bench.bed("buddy") as bed:
        lose_nodes(bed, bench.installation, folder=bench.folder / "buddy", rounds=LOSSES)


FIGURES: dict[str, Callable[[Bench], None]] = {
    "crash": crash,
    "deletion": deletion,
    "eviction": eviction,
    "power-loss": power_loss,
    "power-loss-by-default": power_loss_by_default,
    "thirty": thirty,
    "warm": warm,
    "buddy": buddy,
}


def main() -> None:
    chosen = sys.argv[1:] or list(FIGURES)
    if unknown := set(chosen) - set(FIGURES):
        raise SystemExit(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    print(f"{machine()}; three nodes, operator from its chart", flush=True)
    cluster = Cluster(NAME)
    try:
        cluster.up(images=build_all())
        folder = cluster.shared / "bench"
        shutil.rmtree(folder, ignore_errors=True)
        installation = Installation(cluster)
        installation.install()
        installation.wait_for_leader()
        for name in chosen:
            FIGURES[name](Bench(cluster=cluster, installation=installation, folder=folder))
    finally:
        cluster.down()
    end()


if __name__ == "__main__":
    main()
