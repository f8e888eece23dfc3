"""`torch.distributed.checkpoint.async_save`, and `torch.save` in a thread."""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.library.conftest import WORKER_IMAGE
from tests.support.agent_stand_in import AgentStandIn
from tests.support.eventually import eventually

SCRIPT = """
import os, threading, time, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from concurrent.futures import ThreadPoolExecutor
import trainrun
dist.init_process_group("gloo", init_method="file://{rendezvous}", rank=0, world_size=1)
may_end = threading.Event()

class SaveThatWaits(dcp.FileSystemWriter):
    def finish(self, metadata, results):
        written.set()
        may_end.wait(60)
        super().finish(metadata, results)

def begin():
    global written
    written = threading.Event()
    directory = trainrun.staging_directory()
    writer = SaveThatWaits(directory)
    saving = dcp.async_save({{"weights": torch.zeros(1000)}}, storage_writer=writer)
    written.wait(60)
    return directory, saving

directory, saving = begin()
try:
    trainrun.report(step=1, checkpoint=directory)
except trainrun.CheckpointUnfinished as error:
    print(error, flush=True)
trainrun.report(step=1, checkpoint=directory, after=saving)
trainrun.report(step=2)
may_end.set()
saving.result()

pool, directory = ThreadPoolExecutor(), trainrun.staging_directory()
saving = pool.submit(torch.save, {{"weights": torch.zeros(1000)}}, directory / "model.pt")
trainrun.report(step=3, checkpoint=directory, after=saving)
saving.result()

may_end.clear()
directory, saving = begin()
trainrun.report(step=4, checkpoint=directory, after=saving)
time.sleep(0.1)  # the thread that waits must not take it for saved
os.kill(os.getpid(), 9)
"""


def test_asynchronous_saves_are_staged_at_their_end_and_a_killed_one_never(tmp_path: Path) -> None:
    """Without `after=` a save died of a missing folder, and no message pointed at the cause."""
    source = SCRIPT.format(rendezvous=tmp_path / "rendezvous")
    with AgentStandIn(tmp_path) as agent:
        ended = subprocess.run(
            [sys.executable, "-c", source],
            env=agent.environment(WORLD_SIZE="1", PYTHONPATH=str(WORKER_IMAGE)),
            capture_output=True,
            text=True,
            timeout=120,
        )
        eventually(lambda: len(agent.of_type("report")) == 4)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ".metadata does not yet), so it is not committed. Pass the end of its" in ended.stdout
    assert [saved["step"] for saved in agent.of_type("saved")] == [1, 3]
    sharded, single = (agent.staging / str(saved["files"]) for saved in agent.of_type("saved"))
    assert {path.name for path in sharded.iterdir()} == {".metadata", "__0_0.distcp"}
    assert zipfile.ZipFile(single / "model.pt").testzip() is None
