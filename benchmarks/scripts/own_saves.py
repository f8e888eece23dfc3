"""A training that nobody changed: it prints its steps and saves into `out`, slowly.

The environment says how: FORM, SLOW (seconds that a save takes), PAUSE (seconds between two saves),
MEGABYTES (of a save), STEPS (0: no end), STEP (seconds of work in each step).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

MARKS, OUT = Path(os.environ["MARKS"]), Path("out")
ATTEMPT = os.environ["TRAINRUN_ATTEMPT"]
FORM = os.environ["FORM"]
SLOW, PAUSE = float(os.environ.get("SLOW", "1")), float(os.environ.get("PAUSE", "2.5"))
SIZE = int(float(os.environ.get("MEGABYTES", "0.1")) * 1e6)
STEPS, STEP = int(os.environ.get("STEPS", "0")), float(os.environ.get("STEP", "0"))
PIECES = 20


def mark(name: str, text: object = "") -> None:
    part = MARKS / f".{name}"
    part.write_text(str(text or time.time()))
    part.replace(MARKS / name)


def write(path: Path, step: int, *, part: float = 1.0) -> None:
    """Its lines are all the same; it takes this part of SLOW."""
    line = f"{step:09d}\n".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        for _ in range(PIECES):
            file.write(line * (SIZE // len(line) // PIECES))
            time.sleep(SLOW * part / PIECES)


def place(step: int) -> Path:
    write(OUT / "ckpt.bin", step)
    return OUT / "ckpt.bin"


def rename(step: int) -> Path:
    write(OUT / "last.bin.tmp", step)
    return (OUT / "last.bin.tmp").rename(OUT / "last.bin")


def folders(step: int) -> Path:
    folder = OUT / f"checkpoint-{step}"
    write(folder / "model.bin", step)
    (folder / "state.json").write_text(json.dumps({"step": step}))
    return folder / "model.bin"


def files(step: int) -> Path:
    write(OUT / f"model{step:06d}.bin", step, part=0.5)
    write(OUT / f"opt{step:06d}.bin", step, part=0.5)
    return OUT / f"opt{step:06d}.bin"


SAVES: dict[str, Callable[[int], Path]] = {
    "place": place,
    "rename": rename,
    "folders": folders,
    "files": files,
}


def load(given: Path) -> int:
    """The step of a whole save; marks one that is not."""
    beside = given.with_name(given.name.replace("model", "opt"))
    for file in {given / "model.bin"} if given.is_dir() else {given, beside}:
        lines = file.read_bytes().splitlines() if file.exists() else []
        if len({*lines}) != 1 or len(lines) != SIZE // 10 // PIECES * PIECES:
            mark(f"torn-{ATTEMPT}", given)
            sys.exit(f"{file} is torn")
    return int(lines[0])


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(b"x" * 10_000).digest()


def main() -> None:
    mark(f"pid-{ATTEMPT}", os.getpid())
    step = load(Path(sys.argv[-1])) if "--resume" in sys.argv else 0
    mark(f"resumed-{ATTEMPT}", step or "0")
    OUT.mkdir(exist_ok=True)
    took = []
    while not STEPS or step < STEPS:
        step, begun = step + 1, time.perf_counter()
        work(STEP)
        print(f"iter {step}: loss {1 / step:.4f}, time 1.00ms", flush=True)
        took.append(time.perf_counter() - begun)
        if STEPS and step % 100:
            continue
        mark(f"saving-{ATTEMPT}", step)
        SAVES[FORM](step)
        mark(f"saved-{ATTEMPT}", step)
        time.sleep(PAUSE)
    mark("median", median(took))
    mark("cpu", time.process_time())
    mark("end")
    time.sleep(2)  # in which it is read how much CPU all others have used


if __name__ == "__main__":
    main()
