"""A rank that knows its attempt's key and keeps a log; it shows a digest of the key."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import trainrun
from trainrun.tasks.agent_storage import AgentTaskStorage, attempt_key

here = Path(os.environ["JOURNAL"])
here.mkdir(exist_ok=True)
attempt, rank = os.environ["TRAINRUN_ATTEMPT"], os.environ["RANK"]
digest = hashlib.sha256(attempt_key()).hexdigest()
if rank == "0":
    keep = AgentTaskStorage()
    batches = keep.read(0)
    keep.append(len(batches) + 1, b'{"session":"%s"}' % attempt.encode())
    trainrun.report({"loss": 1.0}, step=len(batches) + 1)
(here / f"{attempt}-{rank}.partial").write_text(digest)
(here / f"{attempt}-{rank}.partial").rename(here / f"{attempt}-{rank}")
while not (here / f"seen-{attempt}").exists():
    time.sleep(0.01)
if attempt == "1":
    raise SystemExit(3)
