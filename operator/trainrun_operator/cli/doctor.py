"""`trainrun doctor`: whether this machine, a storage and a cluster are ready for a run.

Layer: cli. It changes nothing, but for a probe object in the storage that it deletes again.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from trainrun import __version__
from trainrun.checkpoint.run_store import open_store
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.errors import StoreError, TrainRunError
from trainrun_operator.cli.cluster_checks import Check, Level
from trainrun_operator.cli.exit_codes import FAILED, SUCCEEDED
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.preparation import holds_sweep, prepare, storage_uri
from trainrun_operator.cli.report.output import show_lines
from trainrun_operator.worlds.local.place import places_root
from trainrun_operator.worlds.local.program import gpus_here

GIGABYTE = 10**9
SCARCE, TOO_LITTLE = 10 * GIGABYTE, GIGABYTE
"""Bytes of free disk below which a run is warned of, and called hopeless."""
SKEW = 60.0
"""Seconds between two clocks that are worth a warning; S3 refuses requests from 15 minutes on."""
TIMEOUT = 60
"""Seconds for a program that is asked about GPUs."""
NO_ANSWER = 124
"""Exit code that stands for a program without an answer, as of `timeout`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The storage to look at."""

    uri: str
    endpoint_url: str | None = None
    region: str | None = None


def examine(where: str | None, *, cluster: bool, namespace: str | None, as_json: bool) -> int:
    """Print a line for each check; returns the exit code."""
    checks = list(_checks(where, cluster=cluster, namespace=namespace))
    failed = any(check.level == "FAIL" for check in checks)
    data = {"ok": not failed, "checks": [asdict(check) for check in checks]}
    show_lines((line for check in checks for line in check.lines()), data, as_json=as_json)
    return FAILED if failed else SUCCEEDED


def _checks(where: str | None, *, cluster: bool, namespace: str | None) -> Iterator[Check]:
    yield Check("trainrun", "OK", f"{__version__} on Python {platform.python_version()}")
    yield _loopback()
    yield from _gpus()
    target = None
    if where is not None and ("://" in where or Path(where).is_dir()):
        target = Target(uri=storage_uri(where))
    elif where is not None:
        target, found = _of_file(Path(where))
        yield from found
    yield _room(Path(tempfile.gettempdir()) if target is None else _state(target))
    if target is not None:
        yield from storage(target)
    if cluster:
        # Imports aiohttp and the client library.
        from trainrun_operator.cli.cluster_checks import cluster_checks  # noqa: PLC0415

        yield from cluster_checks(namespace)


def _of_file(file: Path) -> tuple[Target | None, list[Check]]:
    options = RunOptions(file=file)
    try:
        if holds_sweep(file):
            from trainrun_operator.cli.sweeping.preparation import (  # noqa: PLC0415 - seldom
                prepare_sweep,
            )

            sweep = prepare_sweep(options)
            name, notes, kept = sweep.name, sweep.notes, sweep.sweep.spec.storage
            target = Target(uri=kept.uri, endpoint_url=kept.endpoint_url, region=kept.region)
        else:
            run = prepare(options)
            name, notes, at = run.name, run.notes, run.run.spec.storage
            target = Target(uri=at.uri, endpoint_url=at.endpoint_url, region=at.region)
    except TrainRunError as error:
        return None, [Check("file", "FAIL", str(error))]
    warnings = [Check("file", "WARN", note) for note in notes]
    return target, [Check("file", "OK", f"{file} describes {name}"), *warnings]


def _state(target: Target) -> Path:
    return places_root(target.uri, environ=os.environ)


def _loopback() -> Check:
    """Agents and driver talk on this machine's own address."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            with socket.create_connection(server.getsockname(), timeout=5):
                return Check("ports", "OK", "processes of this machine reach each other")
    except OSError as error:
        remedy = "let processes connect to 127.0.0.1: a sandbox or a firewall forbids it"
        return Check("ports", "FAIL", f"127.0.0.1: {error.strerror or error}", remedy)


def _room(folder: Path) -> Check:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    message = f"{free / GIGABYTE:.0f} GB are free at {there}"
    if free >= SCARCE:
        return Check("disk", "OK", message)
    level: Level = "WARN" if free >= TOO_LITTLE else "FAIL"
    return Check("disk", level, message, "make room for some checkpoints")


def _gpus() -> Iterator[Check]:
    gpus = gpus_here(os.environ)
    if not gpus:
        yield Check("GPU", "OK", "none here: scripts train on the CPU")
        return
    smi = shutil.which("nvidia-smi")
    query = "--query-gpu=name,driver_version"
    told = None if smi is None else _answer(smi, query, "--format=csv,noheader")
    if told is not None and told.returncode:
        yield Check("GPU", "FAIL", _last_line(told), "repair the driver until nvidia-smi works")
        return
    seen = f": {told.stdout.splitlines()[0]}" if told is not None and told.stdout else ""
    yield Check("GPU", "OK", f"{len(gpus)} here{seen}")
    if find_spec("torch") is None:
        return
    told = _answer(sys.executable, "-c", "import torch; print(torch.cuda.device_count())")
    count = told.stdout.strip()
    if told.returncode == NO_ANSWER:
        yield Check("torch", "WARN", _last_line(told), "try again while the machine is less busy")
    elif told.returncode or not count.isdigit():
        yield Check("torch", "FAIL", _last_line(told), "install torch again")
    elif int(count) < len(gpus):
        remedy = "install a build of torch that fits the driver: https://pytorch.org/get-started"
        yield Check("torch", "WARN", f"uses {count} of {len(gpus)} GPUs", remedy)
    else:
        yield Check("torch", "OK", f"uses {count} GPUs")


def _answer(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, NO_ANSWER, "", f"no answer within {TIMEOUT} s")


def _last_line(told: subprocess.CompletedProcess[str]) -> str:
    return (told.stderr or told.stdout).strip().rpartition("\n")[2] or "says nothing"


def storage(target: Target) -> Iterator[Check]:
    """Everything that an agent does with a store, once."""
    try:
        store = open_store(target.uri, endpoint_url=target.endpoint_url, region=target.region)
        try:
            store.probe()
            skew = _probe(store)
        finally:
            store.close()
    except StoreError as error:
        yield Check("storage", "FAIL", str(error))
        return
    if skew is None:
        remedy = "use a store that shows an object as soon as it is written"
        yield Check("storage", "FAIL", f"{target.uri} does not show what was just written", remedy)
        return
    able = "can be written, written once, read, listed and deleted"
    yield Check("storage", "OK", f"{target.uri} {able}")
    yield clock(skew)


def clock(skew: float) -> Check:
    """For a clock of the storage that is ahead of ours by this many seconds."""
    if abs(skew) < SKEW:
        return Check("clock", "OK", "this machine's and the storage's agree")
    direction = "behind" if skew > 0 else "ahead of"
    remedy = "set it by NTP (timedatectl set-ntp true): S3 refuses requests from 15 minutes on"
    message = f"this machine's is {abs(skew):.0f} s {direction} the storage's"
    return Check("clock", "WARN", message, remedy)


def _probe(store: ObjectStore) -> float | None:
    """Write, read, list and delete an object; returns by how many seconds the store's clock is
    ahead, or None if it does not show what was written. Raises StoreError."""
    folder, data = f".probe-{secrets.token_hex(8)}", secrets.token_bytes(64)
    key = f"{folder}/object"
    now = time.time()
    try:
        store.put(key, data)
        same = store.get(key) == data
        listed = [item.modified for item in store.list(f"{folder}/") if item.key == key]
    except BaseException:  # Ctrl-C, too, leaves nothing behind
        with contextlib.suppress(StoreError):
            store.delete([key])
        raise
    store.delete([key])
    return listed[0] - now if same and listed else None
