"""A training without torch: every rank counts steps, and what it has learned is a chain of hashes.

A resume from the wrong step, a step done twice or left out, or a checkpoint with the files of
another rank gives another chain. Options make one rank fail, once or always.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import trainrun


def main() -> None:
    options = parse_options()
    context = trainrun.get_context()
    print(f"rank {context.rank} of {context.world_size} in attempt {context.attempt}", flush=True)
    step, chain = 0, ""
    if checkpoint := trainrun.get_checkpoint():
        with checkpoint.as_directory() as directory:
            saved = json.loads((Path(directory) / f"rank-{context.rank}.json").read_text())
        step, chain = saved["step"], saved["chain"]
        assert step == checkpoint.step, "the file is of another step"
    while step < options.steps:
        time.sleep(options.pace)
        step += 1
        chain = hashlib.sha256(f"{chain} {context.rank} {step}".encode()).hexdigest()
        misbehave(options, context, step)
        save = trainrun.should_save() or step % options.save_every == 0 or step == options.steps
        directory = trainrun.staging_directory() if save else None
        if directory is not None:
            text = json.dumps({"step": step, "chain": chain})
            (directory / f"rank-{context.rank}.json").write_text(text)
        trainrun.report({"chain": chain[:16]}, step=step, checkpoint=directory)


def misbehave(options: argparse.Namespace, context: trainrun.Context, step: int) -> None:
    if context.rank != options.bad_rank or context.attempt > options.bad_attempts:
        return
    if step == options.fail_at:
        print("about to fail", flush=True)
        sys.exit(options.exit_code)
    if step == options.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == options.hog_at:
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1 << 20)) * 16)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pace", type=float, default=0.1, help="seconds per step")
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--bad-rank", type=int, default=-1)
    parser.add_argument("--bad-attempts", type=int, default=1, help="misbehave up to this attempt")
    parser.add_argument("--fail-at", type=int)
    parser.add_argument("--exit-code", type=int, default=3)
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--hog-at", type=int, help="take memory until somebody stops it")
    return parser.parse_args()


main()
