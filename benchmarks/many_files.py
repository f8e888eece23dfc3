"""A checkpoint of many small files on an S3 server that is some way off: up, and down again.

    python -m benchmarks.many_files [--files 1000] [--delay 0.03]

Starts the S3 server of the tests behind a proxy that holds back each answer. Layer: benchmarks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

from testbed.tcp_proxy import tcp_proxy
from tests.support.s3_server import running_server
from trainrun.checkpoint.reader import checkpoint_on_node
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import scan, write_part


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.03, help="seconds per answer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        up, down = measure(Path(folder), files=given.files, delay=given.delay)
    print(f"{given.files} files, {given.delay * 1000:.0f} ms per answer")
    print(f"up {up:.1f} s, down {down:.1f} s: {down / up:.2f} times as long")


def measure(folder: Path, *, files: int, delay: float) -> tuple[float, float]:
    """Seconds to write such a checkpoint, and to read it."""
    saved = folder / "saved"
    saved.mkdir()
    for number in range(files):
        (saved / f"part-{number:06d}.pt").write_bytes(os.urandom(1000))
    with running_server(folder / "s3") as server, tcp_proxy(server.port) as proxy:
        server.make_bucket("bucket")
        os.environ.update(server.environment())
        proxy.delay = delay
        with contextlib.closing(open_store("s3://bucket", endpoint_url=proxy.endpoint)) as store:
            run = RunStore(store, "many")
            begin = time.monotonic()
            manifest = write_part(
                run,
                attempt=1,
                step=1,
                worker=0,
                workers=1,
                files=scan(saved, rank=0),
                metrics={},
                whole=True,
            )
            written = time.monotonic()
            assert manifest is not None
            checkpoint_on_node(run, manifest, cache_dir=folder / "cache").directory()
            return written - begin, time.monotonic() - written


if __name__ == "__main__":
    main()
