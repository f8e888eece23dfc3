"""A training that knows nothing of TrainRun: rank 0 alone saves, and every rank loads its save."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("/tmp/out"))
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--on-sigterm", action="store_true", help="save then, and never before")
    options = parser.parse_args()
    told: list[int] = []
    if options.on_sigterm:
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    first = json.loads((options.resume / "model.json").read_text())["step"] if options.resume else 0
    print(f"begins after step {first}", flush=True)
    for step in range(first + 1, 1_000_000):
        time.sleep(0.1)
        due = bool(told) if options.on_sigterm else step % 20 == 0
        if due and os.environ["RANK"] == "0":
            folder = options.out / f"step-{step}"
            folder.mkdir(parents=True)
            (folder / "model.json").write_text(json.dumps({"step": step}))
        print(f"iter {step}: loss {1 / step:.4f}, time 100.00ms", flush=True)
        if told:
            sys.exit(143)


if __name__ == "__main__":
    main()
