"""A training without torch: every rank counts steps, and what it has learned is a chain of hashes.

A resume from the wrong step, a step done twice or left out, or a checkpoint with the files of
another rank gives another chain. Options make one rank fail, once or always, let the ranks wait for
each other in every step, and let the training go on until the attempt that a test waits for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import trainrun

ENDLESS = 1_000_000


def main() -> None:
    options = parse_options()
    context = trainrun.get_context()
    print(f"rank {context.rank} of {context.world_size} in attempt {context.attempt}", flush=True)
    step, chain = 0, ""
    if checkpoint := trainrun.get_checkpoint():
        with checkpoint.as_directory() as directory:
            saved = json.loads((Path(directory) / f"rank-{context.rank}.json").read_text())
        if options.cannot_load:
            saved = saved["weights"]
        step, chain = saved["step"], saved["chain"]
        assert step == checkpoint.step, "the file is of another step"
    last = options.steps
    if context.attempt < options.attempts:
        last = ENDLESS
    elif options.attempts > 1:
        # The same for all ranks, since they have resumed from the same step.
        last = max(last, step + options.save_every)
    peers = Peers(context) if options.together else None
    while step < last:
        time.sleep(options.pace)
        if peers is not None:
            peers.wait()
        step += 1
        chain = hashlib.sha256(f"{chain} {context.rank} {step}".encode()).hexdigest()
        misbehave(options, context, step)
        asked = trainrun.should_save()
        save = asked or step % options.save_every == 0 or step == last
        directory = trainrun.staging_directory() if save else None
        if directory is not None:
            text = json.dumps({"step": step, "chain": chain})
            (directory / f"rank-{context.rank}.json").write_text(text)
            if options.ballast:
                (directory / f"ballast-{context.rank}").write_bytes(os.urandom(options.ballast))
        trainrun.report({"chain": chain[:16]}, step=step, checkpoint=directory)
        if asked and options.yields:
            return


class Peers:
    """Connections of all ranks to rank 0, over which they wait for each other."""

    def __init__(self, context: trainrun.Context) -> None:
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if context.rank == 0:
            with socket.create_server(place) as server:
                self.connections = [server.accept()[0] for _ in range(context.world_size - 1)]
        else:
            self.connections = [connect(place)]
        self.leads = context.rank == 0

    def wait(self) -> None:
        """Return once every rank has called it; ConnectionResetError when one is gone."""
        for turn in (not self.leads, self.leads):
            for connection in self.connections:
                if turn:
                    connection.sendall(b"x")
                elif not connection.recv(1):
                    raise ConnectionResetError("connection closed by peer")


def connect(place: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(place, timeout=None)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def misbehave(options: argparse.Namespace, context: trainrun.Context, step: int) -> None:
    if context.rank != options.bad_rank or context.attempt > options.bad_attempts:
        return
    if step == options.fail_at:
        print(*["a long story " * 100] * options.stories, sep="\n")
        print("about to fail", flush=True)
        sys.exit(options.exit_code[min(context.attempt, len(options.exit_code)) - 1])
    if step == options.hang_at:
        time.sleep(3600)
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
    parser.add_argument("--attempts", type=int, default=1, help="train on until this attempt")
    parser.add_argument("--together", action="store_true", help="wait for each other in each step")
    parser.add_argument("--yield", dest="yields", action="store_true", help="end when told to save")
    parser.add_argument("--ballast", type=int, default=0, help="bytes more in each rank's file")
    parser.add_argument("--cannot-load", action="store_true", help="misread every checkpoint")
    parser.add_argument("--bad-rank", type=int, default=-1)
    parser.add_argument("--bad-attempts", type=int, default=1, help="misbehave up to this attempt")
    parser.add_argument("--fail-at", type=int)
    parser.add_argument("--exit-code", type=int, nargs="+", default=[3], help="by attempt")
    parser.add_argument("--stories", type=int, default=0, help="long lines before it fails")
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--hang-at", type=int, help="do nothing any more")
    parser.add_argument("--hog-at", type=int, help="take memory until somebody stops it")
    return parser.parse_args()


main()
