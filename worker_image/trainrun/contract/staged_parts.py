"""What agents tell of checkpoints on their disks, and how those of two nodes reach each other.

Layer: contract. A *copied part* is a worker's part of a staged step on the disk of its *buddy*, a
worker on another node.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainrun.contract.ages import Age


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedStep:
    """A checkpoint step on this worker's disk."""

    step: int
    ranks: tuple[int, ...] = ()
    """Global ranks of the local processes that reported files."""
    complete: bool = False
    """All local ranks have passed this step: the worker's part is final."""
    uploaded: bool = False
    """The worker's part, including its done marker, is in the store."""
    whole: bool = False
    """Reported with whole=True: no other rank is needed."""
    after_save: bool = False
    """Reported after the answer to this attempt's save request: it is the requested checkpoint."""
    due: bool = False
    """An answer has named it in `Answer.upload`."""
    age: Age = 0.0
    """Seconds since it was first staged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPart:
    """A worker's part of a step on the disk of its buddy, which tells this."""

    slot: int
    """Of the worker that saved it."""
    step: int
    ranks: tuple[int, ...] = ()
    """Global ranks that have files in it."""
    whole: bool = False
    """As `StagedStep.whole`."""
    complete: bool = False
    """False: it is still being copied."""
    uploaded: bool = False
    """The buddy has stored it for that worker, with the done marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCertificate:
    """With what the agents of a run serve staged files to other nodes. All agents get the same
    name, for which the operator's CA has signed."""

    name: str
    """The name in the certificate, which clients verify."""
    certificate: str
    """PEM."""
    key: str = field(repr=False)
    """PEM, its private key."""
