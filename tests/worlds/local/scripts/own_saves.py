"""A training that nobody changed: it prints steps, saves on rank 0 in a form of its own, and takes
--resume.

What it loses, and when, is told by the environment: in its first attempt it waits before step
LOSE_AT until a file matches WAIT_FOR, deletes its folder (LOSE=disk) and dies.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import signal
import time
from pathlib import Path


def save_in_place(out: Path, step: int) -> None:
    with (out / "ckpt.bin").open("w") as file:
        file.write(f"{step}\n" * 1000)


def save_by_rename(out: Path, step: int) -> None:
    new = out / "last.bin.tmp"
    new.write_text(f"{step}\n" * 1000)
    new.replace(out / "last.bin")


def save_folders(out: Path, step: int) -> None:
    folder = out / f"checkpoint-{step}"
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_text(f"{step}\n" * 1000)
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"step": step}))
    link = out / "last"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    kept = sorted(out.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    for old in kept[:-2]:
        shutil.rmtree(old)


def save_files(out: Path, step: int) -> None:
    (out / f"model{step:06d}.bin").write_text(f"{step}\n" * 1000)
    time.sleep(0.3)
    (out / f"opt{step:06d}.bin").write_text(f"{step}\n" * 1000)


SAVES = {
    "place": save_in_place,
    "rename": save_by_rename,
    "folders": save_folders,
    "files": save_files,
}


def load(path: Path) -> int:
    file = path / "model.bin" if path.is_dir() else path
    lines = file.read_text().splitlines()
    assert (len(lines), len(set(lines))) == (1000, 1), f"{file} is torn"
    return int(lines[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("form", choices=SAVES)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--pace", type=float, default=0.3)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    first = load(options.resume) + 1 if options.resume else 0
    print(f"begins at {first} from {options.resume}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    attempt = os.environ["TRAINRUN_ATTEMPT"]
    with (options.out / "log.txt").open("a") as log:
        for step in range(first, options.steps):
            if attempt == "1" and step == int(os.environ.get("LOSE_AT", "-1")):
                while not glob.glob(os.environ["WAIT_FOR"]):
                    time.sleep(0.05)
                if os.environ["LOSE"] == "disk":
                    shutil.rmtree(options.out)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(options.pace)
            if os.environ["RANK"] == "0" and step % options.every == 0:
                SAVES[options.form](options.out, step)
            print(f"iter {step}: loss {1 / (step + 1):.4f}, time 300.00ms", flush=True)
            log.write(f"{step}\n")
            log.flush()


if __name__ == "__main__":
    main()
