"""A node that loses its power between two uploads, with checkpoint.buddy: the steps that it costs.

Two workers on two of three nodes save every two seconds, and an upload is due every minute. A round
begins once the buddies have copied a checkpoint of the new attempt; the power goes at random. A
*write* is the time from a rank's save until the other node has its copy, as found on the disk of
the node that is left, the longest of all rounds. It needs the embedded cluster, whose nodes' disks
are folders of this machine.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.on_cluster.gang import AT_ONCE_FOR_EVER, PATIENCE
from benchmarks.verdict import must
from testbed.faults import nodes
from testbed.nodes import Node
from tests.e2e.support.bed import Bed
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.installation import Installation
from tests.e2e.support.spreading import on_different_nodes

SCRIPT = Path(__file__).parent.parent / "scripts" / "save_often.py"
STEP = 0.1
"""Seconds."""
EVERY = 20
"""Steps between two saves."""
MEGABYTES = 40
"""Of each rank."""
RANKS = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Savers:
    """A TrainRun of it; `folder` is shared with all nodes."""

    run: ClusterRun
    folder: Path

    @classmethod
    def start(cls, bed: Bed, *, folder: Path) -> Savers:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        shutil.copy(SCRIPT, folder)
        env = {"MARKS": "/bench", "EVERY": EVERY, "MEGABYTES": MEGABYTES}
        run = bed.run(
            "buddy",
            replicas=len(RANKS),
            gpus=0,
            container={
                "command": ["python3", f"/bench/{SCRIPT.name}"],
                "volumeMounts": [{"name": "bench", "mountPath": "/bench"}],
                "env": [{"name": key, "value": str(value)} for key, value in env.items()],
            },
            pod={
                "volumes": [{"name": "bench", "hostPath": {"path": str(folder)}}],
                **on_different_nodes("buddy"),
            },
            checkpoint={"uploadEvery": "1m", "buddy": True},
            failurePolicy=AT_ONCE_FOR_EVER,
            health={"heartbeatTimeout": "10s"},
        )
        return cls(run=run, folder=folder)

    def until(self, what: str, found: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not found():
            if time.monotonic() > deadline:
                raise SystemExit(f"waited in vain for {what}\n{self.run.story()}")
            time.sleep(0.1)

    def marks(self, what: str) -> list[float]:
        """What each rank wrote down last, in the order of ranks; empty: one has not."""
        files = [self.folder / f"{what}-{rank}" for rank in RANKS]
        return [float(file.read_text()) for file in files] if all(map(Path.exists, files)) else []

    def attempt(self) -> int:
        """The newest attempt that both ranks have begun."""
        begun = (path.name.split("-")[1] for path in self.folder.glob("first-*-0"))
        return max((n for n in map(int, begun) if self.marks(f"first-{n}")), default=0)


def copies(node: Node) -> Mapping[int, float]:
    """By step, when its copy on this node's disk was last written to."""
    found: dict[int, float] = {}
    for path in (node.folder / "kubelet" / "pods").glob("*/volumes/*/*/**/copies/*/*/state-*"):
        with suppress(FileNotFoundError), path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_size == MEGABYTES << 20:
                found[int.from_bytes(file.read(8), "big")] = about.st_ctime
    return found


def lose_nodes(
    bed: Bed, installation: Installation, *, folder: Path, rounds: int, seed: int = 0
) -> None:
    """Let it lose a node so often; prints what each loss costs, and what it may cost."""
    savers, dice = Savers.start(bed, folder=folder), random.Random(seed)
    lost, writes = [], [0.0]
    for turn in range(rounds):
        savers.until("an attempt", savers.attempt)
        attempt = savers.attempt()
        [begun, _] = savers.marks(f"resumed-{attempt}")
        victim, left = (
            str(savers.run.pod((turn + other) % 2)["spec"]["nodeName"]) for other in (0, 1)
        )
        installation.lead_elsewhere(victim)
        node = bed.cluster.node(left)
        if not isinstance(node, Node):
            raise SystemExit("this figure looks at disks of nodes: use CLUSTER=embedded")
        savers.until("a copy", lambda: max(copies(node), default=0) > begun)  # noqa: B023
        time.sleep(dice.uniform(2.0, 6.0))
        reached = min(savers.marks("reached"))
        nodes.power_off(bed.cluster, victim)
        found = copies(node)
        savers.until("the next attempt", lambda: savers.attempt() > attempt)  # noqa: B023
        [resumed, other] = savers.marks(f"resumed-{savers.attempt()}")
        if resumed != other:
            raise SystemExit(f"ranks began at {resumed:.0f} and {other:.0f}")
        lost.append(reached - resumed)
        if resumed in found:
            saved = min(savers.marks(f"saving-{resumed:.0f}"))
            writes.append(found[resumed] - saved)
        print(
            f"    node {turn + 1}: {lost[-1]:.0f} steps lost, copy after {writes[-1]:.2f} s",
            flush=True,
        )
        nodes.power_on(bed.cluster, victim)
    limit = EVERY + max(writes) / STEP + 1
    over = sum(each > limit for each in lost)
    bound = must("nodes lost that cost more", over, 0)
    print(
        f"node power loss with a buddy: {max(lost):.0f} steps lost at most, in {rounds} losses; "
        f"{over} cost more than {limit:.0f}: one interval and one write {bound}",
        flush=True,
    )
