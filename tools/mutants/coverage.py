"""Which test executes which line."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[2]


Tests = dict[int, set[str]]
"""By line, the tests that execute it."""


def covered(folders: list[str], paths: list[str]) -> dict[str, Tests]:
    """What the tests of these folders execute of these sources."""
    with tempfile.TemporaryDirectory() as folder:
        data, rc = f"{folder}/data", f"{folder}/rc"
        files = ",".join(str(ROOT / path) for path in paths)
        Path(rc).write_text(f"[run]\ndata_file={data}\ninclude={files}\nbranch=False\n")
        command = [sys.executable, "-m", "pytest", *folders, "--quick", "-q", "-n", "0", "-x"]
        command += ["-p", "no:tests.support.measured"]  # here tests of every folder are
        command += ["--cov", "--cov-context=test", f"--cov-config={rc}", "--cov-report="]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"the tests fail as they are:\n{ended.stdout[-2000:]}")
        found = CoverageData(data)
        found.read()
        if not any(found.contexts_by_lineno(str(ROOT / path)) for path in paths):
            raise SystemExit(f"no test of {', '.join(folders)} executes {', '.join(paths)}")
        return {path: _tests_by_line(ROOT / path, found) for path in paths}


def _tests_by_line(path: Path, data: CoverageData) -> Tests:
    """The tests that execute each line; all of them for what an import executes."""
    contexts = data.contexts_by_lineno(str(path))
    tests = {line: {c.rpartition("|")[0] for c in by if c} for line, by in contexts.items()}
    everything = set().union(*tests.values())
    tests = {line: by or everything for line, by in tests.items()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.stmt) and node.lineno in tests:
            begin = node.lineno
            whole = not hasattr(node, "body")  # later lines are executed with the first one
            last = node.end_lineno or begin if whole else node.body[0].lineno - 1
            for line in range(begin, last + 1):
                tests[line] = tests.get(line, set()) | tests[begin]
    return tests
