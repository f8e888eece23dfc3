"""How fast a checkpoint comes down: beside boto3 and aws, from a store in a cloud, and in place.

    python -m benchmarks.checkpoint_read [--rounds 5] [--rate 60] [--scale 1.0]

Method: the S3 server of the tests on this machine; what is compared runs in turn, and each figure
is the median of the ratios of the rounds. Ours verifies and links the files into the node's cache;
the others do not. Exits with 1 if a must is missed. Layer: benchmarks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import boto3

from benchmarks.local_job import machine
from benchmarks.slow_store import slow_store
from tests.support.s3_server import S3Server, running_server
from trainrun.checkpoint.reader import checkpoint_on_node, keep_on_node, read_manifest
from trainrun.checkpoint.records import Manifest
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import Upload, scan, write_part

MB = 1_000_000
FIRST_BYTE = 0.03
"""Seconds."""


@dataclass(frozen=True)
class Figure:
    """The ratios of the rounds and what their median must be."""

    name: str
    values: list[float]
    must: float
    most: bool = False
    """The must is the most that it may be."""

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def good(self) -> bool:
        return self.value <= self.must if self.most else self.value >= self.must

    def __str__(self) -> str:
        bound = "at most" if self.most else "at least"
        return (
            f"{'ok    ' if self.good else 'MISSED'} {self.name}: {self.value:.2f} "
            f"({min(self.values):.2f} to {max(self.values):.2f}; must be {bound} {self.must:g})"
        )


class Bench:
    """A run on a server, and what is read from it."""

    def __init__(self, folder: Path, server: S3Server, rounds: int) -> None:
        self.folder, self.server, self.rounds = folder, server, rounds
        self.cache = folder / "cache"

    @contextlib.contextmanager
    def run(self, endpoint: str = "") -> Iterator[RunStore]:
        with contextlib.closing(open_store("s3://bucket", endpoint_url=endpoint or None)) as store:
            yield RunStore(store, "bench")

    def write(self, run: RunStore, step: int, *, files: int, size: int) -> tuple[Manifest, Upload]:
        """Commit a checkpoint; its directory stays."""
        saved = self.saved(step)
        saved.mkdir()
        for number in range(files):
            with (saved / f"part-{number:06d}.pt").open("wb") as file:
                for left in range(size, 0, -16 * MB):
                    file.write(os.urandom(min(left, 16 * MB)))
        upload = Upload()
        local = scan(saved, rank=0)
        manifest = write_part(
            run,
            attempt=1,
            step=step,
            worker=0,
            workers=1,
            files=local,
            metrics={},
            whole=True,
            upload=upload,
        )
        assert manifest is not None
        return manifest, upload

    def saved(self, step: int) -> Path:
        return self.folder / f"saved-{step}"

    def read(self, run: RunStore, manifest: Manifest) -> float:
        """Seconds until an agent has it on this node."""
        begin = time.monotonic()
        found = read_manifest(run, manifest.id)
        checkpoint_on_node(run, found, cache_dir=self.cache).directory()
        return time.monotonic() - begin

    def compare(self, ours: Callable[[], float], theirs: Callable[[], float]) -> list[float]:
        """theirs / ours in each round: how many times as fast we are."""
        ratios = []
        for _ in range(self.rounds):
            mine, other = ours(), theirs()
            print(f"  {mine:.2f} s, the other {other:.2f} s: {other / mine:.2f}", flush=True)
            ratios.append(other / mine)
        return ratios

    def fresh(self, run: RunStore, manifest: Manifest) -> float:
        """The same with nothing in the cache."""
        shutil.rmtree(self.cache, ignore_errors=True)
        return self.read(run, manifest)


def timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def key_of(manifest: Manifest, name: str = "part-000000.pt") -> str:
    return f"bench/checkpoints/{manifest.id.name}/worker-00000/{name}"


def one_file(bench: Bench, size: int) -> Figure:
    client, target = boto3.client("s3"), bench.folder / "boto3"
    with bench.run() as run:
        manifest, _ = bench.write(run, 1, files=1, size=size)

        def theirs() -> float:
            target.unlink(missing_ok=True)
            key = key_of(manifest)
            return timed(lambda: client.download_file("bucket", key, str(target)))

        values = bench.compare(lambda: bench.fresh(run, manifest), theirs)
    return Figure(f"one file of {size / MB:.0f} MB, speed / boto3 download_file", values, 0.8)


def many_files(bench: Bench, files: int) -> Figure:
    target = bench.folder / "many"
    with bench.run() as run:
        manifest, _ = bench.write(run, 2, files=files, size=MB // 2)
        folder = key_of(manifest, "")
        client = boto3.client("s3")

        def with_aws() -> None:
            command = [
                "aws",
                "s3",
                "cp",
                "--quiet",
                "--recursive",
                f"s3://bucket/{folder}",
                str(target),
            ]
            subprocess.run(command, check=True)

        def with_boto3() -> None:
            target.mkdir()
            with ThreadPoolExecutor(10) as pool:
                for item in manifest.files:
                    path = str(target / item.name)
                    pool.submit(client.download_file, "bucket", folder + item.name, path)

        has_aws = subprocess.run(["aws", "--version"], capture_output=True, check=False)
        work, name = (with_aws, "aws s3 cp --recursive")
        if has_aws.returncode:
            work, name = with_boto3, "boto3 download_file in 10 threads"

        def theirs() -> float:
            shutil.rmtree(target, ignore_errors=True)
            return timed(work)

        values = bench.compare(lambda: bench.fresh(run, manifest), theirs)
    return Figure(f"{files} files of 0.5 MB, speed / {name}", values, 2.0)


def far_store(bench: Bench, endpoint: str, size: int) -> Figure:
    client = boto3.client("s3", endpoint_url=endpoint)
    with bench.run(endpoint) as run:
        with bench.run() as near:
            manifest, _ = bench.write(near, 3, files=1, size=size)

        def single() -> None:
            body = client.get_object(Bucket="bucket", Key=key_of(manifest))["Body"]
            with (bench.folder / "single").open("wb") as file:
                while data := body.read(MB):
                    file.write(data)

        values = bench.compare(lambda: bench.fresh(run, manifest), lambda: timed(single))
    return Figure(f"{size / MB:.0f} MB from a store in a cloud, speed / a single GET", values, 8.0)


def in_place(bench: Bench, endpoint: str, size: int) -> list[Figure]:
    ratios, steps, read = [], iter(range(10, 10 + bench.rounds)), 0
    with bench.run(endpoint) as run, bench.run() as near:
        for step in steps:
            manifest, upload = bench.write(near, step, files=1, size=size)
            far = bench.fresh(run, manifest)
            shutil.rmtree(bench.cache)
            keep_on_node(
                run,
                manifest.id,
                0,
                upload.arrived.values(),
                {0: bench.saved(step)},
                cache_dir=bench.cache,
                in_use=None,
            )
            before = len(file_reads(bench.server))
            here = bench.read(run, manifest)
            read += len(file_reads(bench.server)) - before
            print(f"  {here:.3f} s, from the store {far:.2f} s: {here / far:.3f}", flush=True)
            ratios.append(here / far)
    return [
        Figure("in-place restart: files read from the store", [read], 0, most=True),
        Figure("in-place restart: load / from that store", ratios, 0.2, most=True),
    ]


def file_reads(server: S3Server) -> list[str]:
    """Requests for files of checkpoints so far."""
    return [path for kind, path in server.requests() if kind == "GetObject" and ".pt" in path]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=60.0, help="MB/s per connection")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes, for trying")
    given = parser.parse_args()
    print(f"{machine()}; {given.rate:g} MB/s per connection, {FIRST_BYTE * 1000:.0f} ms")
    size = int(512 * MB * given.scale)
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as name:
        with running_server(Path(name) / "s3") as server:
            server.make_bucket("bucket")
            os.environ.update(server.environment())
            bench = Bench(Path(name), server, given.rounds)
            figures = [one_file(bench, size), many_files(bench, int(1000 * given.scale))]
            with slow_store(server.port, rate=given.rate * MB, delay=FIRST_BYTE) as endpoint:
                figures.append(far_store(bench, endpoint, size))
                figures += in_place(bench, endpoint, size // 2)
    print(*figures, sep="\n")
    sys.exit(0 if all(figure.good for figure in figures) else 1)


if __name__ == "__main__":
    main()
