"""Makes PyTorch do without its compiler, for whole runs whose sentences don't need it.

The first optimizer or DistributedDataParallel of a process imports torch._dynamo, which nobody uses
who doesn't compile: two thirds of the CPU time that a rank of a test takes. Where this folder is on
PYTHONPATH, torch calls `install` at the end of its own import. What is left out only tells a
compiler what it must not compile; scripts and results are the same. FSDP needs the real one.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any


def install() -> None:
    """Let functions be called as they are."""
    dynamo: Any = ModuleType("torch._dynamo")
    dynamo.disable = lambda fn, recursive=True, *, wrapping=True, **options: fn
    dynamo.graph_break = lambda *args, **options: None
    dynamo.utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
    dynamo.config = SimpleNamespace(_get_optimize_ddp_mode=lambda: "no_optimization")  # torch 2.6
    dynamo.trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
    sys.modules["torch._dynamo"] = dynamo
    sys.modules["torch"]._dynamo = dynamo
