"""How tries of a task may end, under TrainRun and under Ray: how many there are, what `get` raises.

Method: each end (exit codes, signals, exceptions, what cannot be pickled) with `max_retries` -1, 0
and 2 and with several `retry_exceptions`; the function counts its tries in a file and returns with
the fifth. RAY_PYTHON names a Python that has Ray. docs/coming-from-ray-core.md has the differences.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from ends import ENDS, Case, cases

HERE = Path(__file__).parent
Row = Mapping[str, Any]


def asked(python: str, script: str) -> dict[str, Row]:
    """What one side says of all cases."""
    with tempfile.TemporaryDirectory(prefix="trainrun-ends-") as folder:
        report = Path(folder, "report.json")
        command = [python, str(HERE / script), str(report), folder]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(ended.stdout + ended.stderr)
        found: dict[str, Row] = json.loads(report.read_text())
    return found


def line(case: Case, side: Mapping[str, Row]) -> str:
    row = side[case.key()]
    return f"{row['tries']} {row['outcome']}"


def main() -> None:
    sides = {"trainrun": asked(sys.executable, "ends_on_trainrun.py")}
    if ray := os.environ.get("RAY_PYTHON"):
        sides["ray"] = asked(ray, "ends_on_ray.py")
    width = max(map(len, ENDS))
    print(f"{'end':{width}}  max_retries  retry_exceptions  " + "  ".join(f"{s:24}" for s in sides))
    different = []
    for case in cases():
        told = [line(case, side) for side in sides.values()]
        shown = "  ".join(f"{it:24}" for it in told)
        unlike = len(set(told)) > 1
        different += [case.end] if unlike else []
        print(
            f"{case.end:{width}}  {case.max_retries:11}  {case.retry_exceptions:16}  {shown}"
            + ("  differs" if unlike else "")
        )
    if "ray" in sides:
        print(f"{sum(1 for _ in cases())} cases, {len(different)} differ: {sorted(set(different))}")


if __name__ == "__main__":
    main()
