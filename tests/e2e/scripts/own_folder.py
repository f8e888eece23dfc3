"""A training that knows nothing of TrainRun: rank 0 alone saves, and every rank loads its save."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("/tmp/out"))
    parser.add_argument("--resume", type=Path)
    options = parser.parse_args()
    first = json.loads((options.resume / "model.json").read_text())["step"] if options.resume else 0
    print(f"begins after step {first}", flush=True)
    for step in range(first + 1, 1_000_000):
        time.sleep(0.1)
        if step % 20 == 0 and os.environ["RANK"] == "0":
            folder = options.out / f"step-{step}"
            folder.mkdir(parents=True)
            (folder / "model.json").write_text(json.dumps({"step": step}))
        print(f"iter {step}: loss {1 / step:.4f}, time 100.00ms", flush=True)


if __name__ == "__main__":
    main()
