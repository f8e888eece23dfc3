"""What a start could change for a script that uses torch: threads, random numbers, loading workers.

Run by the tests of warm starts as a script, and imported by one that has other properties to tell.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import multiprocessing
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

WORKERS = {"fork": 2, "spawn": 1}
"""Processes of a loader; each one that is spawned imports torch anew."""
STUCK = 150.0
"""Seconds for all loaders, after which the process ends and its last lines say where it stood."""


class Telling:
    """A dataset whose items say in what surroundings they were made."""

    def __init__(self, *, dies: bool = False) -> None:
        self.parent, self.dies = os.getpid(), dies

    def __len__(self) -> int:
        return 4

    def __getitem__(self, item: int) -> str:
        # The last one is asked for when nothing else will be: PyTorch's handler of SIGCHLD raises
        # wherever the loader is, and if that is in a queue's `put`, its lock stays taken for ever.
        if self.dies and item == len(self) - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return json.dumps({"item": item, **of_loading_worker(self.parent)})


def of_loading_worker(parent: int) -> dict[str, Any]:
    """Where the generator of the loader has a seed, so have the numbers here."""
    import numpy
    import torch

    info = torch.utils.data.get_worker_info()
    assert info is not None
    status = Path("/proc/self/status").read_text()
    return {
        "place": [info.id, info.num_workers, info.seed == torch.initial_seed()],
        "parent": os.getppid() == parent,
        "numbers": [random.random(), float(numpy.random.rand()), float(torch.rand(()))],
        "threads of torch": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "threads": [thread.name for thread in threading.enumerate()],
        "argv": sys.argv,
        "path": sys.path,
        "method": multiprocessing.get_start_method(allow_none=True),
        "environment": sorted(os.environ),
        "handlers": {number.name: str(signal.getsignal(number)) for number in signal.Signals},
        "signals": re.findall(r"^(Sig(?:Blk|Ign)):\t(\w+)", status, re.MULTILINE),
        "streams": [sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.line_buffering],
        "warnings": [str(item) for item in warnings.filters],
        "cuda": torch.cuda.is_initialized(),
    }


def loader(items: Telling, method: str) -> Iterable[str]:
    """In an order, and with random numbers, that are the same every time."""
    import torch

    return torch.utils.data.DataLoader(
        cast("Any", items),
        batch_size=None,
        shuffle=not items.dies,
        generator=torch.Generator().manual_seed(7),
        num_workers=WORKERS[method],
        multiprocessing_context=method,  # without a timeout: then it looks for lost workers
    )


def of_loaders() -> dict[str, Any]:
    """What loaders give whose workers are forked and spawned, and how they tell of a lost one."""
    faulthandler.dump_traceback_later(STUCK, exit=True)
    found: dict[str, Any] = {}
    for method in WORKERS:
        found[method] = [json.loads(item) for item in loader(Telling(), method)]
        found[f"{method}, ended"] = [str(child) for child in multiprocessing.active_children()]
    try:
        list(loader(Telling(dies=True), "fork"))
    except RuntimeError as error:
        # Whether its exit or its signal is told depends on which is seen first.
        found["a lost one"] = re.sub(r"\d+", "N", str(error)).partition("(")[0]
    faulthandler.cancel_dump_traceback_later()
    found["handler"] = str(signal.getsignal(signal.SIGCHLD)).partition(" at 0x")[0]
    return found


def of_the_gpu() -> dict[str, Any] | None:
    """What is computed in a context that this process makes; None where there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    generator = torch.Generator("cuda").manual_seed(7)
    images = torch.rand(2, 3, 8, 8, device="cuda", generator=generator)
    weights = torch.rand(4, 3, 3, 3, device="cuda", generator=generator)
    return {
        "sum": float(torch.nn.functional.conv2d(images, weights).sum()),
        "drawn": images.flatten()[:4].tolist(),
        "allocated": torch.cuda.memory_allocated(),
        "devices": torch.cuda.device_count(),
        "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "benchmark": torch.backends.cudnn.benchmark,
    }


def properties_of_torch() -> dict[str, Any]:
    """All of them; `drawn` differs between any two processes, `modules` is their number."""
    import numpy
    import torch

    mine = numpy.random.get_state()[1].tolist()  # type: ignore[index]
    return {
        "threads": [thread.name for thread in threading.enumerate()],
        "kernel threads": len(os.listdir("/proc/self/task")),
        "threads of torch": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "descriptors": sorted(
            os.readlink(f"/proc/self/fd/{number}").partition(":")[0] for number in range(3)
        ),
        "number of descriptors": len(os.listdir("/proc/self/fd")),
        "recursion": sys.getrecursionlimit(),
        "warnings": [str(item) for item in warnings.filters],
        "logging": [str(handler) for handler in logging.root.handlers],
        "level": logging.root.level,
        "cuda": torch.cuda.is_initialized(),
        "default type": str(torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad": torch.is_grad_enabled(),
        "environment": dict(os.environ),
        "children": len(
            Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
        ),
        "drawn": [random.random(), mine[:8], torch.initial_seed()],
        "modules": len(sys.modules),
        "loaders": of_loaders(),
        "gpu": of_the_gpu(),  # after the loaders: nobody forks with a context
    }


if __name__ == "__main__":
    import trainrun

    if os.environ["TRAINRUN_ATTEMPT"] == "1":
        trainrun.report(step=1)
        time.sleep(600)
    Path(os.environ["FOUND"]).write_text(json.dumps(properties_of_torch()))
