"""The workloads that need no store, on Ray's core: `on_ray.py WHAT FOLDER NUMBER`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ray
from workloads import begun, nothing

what, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    logging_level="ERROR",
    runtime_env={"env_vars": {"PYTHONPATH": sys.path[0]}},
)
if what == "kills":
    ray.get(ray.remote(max_retries=-1)(begun).remote(folder, count))
else:
    empty = ray.remote(nothing)
    ray.get([empty.remote(-1 - at) for at in range(20)])
    start = time.monotonic()
    assert ray.get([empty.remote(at) for at in range(count)]) == list(range(count))
    print(f"rate {count / (time.monotonic() - start):.1f}")
