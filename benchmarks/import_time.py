"""What `import trainrun` costs a Python process.

Method: 21 processes, each timing the import alone with a monotonic clock, bytecode cached; the
median counts.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.verdict import end, must

ROUNDS = 21
LIMIT = 50.0
"""Milliseconds."""

SOURCE = """
import time
began = time.perf_counter()
import trainrun
print((time.perf_counter() - began) * 1000)
import sys
print(*(name for name in ("torch", "boto3", "pydantic", "numpy") if name in sys.modules))
"""


def main() -> None:
    """Print the median and whether anything heavy was loaded."""
    rounds = [
        subprocess.run(
            [sys.executable, "-c", SOURCE], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(ROUNDS)
    ]
    times = [float(lines[0]) for lines in rounds]
    heavy = rounds[0][1] or "none of torch, boto3, pydantic, numpy"
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(
        f"import trainrun: median {median(times):.1f} ms of {ROUNDS} processes, slowest "
        f"{max(times):.1f} ms {must('median', median(times), LIMIT, 'ms')}; loads {heavy}"
    )
    end()


if __name__ == "__main__":
    main()
