"""The small JSON objects in the store, and the checksum that each carries about itself.

Layer: pure. Invariants: the same record gives the same bytes (so writing it twice is no conflict;
hence no time stamps inside), and bytes that differ in any bit from what was written are refused
instead of being half believed.
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
    """`run.json`: written once by whoever used the folder first."""

    layout: int
    """Version of the layout below this folder."""
    created_by: str
    """For people."""
    params: str = ""
    """Of a sweep's trial: its parameters as a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """`generations/000002.json`: the folder of this generation is another beginning of the run."""

    number: int
    uid: str
    """The TrainRun that began it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """`owners/000007.json`: one TrainRun's claim to the folder."""

    number: int
    uid: str
    """The claiming TrainRun."""
    committed: CheckpointId | None = None
    """The newest checkpoint known to be committed when the claim was made: if the listing shows
    none later, something is wrong with the listing or with the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """`owners/000007.beat`: overwritten by the owner alone; whoever waits watches it change."""

    uid: str
    counter: int
    released: bool = False
    """The owner has given the folder up of its own will."""
    committed: CheckpointId | None = None
    """The newest checkpoint that the owner knows to be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """`attempts/000003.json`: what one attempt was started from."""

    attempt: int
    uid: str
    """The TrainRun whose attempt it is."""
    resume: CheckpointId | None = None
    """Absent: started from nothing."""
    ended: str = ""
    """The incident that ended the attempt before."""
    set_aside: tuple[str, ...] = ()
    """Newer checkpoints that were damaged, with reasons."""
    trial_of: CheckpointId | None = None
    """A newer checkpoint, with which processes died before: it is left behind only once this
    attempt has committed one of its own. Absent: this attempt is no trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRecord:
    """`saves/000003/000000812/worker-00001.yes.json`: whether a worker saves at one call of
    `should_save()` if all others do. Written while no operator counts the votes."""

    attempt: int
    call: int
    slot: int
    agrees: bool
    asked: SaveOrder | None = None
    """What asked it to stop there; a worker that was not asked learns it from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryRecord:
    """`story/000003-0f9e8d7c6b5a.json`: a chapter of a TrainRun's story, as its operator has it."""

    number: int
    uid: str
    """The TrainRun."""
    run: str
    """Its name."""
    chapter: dict[str, Any] = field(default_factory=dict)
    """Any JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangRecord:
    """`hangs/000003-1/worker-00001.json`: where the ranks of a worker stood when the gang did."""

    attempt: int
    number: int
    """Of the request, within the run."""
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
    """The global ranks that brought it, ascending."""
    mode: int = 0
    """Permission bits; 0: not known."""
    modified: int = 0
    """Microseconds since the epoch by the clock of whoever saved it; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneMarker:
    """`worker-00000.done.json`: this worker's part is in the store."""

    attempt: int
    step: int
    worker: int
    workers: int
    """How many workers the checkpoint waits for."""
    files: tuple[PartFile, ...] = ()
    others: tuple[TreeEntry, ...] = ()
    """Its folders and links."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """JSON-safe, as `trainrun.contract.metrics` writes them."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Any JSON, as `trainrun.contract.metrics` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile(PartFile):
    """A file of the merged checkpoint: with mode and time as the lowest of its ranks had them."""

    worker: int
    """In whose folder it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`manifest.json`: the commit of a checkpoint."""

    attempt: int
    step: int
    workers: int
    """How many workers the attempt had."""
    whole: bool = False
    """One worker's files are all of it."""
    files: tuple[ManifestFile, ...] = ()
    """Ordered by name; names are unique and none is a folder of another."""
    others: tuple[TreeEntry, ...] = ()
    """Folders and links, likewise."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Those of the lowest worker that reported any with this step."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Likewise."""

    @property
    def id(self) -> CheckpointId:
        """The checkpoint that this commits."""
        return CheckpointId(attempt=self.attempt, step=self.step)

    @property
    def size_bytes(self) -> int:
        """All files together."""
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
    """Return the bytes to store: JSON with the checksum of the rest in `crc32`."""
    body = wire.encode(record)
    return _canonical({**body, "crc32": zlib.crc32(_canonical(body))}) + b"\n"


def read_checksummed(cls: type[T], data: bytes, *, name: str) -> T:
    """Read a `cls` from what `add_checksum` made; `name` is the object, for the message.

    Raises CheckpointDamaged for anything else.
    """
    if not data.strip(b"\0 \n"):
        raise CheckpointDamaged(f"{name}: empty ({len(data)} bytes, none of them content)")
    try:
        body = json.loads(data)
        wanted = body.pop("crc32", None) if isinstance(body, dict) else None
        if wanted is None:
            raise CheckpointDamaged(f"{name}: not a record of ours (it carries no checksum)")
        if not _holds(data, body, wanted):
            raise CheckpointDamaged(f"{name}: its checksum does not fit: its content changed")
        return wire.decode(cls, body)
    except (ValueError, RecursionError) as error:  # both what json says of garbage
        raise CheckpointDamaged(f"{name}: cannot be read: {error}") from error


def add_checksum_to_line(line: bytes) -> bytes:
    """Like `add_checksum`, of what is one line of JSON already, and stays these very bytes."""
    body = b'"line":' + line + b"}"
    return b'{"crc32":%d,' % zlib.crc32(b"{" + body) + body + b"\n"


def read_checksummed_line(data: bytes, *, name: str) -> bytes:
    """Read the line from what `add_checksum_to_line` made. Raises CheckpointDamaged for anything
    else."""
    match = _LINE.fullmatch(data)
    if match is None:
        raise CheckpointDamaged(f"{name}: not a record of ours, or cut off ({len(data)} bytes)")
    if zlib.crc32(b"{" + match[2]) != int(match[1]):
        raise CheckpointDamaged(f"{name}: its checksum does not fit: its content changed")
    return match[3]


_LINE = re.compile(rb'\{"crc32":(\d+),("line":(.*)\})\n')


def _holds(data: bytes, body: object, wanted: object) -> bool:
    """Mostly these are the bytes that `add_checksum` has made: to make them again costs most of a
    read."""
    rest = data.rstrip(b"\n").replace(f'"crc32":{wanted},'.encode(), b"", 1)
    return zlib.crc32(rest) == wanted or zlib.crc32(_canonical(body)) == wanted


def _canonical(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
