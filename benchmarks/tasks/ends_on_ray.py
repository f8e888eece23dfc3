"""The table of ends, asked of Ray's core: `ends_on_ray.py REPORT FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ray
from ends import ask, run

ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    logging_level="ERROR",
    runtime_env={"env_vars": {"PYTHONPATH": sys.path[0]}},
)
task = ray.remote(run)
ask(
    lambda case, folder: task.options(**case.options()).remote(folder, case.end, case.key()),
    lambda ref: ray.get(ref, timeout=300),
    Path(sys.argv[1]),
    Path(sys.argv[2]),
)
