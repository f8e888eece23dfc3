"""What a standby imports beside the names that its user gives: what these import later.

Layer: agent, pure. Found by comparing `sys.modules` before and after the first steps of DDP, FSDP2,
the optimizers, a DataLoader and distributed checkpoints, PyTorch 2.9: in its first wrap of a model
DistributedDataParallel imports dynamo with sympy, 900 modules that take longer than torch itself.
Nothing of it makes a GPU's context or starts a thread; inductor, which starts processes, is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LATER: Mapping[str, tuple[str, ...]] = {
    "torch": (
        "torch._dynamo",
        "torch.nn.parallel.distributed",
        "torch.optim",
        "torch.optim.lr_scheduler",
        "torch.utils.data.distributed",
        "torch.utils.checkpoint",
        "torch.utils.serialization.config",
        "torch.distributed.device_mesh",
        "torch.distributed.fsdp",
        "torch.distributed.checkpoint",
        "torch.distributed.checkpoint.state_dict",
        "multiprocessing.popen_fork",
        "multiprocessing.queues",
        "multiprocessing.synchronize",
    ),
}
"""By name."""


def preload_text(names: Sequence[str]) -> str:
    """The names with what belongs to each, as a standby reads them."""
    return " ".join(":".join((name, *LATER.get(name, ()))) for name in names)
