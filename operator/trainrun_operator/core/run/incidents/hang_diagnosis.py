"""Diagnosis of a hang: where each rank is, and which rank is the culprit.

Layer: core. A pure function over the evidence of agents (`trainrun.contract.evidence`). The stack
counts first: a rank that waits for NCCL may use a whole core, and one in a gloo collective sleeps.
Invariant: a rank is blamed only where all others are known to wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from trainrun.contract.evidence import Frame, RankEvidence
from trainrun_operator.core.run.view import counted

HangClass = Literal[
    "OneRankAway",  # the others are in a collective, and wait for it
    "SameCollective",  # all are in the same one: the network, or a rank that has left
    "WaitingForInput",  # for input or storage
    "Unknown",
]

COLLECTIVES = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/_functional_collectives.py",
    "torch/nn/parallel/distributed.py",
    "torch/distributed/fsdp/",
    "torch/distributed/utils.py",
    "torch/autograd/graph.py",  # DDP reduces gradients within backward()
    "torch/cuda/streams.py",
    "horovod/",
    "mpi4py/",
    "deepspeed/comm/",
    "jax/_src/array.py",  # block_until_ready and its like: of a program of all devices
)
"""Parts of paths of files in which a process waits for its peers."""
INPUT = (
    "torch/utils/data/",
    "multiprocessing/queues.py",
    "multiprocessing/connection.py",
    "multiprocessing/pool.py",
    "concurrent/futures/",
    "botocore/",
    "s3transfer/",
    "urllib3/",
    "http/client.py",
    "fsspec/",
    "aiobotocore/",
    "datasets/",
    "webdataset/",
    "streaming/base/",
    "grain/",
    "h5py/",
    "zarr/",
)
"""The same for input: data loaders, helper processes, clients of object stores."""

STORAGE_CALLS = (
    "read of /", "pread64 of /", "readv of /", "write of /", "pwrite64 of /", "writev of /",
    "fsync of", "fdatasync of", "getdents64 of", "flock of", "open", "openat", "stat", "lstat",
    "newfstatat", "fstat of /", "statx", "read of pipe:", "read of socket:",
)  # fmt: skip
"""Prefixes of system calls that wait for files, or for data of another process."""
OUTPUT_CALLS = ("write of its output", "writev of its output")
STORAGE_WAITS = (
    "fuse", "request_wait", "nfs", "rpc_wait", "cifs", "ceph", "lustre", "folio_wait",
    "io_schedule", "wait_on_page", "wait_for_partner", "pipe_read", "jbd2", "xfs_", "ext4_",
)  # fmt: skip
"""Prefixes of kernel functions in which processes wait for storage."""

BUSY = 0.5
"""Cores from which on a rank counts as computing."""
RUNS = "R"
"""State of a rank that computes, however little CPU it gets on a busy machine."""
STOPPED = ("T", "t")


class At(Enum):
    """What a rank does at the place where it is."""

    STOPPED = auto()
    COLLECTIVE = auto()
    OUTPUT = auto()
    INPUT = auto()
    COMPUTING = auto()
    ELSEWHERE = auto()
    UNKNOWN = auto()


WAITS_FOR_OTHERS_THAN_RANKS = (At.INPUT, At.OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHangState:
    """One rank of a gang that hangs."""

    rank: int
    slot: int
    step: int | None
    at: At
    place: str
    """`all_reduce`, or "`DataLoader.__next__` (data.py:41)"; "" where unknown."""
    text: str
    """The same as a predicate: it completes a sentence that begins with the rank."""
    sure: bool
    """Whether it is known if the rank waits for the others; False: its stack could not be read, and
    a rank that waits for a GPU, or in a futex, may be in a collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangDiagnosis:
    """What follows from the states of all ranks."""

    kind: HangClass
    message: str
    """For users: which rank is behind, in which frame."""
    culprit: RankHangState | None = None
    """OneRankAway: the rank whose worker is to blame."""
    alone: bool = True
    """Whether it is the only rank away; False: other ranks of its worker are, too."""


def hang_state(found: RankEvidence, slot: int) -> RankHangState:
    """The state of one rank, from its evidence."""
    at = _at(found)
    place = _place(found, at)
    return RankHangState(
        rank=found.rank,
        slot=slot,
        step=found.step,
        at=at,
        place=place,
        text=_text(found, at, place) + _lost(found),
        sure=bool(found.stack) or at not in (At.COMPUTING, At.ELSEWHERE),
    )


def diagnosis(ranks: Sequence[RankHangState], *, missing: int = 0) -> HangDiagnosis:
    """The diagnosis over all known ranks; nothing is known about `missing` other living ranks."""
    located = [rank for rank in ranks if rank.at is not At.UNKNOWN]
    missing += len(ranks) - len(located)
    together = [rank for rank in located if rank.at is At.COLLECTIVE]
    apart = [rank for rank in located if rank.at is not At.COLLECTIVE]
    stopped = [rank for rank in located if rank.at is At.STOPPED]
    if len(stopped) == 1 and len(ranks) > 1:
        return _away(stopped, [rank for rank in located if rank not in stopped])
    if together and apart:
        return _some_apart(together, apart, missing)
    if together:
        return _all_together(together, missing)
    return _none_together(located, missing)


def _some_apart(
    together: list[RankHangState], apart: list[RankHangState], missing: int
) -> HangDiagnosis:
    if len({rank.slot for rank in apart}) == 1 and not missing and all(rank.sure for rank in apart):
        return _away(apart, together)
    waiting = all(rank.at in WAITS_FOR_OTHERS_THAN_RANKS for rank in apart)
    kind: HangClass = "WaitingForInput" if waiting else "Unknown"
    return HangDiagnosis(kind=kind, message=_listed(apart, together, missing))


def _all_together(together: list[RankHangState], missing: int) -> HangDiagnosis:
    """Compares names: different collectives cannot complete each other."""
    names = Counter(rank.place for rank in together)
    (most, count), *others = names.most_common()
    if not others:
        every = "all " if not missing and len(together) > 1 else ""
        are = "is" if len(together) == 1 else "are"
        who = f"{every}{counted(len(together), 'rank')} {are}"
        return HangDiagnosis(
            kind="Unknown" if missing else "SameCollective",
            message=f"{who} in {most}{_unknown(missing)}; no rank is known to be behind",
        )
    odd = [rank for rank in together if rank.place != most]
    rest = [rank for rank in together if rank.place == most]
    if len({rank.slot for rank in odd}) == 1 and count > len(odd) and not missing:
        return _away(odd, rest)
    return HangDiagnosis(
        kind="Unknown",
        message=f"the ranks are in different collectives: {_listed(odd, rest, missing)}",
    )


def _none_together(located: list[RankHangState], missing: int) -> HangDiagnosis:
    if not located:
        return HangDiagnosis(
            kind="Unknown", message=f"nothing is known about {counted(missing, 'rank')}"
        )
    lowest = min(_step(rank) for rank in located)
    behind = [rank for rank in located if _step(rank) == lowest]
    others = [rank for rank in located if rank not in behind]
    waiting = [rank for rank in behind if rank.at in WAITS_FOR_OTHERS_THAN_RANKS]
    if waiting:
        rest = [rank for rank in located if rank not in waiting]
        return HangDiagnosis(kind="WaitingForInput", message=_listed(waiting, rest, missing))
    return HangDiagnosis(kind="Unknown", message=_listed(behind, others, missing))


def _away(apart: list[RankHangState], others: list[RankHangState]) -> HangDiagnosis:
    culprit = min(apart, key=lambda rank: rank.rank)
    return HangDiagnosis(
        kind="OneRankAway",
        message=_listed(apart, others, 0),
        culprit=culprit,
        alone=len(apart) == 1,
    )


def _listed(first: Sequence[RankHangState], others: Sequence[RankHangState], missing: int) -> str:
    """`rank 3 is in `load` (data.py:41); 7 others in all_reduce`."""
    lead = min(first, key=lambda rank: rank.rank)
    more = [rank for rank in first if rank is not lead]
    parts = [f"rank {lead.rank} {lead.text}"]
    groups = Counter(rank.place or "an unknown place" for rank in (*more, *others))
    parts += [f"{counted(n, 'other')} in {place}" for place, n in groups.most_common(3)]
    rest = sum(groups.values()) - sum(n for _, n in groups.most_common(3))
    parts += [f"{counted(rest, 'other')} elsewhere"] if rest else []
    return "; ".join(parts) + _unknown(missing)


def _unknown(missing: int) -> str:
    return f"; nothing is known about {counted(missing, 'other')}" if missing else ""


def _step(rank: RankHangState) -> int:
    return -1 if rank.step is None else rank.step


def _at(found: RankEvidence) -> At:
    if found.state in STOPPED:
        return At.STOPPED
    if any(_is_in(frame, COLLECTIVES) for frame in found.stack):
        return At.COLLECTIVE
    if found.kernel.startswith(OUTPUT_CALLS):
        return At.OUTPUT
    if _waits_for_storage(found) or any(_is_in(frame, INPUT) for frame in found.stack):
        return At.INPUT
    if found.cpu >= BUSY or found.state == RUNS:
        return At.COMPUTING
    return At.ELSEWHERE if found.stack or found.kernel else At.UNKNOWN


def _waits_for_storage(found: RankEvidence) -> bool:
    call, _, symbol = found.kernel.partition("; ")
    return call.startswith(STORAGE_CALLS) or (symbol or call).startswith(STORAGE_WAITS)


def _is_in(frame: Frame, files: tuple[str, ...]) -> bool:
    return not frame.own and any(part in frame.file for part in files)


def _place(found: RankEvidence, at: At) -> str:
    frames = found.stack
    if at is At.COLLECTIVE:
        return next(f.name for f in frames if _is_in(f, COLLECTIVES))
    if at is At.INPUT:
        loaders = [f for f in frames if "torch/utils/data/" in f.file and f.name == "__next__"]
        if loaders:
            return _frame_text(loaders[-1])
    own = next((f for f in frames if f.own), frames[0] if frames else None)
    return _frame_text(own) if own is not None else ""


def _frame_text(frame: Frame) -> str:
    base = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"`{frame.name}` ({base}:{frame.line})"


def _text(found: RankEvidence, at: At, place: str) -> str:
    where = f" in {place}" if place else ""
    match at:
        case At.STOPPED:
            text = f"is stopped by a signal (state {found.state}){where}"
        case At.OUTPUT:
            text = f"waits for its output to be read{where}"
        case At.COMPUTING:
            or_waits = ", or waits for its GPU" if found.gpu else ""
            text = f"computes{or_waits} ({100 * found.cpu:.0f} % of a core){where}"
        case At.INPUT if found.kernel:
            text = f"is{where} ({found.kernel})" if place else f"waits ({found.kernel})"
        case _ if place:
            text = f"is{where}"
        case _:
            text = f"waits in the kernel ({found.kernel})" if found.kernel else "reported no stack"
    return text


def _lost(found: RankEvidence) -> str:
    """Names dead child processes: the rank may wait for one of them."""
    number = found.helpers_lost
    if not number:
        return ""
    return f", and {number} of its child processes {'is' if number == 1 else 'are'} dead"
