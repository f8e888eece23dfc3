"""The table of ends, asked of TrainRun: `ends_on_trainrun.py REPORT FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from ends import ask, run

from trainrun import tasks

task = tasks.task(run)


def main() -> None:
    ask(
        lambda case, folder: task.options(**case.options()).remote(folder, case.end, case.key()),
        tasks.get,
        Path(sys.argv[1]),
        Path(sys.argv[2]),
    )


if __name__ == "__main__":
    tasks.run(main, storage=Path(sys.argv[2], "storage"))
