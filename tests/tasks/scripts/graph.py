"""`graph.py "a; b: a; c: b" c`: a task for each name, which takes the results of others; prints the
results of those that are asked for. Results are too large for the log."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from trainrun import tasks
from trainrun.tasks import main as home

FOLDER = Path(os.environ["FOLDER"])
SIZE = 100_000
home.AT_HAND = 0.05  # a folder shows at once what was written


def forget(name: str) -> None:
    """Delete a result, and the copies that this machine has."""
    key = json.loads((FOLDER / "keys.json").read_text())[name]
    shutil.rmtree(next((FOLDER / "tasks/objects").glob(f"{key}-*")))
    shutil.rmtree(FOLDER / "cache/store")
    (FOLDER / "cache/store").mkdir()


@tasks.task
def make(name: str, *inputs: bytes) -> bytes:
    with (FOLDER / "ran.txt").open("a") as ran:
        ran.write(f"{name}\n")
    strikes = json.loads(os.environ.get("FORGETS", "{}"))
    if name in strikes:
        forget(strikes[name])
    inner = ",".join(value.decode().rstrip(".") for value in inputs)
    return f"{name}({inner})".encode().ljust(SIZE, b".")


@tasks.task(num_returns=2)
def twins(name: str) -> tuple[bytes, bytes]:
    with (FOLDER / "ran.txt").open("a") as ran:
        ran.write(f"{name}\n")
    return tuple(f"{name}{number}".encode().ljust(SIZE, b".") for number in (0, 1))


def main() -> None:
    options = json.loads(os.environ.get("OPTIONS", "{}"))
    refs: dict[str, tasks.ObjectRef] = {}
    for word in sys.argv[1].split(";"):
        name, _, inputs = word.strip().partition(":")
        if name.startswith("put"):
            refs[name] = tasks.put(name.encode().ljust(SIZE, b"."))
        elif name.startswith("twins"):
            refs[f"{name}.0"], refs[f"{name}.1"] = twins.options(**options).remote(name)
        else:
            taken = [refs[it] for it in inputs.split()]
            refs[name] = make.options(**options).remote(name, *taken)
    (FOLDER / "keys.json").write_text(json.dumps({name: ref.key for name, ref in refs.items()}))
    for name in sys.argv[2:]:
        try:
            print(tasks.get(refs[name]).decode().rstrip("."))
        except tasks.ObjectLostError as error:
            print(f"{error.reason}: {error}")


if __name__ == "__main__":
    tasks.run(main, storage=FOLDER, **json.loads(os.environ.get("RUN", "{}")))
