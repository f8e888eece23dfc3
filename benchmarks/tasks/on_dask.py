"""The workloads that need no store, on Dask distributed: `on_dask.py WHAT FOLDER NUMBER`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import dask
from distributed import Client, LocalCluster
from workloads import begun, nothing


def main(what: str, folder: str, count: int) -> None:
    dask.config.set({"distributed.scheduler.allowed-failures": 1_000_000})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        client = Client(cluster)
        client.wait_for_workers(2)
        if what == "kills":
            client.submit(begun, folder, count, pure=False).result()
            return
        client.gather([client.submit(nothing, -1 - at, pure=False) for at in range(20)])
        start = time.monotonic()
        refs = [client.submit(nothing, at, pure=False) for at in range(count)]
        assert client.gather(refs) == list(range(count))
        print(f"rate {count / (time.monotonic() - start):.1f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
