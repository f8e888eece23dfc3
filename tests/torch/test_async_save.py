"""`torch.distributed.checkpoint.async_save`, reported before and behind its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import threading, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp, trainrun
dist.init_process_group("gloo", init_method="file://{rendezvous}", rank=0, world_size=1)
written, may_end = threading.Event(), threading.Event()

class SaveThatWaits(dcp.FileSystemWriter):
    def finish(self, metadata, results):
        written.set()
        may_end.wait(60)
        super().finish(metadata, results)

for step in range(1, 3):
    directory = trainrun.staging_directory()
    writer = SaveThatWaits(directory)
    saving = dcp.async_save({{"weights": torch.zeros(1000)}}, storage_writer=writer)
    if step == 1:
        may_end.set()
        saving.result()
        written.clear()
        may_end.clear()
    else:
        written.wait(60)
    trainrun.report(step=step, checkpoint=directory)
    print("reported", step, flush=True)
may_end.set()
saving.result()
trainrun.report(step=step + 1)
"""


def test_an_asynchronous_save_is_reported_at_its_end(tmp_path: Path) -> None:
    """Its thread died of a missing folder, and no message pointed at the cause."""
    source = SCRIPT.format(rendezvous=tmp_path / "rendezvous")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "worker_image")}
    ended = subprocess.run(
        [sys.executable, "-c", source],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert "reported 1\n" in ended.stdout
    assert "trainrun.errors.CheckpointUnfinished: " in ended.stderr.splitlines()[-1]
    assert "wait for the future of async_save()" in ended.stderr.splitlines()[-1]
