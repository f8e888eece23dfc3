"""The small JSON records in the store; each carries a checksum of itself.

Layer: pure. Invariants: the same record gives the same bytes, so writing it twice is not a conflict
(hence no timestamps inside); a record that differs in any bit from what was written is refused.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainrun._common.tree import TreeEntry
from trainrun.contract import wire
from trainrun.contract.answer import SaveOrder
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """`run.json`: written once by the first user of the folder."""

    layout: int
    """Version of the layout of this folder."""
    created_by: str
    """For display."""
    params: str = ""
    """The parameters of a sweep's trial as a JSON object; empty for other runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """`generations/000002.json`: a TrainRun started the run again here, from scratch."""

    number: int
    uid: str
    """The TrainRun that began the generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """`owners/000007.json`: one TrainRun's claim to the folder."""

    number: int
    uid: str
    """The claiming TrainRun."""
    committed: CheckpointId | None = None
    """The newest commit known when the claim was made: a later listing without any checkpoint means
    that the listing or the store is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """`owners/000007.beat`: overwritten by the owner alone; a waiting claimant watches it."""

    uid: str
    counter: int
    released: bool = False
    """The owner has released the folder."""
    committed: CheckpointId | None = None
    """The newest commit that the owner knows of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """`attempts/000003.json`: the checkpoint that an attempt started from."""

    attempt: int
    uid: str
    """The TrainRun of this attempt."""
    resume: CheckpointId | None = None
    """Absent: started from scratch."""
    ended: str = ""
    """The incident that ended the previous attempt."""
    set_aside: tuple[str, ...] = ()
    """Newer checkpoints that were damaged, with reasons."""
    trial_of: CheckpointId | None = None
    """A newer checkpoint with which processes died before: it is fenced only once this attempt has
    committed one of its own. Absent: this attempt is not a trial."""
    staged: bool = False
    """The checkpoint had no manifest then: its workers held it on their disks, as their records in
    its folder describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRecord:
    """`saves/000003/000000812/worker-00001.yes.json`: whether a worker saves at one call of
    `should_save()` if all others do. Written while no operator counts the votes."""

    attempt: int
    call: int
    slot: int
    agrees: bool
    asked: SaveOrder | None = None
    """The order that asked the worker to stop there; workers without that order read it here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryRecord:
    """`story/000003-0f9e8d7c6b5a.json`: a chapter of a TrainRun's story, from its operator."""

    number: int
    uid: str
    """The TrainRun."""
    run: str
    """Its name."""
    chapter: dict[str, Any] = field(default_factory=dict)
    """Any JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangRecord:
    """`hangs/000003-1/worker-00001.json`: where the ranks of a worker were when the gang hung."""

    attempt: int
    number: int
    """Number of the request within the run."""
    worker: int
    node: str = ""
    ranks: tuple[dict[str, Any], ...] = ()
    """Any JSON: see docs/hangs.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A file of one worker's part of a checkpoint."""

    name: str
    """Relative path, as in the directory that the script saved."""
    size: int
    """Bytes."""
    crc32: int
    ranks: tuple[int, ...]
    """The global ranks that reported it, ascending."""
    mode: int = 0
    """Permission bits; 0: not known."""
    modified: int = 0
    """Microseconds since the epoch by the clock of the rank that saved it; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneMarker:
    """`worker-00000.done.json`: this worker's part is in the store."""

    attempt: int
    step: int
    worker: int
    workers: int
    """Number of workers whose parts the checkpoint needs."""
    files: tuple[PartFile, ...] = ()
    others: tuple[TreeEntry, ...] = ()
    """The folders and links of this part."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """JSON-safe, as `trainrun.contract.metrics` writes them."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Any JSON, as `trainrun.contract.metrics` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile(PartFile):
    """A file of the merged checkpoint, with the mode and time of its lowest rank."""

    worker: int
    """The worker whose folder stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`manifest.json`: the commit of a checkpoint."""

    attempt: int
    step: int
    workers: int
    """Number of workers of the attempt."""
    whole: bool = False
    """The files of one worker are the whole checkpoint."""
    files: tuple[ManifestFile, ...] = ()
    """Ordered by name; names are unique and none is a folder of another."""
    others: tuple[TreeEntry, ...] = ()
    """Folders and links, likewise."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """The metrics of the lowest worker that reported any for this step."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Likewise."""

    @property
    def id(self) -> CheckpointId:
        """The committed checkpoint."""
        return CheckpointId(attempt=self.attempt, step=self.step)

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(item.size for item in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """`bad/step-...json`: a checkpoint that is never used again."""

    attempt: int
    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRecord:
    """`finished.json`: the run has succeeded."""

    uid: str


def add_checksum(record: object) -> bytes:
    """Return the bytes to store: JSON with a checksum of the other fields in `crc32`."""
    body = wire.encode(record)
    return _canonical({**body, "crc32": zlib.crc32(_canonical(body))}) + b"\n"


def read_checksummed(cls: type[T], data: bytes, *, name: str) -> T:
    """Read a `cls` from the output of `add_checksum`; `name` is the object, for messages.

    Raises CheckpointDamaged for anything else.
    """
    if not data.strip(b"\0 \n"):
        raise CheckpointDamaged(f"{name}: empty ({len(data)} bytes without content)")
    try:
        body = json.loads(data)
        wanted = body.pop("crc32", None) if isinstance(body, dict) else None
        if wanted is None:
            raise CheckpointDamaged(f"{name}: not a TrainRun record (it has no checksum)")
        if not _holds(data, body, wanted):
            raise CheckpointDamaged(f"{name}: its checksum does not match: its content changed")
        return wire.decode(cls, body)
    except (ValueError, RecursionError) as error:  # json raises either for garbage
        raise CheckpointDamaged(f"{name}: cannot be read: {error}") from error


def add_checksum_to_line(line: bytes) -> bytes:
    """Like `add_checksum`, for a line of JSON; its bytes stay unchanged."""
    body = b'"line":' + line + b"}"
    return b'{"crc32":%d,' % zlib.crc32(b"{" + body) + body + b"\n"


def read_checksummed_line(data: bytes, *, name: str) -> bytes:
    """Read the line from the output of `add_checksum_to_line`. Raises CheckpointDamaged for
    anything else."""
    match = _LINE.fullmatch(data)
    if match is None:
        raise CheckpointDamaged(f"{name}: not a TrainRun record, or cut off ({len(data)} bytes)")
    if zlib.crc32(b"{" + match[2]) != int(match[1]):
        raise CheckpointDamaged(f"{name}: its checksum does not match: its content changed")
    return match[3]


_LINE = re.compile(rb'\{"crc32":(\d+),("line":(.*)\})\n')


def _holds(data: bytes, body: object, wanted: object) -> bool:
    """Usually the bytes are those of `add_checksum`: encoding them again would dominate the time of
    a read."""
    rest = data.rstrip(b"\n").replace(f'"crc32":{wanted},'.encode(), b"", 1)
    return zlib.crc32(rest) == wanted or zlib.crc32(_canonical(body)) == wanted


def _canonical(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
