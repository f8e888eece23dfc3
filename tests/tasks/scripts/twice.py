"""One process that runs its program twice, as a notebook does."""

from __future__ import annotations

import os

from trainrun import tasks


@tasks.task
def one() -> int:
    return 1


def main() -> None:
    print(tasks.get(one.remote()))


if __name__ == "__main__":
    for _ in range(2):
        tasks.run(main, storage=os.environ["FOLDER"])
