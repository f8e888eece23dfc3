"""Errors of CUDA, NCCL and DataLoaders that many scripts die of, each with what to do about it.

Layer: core, leaf. What is told of a peer that has gone is collateral, and not here.
"""

from __future__ import annotations

GPU_FULL = (
    "the memory of its GPU is full: lower the batch of a process or accumulate gradients, and look "
    "whether another process holds memory of that GPU"
)

REMEDIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("cuda out of memory",), GPU_FULL),
    (("cuda error: out of memory",), GPU_FULL),
    (
        ("dataloader worker", "killed by signal: killed"),
        (
            "a DataLoader's worker was killed, most likely for want of memory: raise the memory "
            "limit or lower num_workers"
        ),
    ),
    (
        ("dataloader worker", "killed by signal: bus error"),
        (
            "shared memory is full: mount an emptyDir with medium: Memory at /dev/shm, or lower "
            "num_workers"
        ),
    ),
    (
        ("dataloader worker", "exited unexpectedly"),
        "a DataLoader's worker has died: its own error stands further up in the output of the rank",
    ),
    (
        ("ncclunhandledcudaerror",),
        (
            "a CUDA call inside NCCL failed: look for an earlier error of this rank, and at the "
            "GPU of its node (Xid in the kernel's log)"
        ),
    ),
    (
        ("ncclinvalidusage",),
        (
            "ranks use NCCL differently: one GPU for each process, and the same collectives in the "
            "same order on all ranks"
        ),
    ),
    (
        ("ncclinternalerror",),
        "NCCL failed by itself: set NCCL_DEBUG=INFO, and see that all workers have the same image",
    ),
    (
        ("cuda error: an illegal memory access",),
        (
            "a kernel of the script or a broken GPU: set CUDA_LAUNCH_BLOCKING=1 for the line; on "
            "one node only, have its GPU checked"
        ),
    ),
    (
        ("device-side assert triggered",),
        (
            "a check in a kernel failed, mostly an index that is out of range: a label beyond the "
            "classes, a token beyond the vocabulary; set CUDA_LAUNCH_BLOCKING=1 for the line"
        ),
    ),
    (
        ("uncorrectable ecc error",),
        "the memory of the GPU is broken: have it checked, and keep the run away from the node",
    ),
)
"""All words of an entry must occur; the first entry that fits is taken."""


def remedy_of(text: str) -> str:
    """What to do about an exception with this text; "" where it is not known."""
    lower = text.lower()
    fitting = (remedy for words, remedy in REMEDIES if all(word in lower for word in words))
    return next(fitting, "")
