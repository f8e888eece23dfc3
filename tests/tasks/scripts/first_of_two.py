"""Takes the result that is there first, and cancels the other."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trainrun import tasks


@tasks.task
def wait_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def main() -> None:
    refs = [wait_for.remote(60.0), wait_for.remote(0.0)]
    done, rest = tasks.wait(refs, num_returns=1)
    tasks.cancel(rest[0])
    print(tasks.get(done))


if __name__ == "__main__":
    tasks.run(main, storage=Path(os.environ["FOLDER"]))
