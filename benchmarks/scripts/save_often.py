"""Saves MEGABYTES per rank every EVERY steps, of 0.1 s each, and writes down what it does.

With ONCE only the tenth step of each attempt is saved.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import trainrun

RANK, ATTEMPT = os.environ["RANK"], os.environ["TRAINRUN_ATTEMPT"]
MARKS, EVERY, ONCE = Path(os.environ["MARKS"]), int(os.environ["EVERY"]), "ONCE" in os.environ


def mark(name: str, content: object) -> None:
    partial = MARKS / f".{name}-{RANK}"
    partial.write_text(str(content))
    partial.rename(MARKS / f"{name}-{RANK}")


def main() -> None:
    mark(f"pid-{ATTEMPT}", os.getpid())
    content, begin = bytearray(int(os.environ["MEGABYTES"]) << 20), 0
    resume = trainrun.get_checkpoint()
    if resume is not None:
        begin = resume.step
        with resume.as_directory() as folder, Path(folder, f"state-{RANK}").open("rb") as file:
            file.readinto(content)
        assert int.from_bytes(content[-8:], "big") == begin, "not the content of this step"
    for step in range(begin + 1, 1 << 30):
        time.sleep(0.1)
        if step == begin + 1:
            mark(f"resumed-{ATTEMPT}", begin)
            mark(f"first-{ATTEMPT}", time.time())
        if step == begin + 10 if ONCE else step % EVERY == 0:
            began = time.time()
            mark(f"saving-{step}", began)
            content[:8] = content[-8:] = step.to_bytes(8, "big")
            directory = Path(trainrun.staging_directory())
            (directory / f"state-{RANK}").write_bytes(content)
            trainrun.report({"loss": 1.0}, step=step, checkpoint=directory)
            mark("write", time.time() - began)
            mark(f"saved-{ATTEMPT}", step)
        else:
            trainrun.report({"loss": 1.0}, step=step)
        mark("reached", step)


main()
