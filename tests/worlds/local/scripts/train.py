"""A training without torch: counts steps, saves every few of them, saves on notice, resumes.

Every rank appends one line per step to <JOURNAL>/rank-<r>.txt: attempt, step, where it came from.
Misbehaviour on request, by variables of the environment. Before step WAIT_BEFORE every rank waits
for the file WAIT_FOR; in attempt 1 it makes no step after STAY_AT; a rank that fails does so once
all have begun: so what a failure finds does not depend on how fast each process is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import trainrun

STEPS = int(os.environ.get("STEPS", "20"))
EVERY = int(os.environ.get("EVERY", "5"))
PAUSE = float(os.environ.get("PAUSE", "0.02"))
FAIL_AT = int(os.environ.get("FAIL_AT", "0"))
FAIL_RANK = int(os.environ.get("FAIL_RANK", "1"))
FAIL_ATTEMPTS = int(os.environ.get("FAIL_ATTEMPTS", "1000000"))
WAIT_BEFORE = int(os.environ.get("WAIT_BEFORE", "0"))
WAIT_FOR = Path(os.environ.get("WAIT_FOR", "/"))
STAY_AT = int(os.environ.get("STAY_AT", "0"))
NOISE = int(os.environ.get("NOISE", "0"))
MODE = os.environ.get("MODE", "")

context = trainrun.get_context()
journal = Path(os.environ["JOURNAL"])
journal.mkdir(parents=True, exist_ok=True)


def write(step: int, text: str) -> None:
    with (journal / f"rank-{context.rank}.txt").open("a") as file:
        file.write(f"{context.attempt} {step} {text}\n")


def everybody_has_begun() -> bool:
    mine = f"{context.attempt} {begin} begin"
    journals = (journal / f"rank-{rank}.txt" for rank in range(context.world_size))
    return all(path.exists() and mine in path.read_text().splitlines() for path in journals)


def resume() -> int:
    checkpoint = trainrun.get_checkpoint()
    if checkpoint is None or MODE == "ignore-checkpoint":
        return 0
    with checkpoint.as_directory() as directory:
        state = json.loads((Path(directory) / f"rank-{context.rank}.json").read_text())
    assert state["step"] == checkpoint.step, state
    return int(checkpoint.step)


def save(step: int) -> Path:
    directory = Path(trainrun.staging_directory())
    (directory / f"rank-{context.rank}.json").write_text(json.dumps({"step": step}))
    return directory


if MODE == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
begin = resume()
write(begin, "begin")
write(begin, f"id {context.run_id}")
print(f"attempt {context.attempt} begins at step {begin}", flush=True)
for step in range(begin + 1, STEPS + 1):
    time.sleep(PAUSE)
    if NOISE:
        print("x" * NOISE, flush=True)
    while step == WAIT_BEFORE and not WAIT_FOR.exists():
        time.sleep(0.01)
    if context.attempt == 1 and 0 < STAY_AT < step:
        signal.pause()
    if step == FAIL_AT and context.rank == FAIL_RANK and context.attempt <= FAIL_ATTEMPTS:
        while not everybody_has_begun():
            time.sleep(0.01)
        raise ValueError(f"the loss became negative in step {step}")
    if MODE in ("silent", "stubborn"):
        continue
    request = None if MODE == "deaf" else trainrun.should_save()
    apart = {"own-steps": 1000, "shifted-steps": 1}.get(MODE, 0)
    shown = step + apart * context.rank
    saves = step % EVERY == 0 or request is not None
    if MODE == "rank-0-only" and context.rank != 0:
        continue
    if saves:
        trainrun.report({"loss": 1 / step}, step=shown, checkpoint=save(shown))
        write(step, "asked" if request else "saved")
    else:
        trainrun.report({"loss": 1 / step}, step=shown)
        write(step, "step")
print(f"rank {context.rank} is done", flush=True)
sys.exit(0)
