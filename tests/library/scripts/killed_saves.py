"""Forks processes that save in the background, and kills each at a later moment than the last."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainrun import report, staging_directory


def write(directory: Path) -> None:
    for name in ("model.pt", "optimizer.pt"):
        with (directory / f"{name}.tmp").open("wb", buffering=0) as file:
            for _ in range(4):
                time.sleep(0.004)
                file.write(bytes(1000))
        (directory / f"{name}.tmp").rename(directory / name)


def train(first: int) -> None:
    os.environ["TRAINRUN_PROCESS"] = str(os.getpid())
    pool = ThreadPoolExecutor()
    for step in range(first, first + 100):
        directory = staging_directory()
        saving = pool.submit(write, directory)
        report(step=step, checkpoint=directory, after=saving)
        print(flush=True)
        saving.exception()


for number in range(int(sys.argv[1])):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        train(100 * number)
    os.read(reading, 1)  # the first report
    time.sleep(number * 0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
