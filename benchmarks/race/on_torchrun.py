"""The race's training as a script for torchrun: torch.save to the disk, then an upload.

Like a careful user's: a file appears by a rename, all but the two newest objects are deleted, and
what a restart finds on the disk it need not download.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.race.training import LargeTraining

KEPT = 2
"""Objects."""
disk = Path(os.environ["STORE"])


class Bucket:
    """Where the checkpoints go."""

    def __init__(self) -> None:
        import boto3  # noqa: PLC0415 - a restart that finds its file does without

        self.name = os.environ["BUCKET"]
        self.client: Any = boto3.client("s3")

    def put(self, file: Path) -> None:
        """Upload it, then delete old ones."""
        self.client.upload_file(str(file), self.name, file.name)
        listed = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        for old in sorted(each["Key"] for each in listed)[:-KEPT]:
            self.client.delete_object(Bucket=self.name, Key=old)


dist.init_process_group("gloo")
training = LargeTraining()
step, bucket = 0, None
if saved := sorted(disk.glob("step-*.pt")):
    training.load(saved[-1])
    step = int(saved[-1].stem.removeprefix("step-"))
training.began(step)
while True:
    step += 1
    training.step(step)
    if training.save_is_due:
        with training.saving():
            file = disk / f"step-{step:09d}.pt"
            training.save(file.with_suffix(".new"))
            file.with_suffix(".new").rename(file)
            bucket = bucket or Bucket()
            bucket.put(file)
            for old in sorted(disk.glob("step-*.pt"))[:-KEPT]:
                old.unlink()
