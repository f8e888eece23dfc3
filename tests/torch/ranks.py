"""Starts ranks as processes of their own, forked from a server that has torch imported already.

Every start has new processes (what a resume must survive lives in a process), without paying for
the import of torch each time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["torch.distributed.checkpoint", "torch.utils.data", "torch._dynamo", "numpy"]
)


def run_ranks(
    world: int, target: Callable[..., None], folder: Path, *arguments: object
) -> list[str]:
    """As `start_ranks`; return what the ranks wrote."""
    return [result.read_text() for result in start_ranks(world, target, folder, *arguments)]


def start_ranks(
    world: int, target: Callable[..., None], folder: Path, *arguments: object
) -> list[Path]:
    """Run `target(rank, store, *arguments, result)` on each rank; return their result files."""
    folder.mkdir()
    results = [folder / f"result-{rank}" for rank in range(world)]
    ranks = [
        SERVER.Process(target=target, args=(rank, str(folder / "store"), *arguments, str(result)))
        for rank, result in enumerate(results)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
    failed = [r.read_text() for r, p in zip(results, ranks, strict=True) if p.exitcode != 0]
    assert not failed, failed[0]
    return results
