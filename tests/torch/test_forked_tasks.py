"""Tasks of a program that imports libraries with threads of their own: forked, and none hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.tasks.tasks_that_end import ready
from trainrun.tasks.launching import Launcher

if __name__ != "__main__":
    import numpy, torch
    try:
        import pyarrow, pyarrow.compute
    except ImportError:
        pass

def multiply(number):
    torch.ones(200, 200) @ torch.ones(200, 200)
    if "pyarrow" in globals():
        pyarrow.compute.sum(pyarrow.array(range(10_000)))
    return float((numpy.ones((200, 200)) @ numpy.ones((200, 200)))[0, 0]) + number

async def main():
    launcher = Launcher()
    tries = (
        launcher.run(ready(Path(sys.argv[1]) / str(number), "__main__:multiply", number))
        for number in range(20)
    )
    ends = await asyncio.wait_for(asyncio.gather(*tries), 100)
    print(*{type(end).__name__ for end in ends})
    await launcher.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_tasks_of_a_program_that_imports_torch_and_numpy_are_forked_and_none_hangs(
    tmp_path: Path,
) -> None:
    (tmp_path / "prog.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "prog.py"), str(tmp_path / "tries")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'worker_image'}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""  # where tasks cannot be forked it names the module
    assert done.stdout == "Finished\n"
