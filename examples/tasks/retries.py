"""Three hundred tasks whose process dies half of the time, each retried once: the first example of
Ray's page on the fault tolerance of tasks."""

from __future__ import annotations

import os
import random

from trainrun import tasks

CALLS = 300


@tasks.task(max_retries=1)
def potentially_fail(failure_probability: float) -> int:
    if random.random() < failure_probability:
        os._exit(0)
    return 0


def main() -> None:
    results = [potentially_fail.remote(0.5) for _ in range(CALLS)]
    lost = 0
    for result in results:
        try:
            tasks.get(result)
        except tasks.WorkerCrashedError:
            lost += 1
    print(f"{CALLS - lost} of {CALLS} succeeded, {lost} died twice")


if __name__ == "__main__":
    tasks.run(main)
