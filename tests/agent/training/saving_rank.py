"""A training process for the save test: many short trainings, each with `should_save()` per step.

Started as `python saving_rank.py RANK HUB`. Reads one line per round from standard input: the
number of the round, the agent's socket, the control file, and whether ranks meet in every step.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from io import BufferedRWPair
from pathlib import Path

import trainrun
from trainrun._process import session
from trainrun.contract.environment import Exchange


def meet(hub: BufferedRWPair, tag: str, value: int) -> list[int]:
    """A collective: every rank gives a value and gets those of all."""
    hub.write(json.dumps([tag, value]).encode() + b"\n")
    hub.flush()
    answer: list[int] = json.loads(hub.readline())
    return answer


def train(hub: BufferedRWPair, number: str, *, in_step: bool) -> int:
    """One training; returns the call of should_save() that said yes."""
    step = 0
    while True:
        step += 1
        if request := trainrun.should_save():
            assert request.reason == "SIGTERM"
            steps = meet(hub, f"save {number}", step)
            assert len(set(steps)) == 1, f"ranks save different steps: {steps}"
            return step
        if in_step:
            meet(hub, f"step {number} {step}", step)
        time.sleep(0.001)


def main() -> None:
    rank, path = sys.argv[1], sys.argv[2]
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    hub = stream.makefile("rwb")
    os.environ["RANK"] = rank
    for line in sys.stdin:
        number, agent, control, in_step = line.split()
        given = Exchange(
            socket=Path(agent), staging=Path(control).parent, control_file=Path(control)
        )
        os.environ.update(given.write(), TRAINRUN_RUN="run")
        session.close()
        step = train(hub, number, in_step=in_step == "1")
        meet(hub, f"end {number}", step)


if __name__ == "__main__":
    main()
