"""The pictures of the page in the docs: `make page-pictures`."""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.cli.stories import a_folder, a_life, an_incident
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.viewing.browser import browsing
from tests.cli.viewing.chromium import chromium
from tests.support.s3_server import S3Server, free_port
from tests.support.sweeps import report, told
from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.sweep.records import Ask, End, Record, Reports, written
from trainrun_operator.api.run.status import Failures, TrainRunStatus
from trainrun_operator.api.run.status_parts import CheckpointStatus, Incident, Progress
from trainrun_operator.api.run.story import Goodput
from trainrun_operator.worlds.local.place import StatusFile, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTS = {1: (1, 1851), 2: (1200, 2400), 3: (1800, 3000)}
"""First and last steps of the attempts of a_life."""

STORAGE = "s3://ml-team/runs"
HEIGHTS = {"list": 380, "compare": 720}
"""Of the pictures that are not 900 pixels high."""
MOST = 150_000
"""Bytes of one picture."""


def curves(root: Path, name: str, *, floor: float, until: int = 3000) -> None:
    noise = random.Random(name)
    for attempt, (first, last) in STARTS.items():
        records = [
            {
                "rank": 0,
                "attempt": attempt,
                "step": step,
                "metrics": {
                    "loss": floor + 2 * math.exp(-step / 700) + noise.gauss(0, 0.02),
                    "accuracy": 0.9 - floor / 3 - math.exp(-step / 500) / 2,
                },
            }
            for step in range(first, min(last, until), 20)
        ]
        if records:
            MetricsLog(attempt).write(RunStore(open_store(root.as_uri()), name), records)


def some_runs(root: Path, *, uri: str = "") -> None:
    """One that succeeded after two failures, one that failed, one that runs, and a sweep; `uri`:
    the storage that this folder stands for, if it is not the folder itself."""
    a_folder(root, *a_life(), name="llama-8b")
    *most, last = a_life()
    wide = {**last.facts, "replicas": "16", "image": "registry/llama:3"}
    failed = replace(last, end="Incident", verdict="TooManyFailures", facts=wide)
    a_folder(root, *most, replace(failed, incident=an_incident(rank=5)), name="llama-8b-wide")
    curves(root, "llama-8b", floor=0.35)
    curves(root, "llama-8b-wide", floor=0.5)
    now = datetime.now(UTC)
    uri = uri or root.as_uri()
    file = StatusFile(place_of(uri, "gpt-small", environ=os.environ).status)
    file.path.parent.parent.mkdir(parents=True, exist_ok=True)
    lost = Incident(
        attempt=1,
        cause="NodeLost",
        counted=True,
        time=now,
        node="n7",
        lost_steps=651,
        message="node n7 is not ready",
        recovery_seconds=41.0,
        restart_seconds=35.0,
    )
    status = TrainRunStatus(
        phase="Running",
        attempt=3,
        start_time=now,
        progress=Progress(step=1840, metrics={"loss": 0.541, "accuracy": 0.754}, time=now),
        goodput=Goodput(text="93.1 %", time=now, seconds={"useful": 931.0, "start": 69.0}),
        incidents=(lost, replace(lost, attempt=2, cause="AppError", rank=5, message="bad batch")),
        failures=Failures(counted=2, limit=5, text="2/5"),
        checkpoint=CheckpointStatus(step=1800, attempt=2, size_bytes=1 << 30, time=now,
                                    uri=f"{uri}/gpt-small/checkpoints"),
    )  # fmt: skip
    stored = file.create({})
    file.replace(replace(stored, status=status))
    curves(root, "gpt-small", floor=0.4, until=1840)
    some_sweep(root)


def some_sweep(root: Path) -> None:
    sweeps, noise = Sweeps(root.parent), random.Random(1)
    records: list[Record] = []
    for number in range(24):
        lr, width = 10 ** noise.uniform(-3, -1), noise.randint(1, 9)
        value = 0.3 + abs(math.log10(lr) + 2) / 2 + width / 100 + abs(noise.gauss(0, 0.02))
        records += [
            Ask(number, {"lr": lr, "width": width}),
            Reports((report(number, 40, value),), active=30.0),
            told(number, value=written(value), step=40),
        ]
    records.append(End("Succeeded", "AllTrialsEnded", "24 trials have ended"))
    sweeps.write(*records)


@contextmanager
def a_bucket() -> Iterator[None]:
    """STORAGE holds the runs, on a server of its own: pictures show no path of this machine."""
    with tempfile.TemporaryDirectory() as scratch:
        server = S3Server(directory=Path(scratch) / "s3", port=free_port())
        server.start()
        try:
            server.make_bucket(urlsplit(STORAGE).netloc)
            os.environ |= {**server.environment(), "XDG_STATE_HOME": f"{scratch}/state"}
            root, store = Path(scratch) / "storage", open_store(STORAGE)
            some_runs(root, uri=STORAGE)
            for path in filter(Path.is_file, root.rglob("*")):
                store.put(str(path.relative_to(root)), path.read_bytes())
            yield
        finally:
            server.stop()


async def draw(folder: Path) -> None:
    """Write the pictures into this folder."""
    with a_bucket():
        async with browsing(STORAGE) as reader, chromium() as browser:
            await reader.shows("3 runs, 1 sweep.")
            text = await reader.shows("<path ")
            ids = re.findall(r'form="chosen" name="run" value="(.*?)"', text)
            await browser.open(reader.server.address())
            pages = {
                "list": "./",
                "run": await reader.link_to("llama-8b"),
                "compare": "compare?" + "&".join(f"run={i}" for i in ids if "llama" in i),
                "sweep": await reader.link_to("lr"),
            }
            for name, path in pages.items():
                await browser.see(1280, height=HEIGHTS.get(name, 900))
                await browser.open(f"{reader.root}{path}")
                picture = await browser.picture()
                assert len(picture) < MOST, (name, len(picture))
                (folder / f"page-{name}.png").write_bytes(picture)


if __name__ == "__main__":
    asyncio.run(draw(Path(sys.argv[1])))
