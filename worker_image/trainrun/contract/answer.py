"""The operator's answer to an agent: the agent's whole desired state.

Layer: contract. Level-triggered: the same answer may arrive twice, late or never. Times are
remaining seconds, never wall clocks. Unknown fields are ignored.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal

from trainrun.contract import wire
from trainrun.contract.ages import Changing, Remaining, essence
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import EvidenceRequest
from trainrun.contract.staged_parts import NodeCertificate

POLL_INTERVAL = 10.0
"""Maximum seconds until an agent without news sends the next heartbeat; a third of the heartbeat
timeout if that is less."""
PROGRESS_INTERVAL = 1.0
"""Minimum seconds between two heartbeats that only carry steps and metrics, and between two passes
that only look at them. The operator may ask for fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """Claim the resume point of `attempt` in the store and report it (slot 0's agent), or check
    that this worker can read it."""

    attempt: int
    on_existing: Literal["Resume", "Fail", "StartFresh"] = "Resume"
    """What to do with an existing folder while `Answer.generation` is unknown."""
    ended: str = ""
    """The incident that ended the previous attempt, for the record in the store."""
    committed: CheckpointId | None = None
    """The newest commit that the operator knows of: a store that does not show it must not count as
    empty."""
    trial_of: CheckpointId | None = None
    """If this is the newest checkpoint, claim the one before it as a trial: attempts died while
    they opened this one."""
    staged: CheckpointId | None = None
    """A checkpoint that every worker has described and holds on its disk. Claim it if it is newer
    than all in the store."""
    workers: int = 0
    """Number of workers that hold it."""
    proof: bool = False
    """Claim nothing: read the manifest of `committed`, or list attempts if it is absent, and answer
    `Resolved` with it if the store permits that to this worker."""
    look: bool = False
    """Claim nothing: only report whether the owner of the storage shows life."""

    def asks_as(self, other: ResolveRequest) -> bool:
        """Whether the answer to the other request also answers this one."""
        ours = (self.attempt, self.proof, self.look)
        others = (other.attempt, other.proof, other.look)
        return ours == others and (not self.proof or self.committed == other.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """No process of an attempt below `attempt` may run; prepare for `attempt`."""

    kind: Literal["Hold"] = "Hold"
    attempt: int
    """The next attempt; the agent offers a master port for it if `offer` is set."""
    number: int = 0
    """Grows when the same attempt is prepared again: a ready agent reports the number it is ready
    for."""
    flush: tuple[int, ...] = ()
    """Staged steps of the ended attempt that all ranks have: finish their uploads first."""
    in_place: bool = False
    """Do not upload `flush`: describe this worker's part of it in the store. The next attempt
    starts from the disks."""
    stand_in: tuple[int, ...] = ()
    """Slots of lost workers: upload their part of `flush`, too, from the copies on this disk."""
    grace_seconds: Remaining = 0.0
    """How long processes of the ended attempt may take to exit after SIGTERM; 0: kill them at
    once."""
    linger_seconds: float = 0.0
    """How long processes of the ended attempt may still exit by themselves, from the first receipt
    of this order. The agent leaves them alone: the rank that broke the collective may be about to
    raise its exception."""
    flush_seconds: Remaining = 0.0
    """How long the uploads may still take; then they are abandoned."""
    flush_allowed: float = 0.0
    """How long they may take in total. It grows while the store is unavailable; that is news, while
    a change of remaining time is not."""
    offer: bool = False
    resolve: ResolveRequest | None = None
    prefetch: CheckpointId | None = None
    """The probable resume point: download it in the meantime (for one agent of each node).
    Processes get it only after it is claimed."""

    @property
    def deadlines(self) -> tuple[float, ...]:
        """Seconds after which the agent must act on this order again."""
        ends = (seconds for seconds in (self.linger_seconds, self.grace_seconds) if seconds)
        return (*ends, self.flush_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSource:
    """An agent from which others copy: one on the same node that downloads the resume point, or a
    partner on another node."""

    address: str
    """Its `AgentState.serves`, or `serves_tls`."""
    secret: str = field(repr=False)
    """Its `AgentState.agent`: only members of the run know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHolder:
    """A worker that holds its part of a checkpoint, and serves it."""

    slot: int
    source: PeerSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Run the processes of `attempt`: a copy of the start record. Each attempt starts once."""

    kind: Literal["Start"] = "Start"
    attempt: int
    workers: int
    """Number of slots."""
    world_size: int
    """Number of processes on all workers."""
    master_addr: str
    master_port: int
    resume: CheckpointId | None = None
    run_id: str = ""
    """The run's id for trackers; empty: not known."""
    source: PeerSource | None = None
    """The agent that has the files of `resume` on this node; absent: read the store directly."""
    staged: bool = False
    """`resume` has no manifest yet: each worker holds its part, and uploads it first."""
    holders: tuple[PartHolder, ...] = ()
    """If `staged`: the other agents on this node, from which their parts can be copied."""
    partners: tuple[PartHolder, ...] = ()
    """Workers on other nodes whose buddy this worker is: it copies their part of `Answer.copy`, by
    TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The run is over or suspended: stop processes, finish uploads in progress, release the storage
    claim (slot 0's agent), exit with `code`."""

    kind: Literal["Exit"] = "Exit"
    code: int = 0
    succeeded: bool = False
    """Slot 0's agent writes `finished.json` first."""
    attempt: int = 0
    number: int = 0
    """The Hold that this order precedes, however late it arrives; attempt 0: always obeyed."""


Order = Hold | Start | Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOrder:
    """Agree on the call of `should_save()` at which all ranks save."""

    stage: Literal["Prepare", "Commit", "Abort"]
    call: int
    reason: str = ""
    deadline: Remaining | None = None
    """When the worker may be taken away; absent: not known."""
    writer_rank: int = 0
    """The lowest rank that is not under notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step of the running attempt for which some worker has files, not yet committed."""

    step: int
    slots: tuple[int, ...] = ()
    """Slots whose part is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Read these objects of a checkpoint again from the store; set it aside if they are damaged."""

    attempt: int
    """The attempt that received this checkpoint, or that requests one."""
    id: CheckpointId
    files: tuple[str, ...]


OnNotice = Literal[
    "Auto",  # AskScript if a process has called should_save() in this attempt, else Signal
    "AskScript",  # should_save() returns a request
    "Signal",  # SIGTERM, then a grace period
    "Stop",  # SIGKILL
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryEntry:
    """A finished part of the run's story: store it once, unchanged, under its number."""

    number: int
    text: str
    """JSON, of at most `wire.LARGEST_STORY_ENTRY` bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRank:
    """A rank that ended an attempt without being taken away: its own work may be the reason."""

    attempt: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPattern:
    """A regular expression for lines of output that show a step."""

    pattern: str
    """In the syntax that RE2 and Python share; see `spec.progress.patterns` for its groups."""
    rank: int = 0
    """The rank whose output is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRule:
    """The folder into which a script saves by itself: see `spec.checkpoint.folder`."""

    path: str
    newest: str = ""
    """Pattern of its saves; empty: the whole folder is one."""
    complete: tuple[str, ...] = ()
    settle: float = 10.0
    """Seconds."""
    resume_args: tuple[str, ...] = ()
    from_second_attempt: bool = False
    """`resume_args` are given from the second attempt on, even if nothing was restored."""
    carry: bool = True
    """Store its saves; otherwise all workers share the folder, and it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings that a user may edit while workers live. Durations are seconds.

    A value below is the meaning of the absent field between versions; never change it. The defaults
    of a run are in `api/run/spec.py`.
    """

    max_pending: int = 2
    """Maximum number of checkpoint steps that wait for upload."""
    upload_every: float = 0.0
    """Seconds between two uploads of an attempt. Above 0 the agent uploads the steps that
    `Answer.upload` names, and keeps the others on its disk. 0: it uploads every step."""
    buddy: bool = False
    """Each worker's staged files are copied to a worker on another node."""
    keep: int = 3
    """Number of checkpoints that retention keeps."""
    score_metric: str = ""
    """Retention keeps the best ones by this metric; empty: the newest ones."""
    score_order: Literal["Max", "Min"] = "Max"
    """Which value of the metric is best."""
    on_notice: OnNotice = "AskScript"
    """How to stop a training; used by an agent that cannot reach an operator."""
    heartbeat_timeout: float = 30.0
    """Seconds of silence after which the operator considers an agent lost."""
    flush_timeout: float = 120.0
    """How long uploads may take after the training has stopped, unless an order differs."""
    output_forms: bool = False
    """Look for steps in output, in the known forms; from the next attempt on."""
    output_patterns: tuple[OutputPattern, ...] = ()
    """Look for steps in output, in these; likewise."""
    folder: FolderRule | None = None
    """Store what the script saves in this folder; likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An agent's whole desired state: the answer to a heartbeat."""

    version: int = wire.VERSION
    order: Order
    save: SaveOrder | None = None
    steps: tuple[OpenStep, ...] = ()
    drop: tuple[int, ...] = ()
    """Staged steps to forget: the backlog is full, or newer ones replace them (the same for all
    ranks)."""
    upload: tuple[int, ...] = ()
    """With `RunSettings.upload_every`: the staged steps to upload. One that was named once stays
    due until it is committed or dropped."""
    copy: int = -1
    """The staged step that buddies copy from their partners; -1: none."""
    copied: int = -1
    """The step of which each buddy has its copy, and keeps it; -1: none. With `copy`, other
    copies are not needed, but for a newer step of which the buddy has all that it copies."""
    committed: CheckpointId | None = None
    """The newest commit that the operator knows of."""
    recheck: Recheck | None = None
    """Objects that another node could not read."""
    evidence: EvidenceRequest | None = None
    """The gang hangs: find out where, before the operator ends the attempt."""
    generation: int = 0
    """The generation of its folder that the run uses; 0: not known, then the agent that claims the
    next attempt determines it."""
    story: tuple[StoryEntry, ...] = ()
    """Entries that the run's folder lacks, as far as the operator knows (for one agent)."""
    settings: RunSettings | None = None
    """The current settings; absent: those of the agent's configuration."""
    key: str = field(default="", repr=False)
    """Secret of the ranks of the started attempt, in hexadecimal; empty: there is none."""
    certificate: NodeCertificate | None = field(default=None, repr=False)
    """With checkpoint.buddy: with what this agent serves other nodes."""
    lost: tuple[LostRank, ...] = ()
    """Lost ranks of the last attempts, oldest first: a task that ran there used up a retry."""
    begun: int = 0
    """The run has done steps in this attempt or a later one: a store that shows no attempt up to
    this one is not the run's store. 0: no steps are known."""
    poll: float = POLL_INTERVAL
    """Maximum seconds until the agent's next heartbeat."""
    progress: Changing[float] = PROGRESS_INTERVAL
    """Seconds between two heartbeats that carry only steps and metrics; the agent reports at once
    what the operator waits for. A change of this field alone is sent with the next answer."""

    @property
    def digest(self) -> str:
        """The value that `AgentState.seen` repeats: differs when more than a remaining time or
        `progress` differs. It is sent in clear and reveals nothing about the key."""
        plain = wire.encode(essence(self))
        plain.pop("key", None)
        plain.pop("certificate", None)
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> Answer:
        """Raises wire.MalformedMessage."""
        return wire.decode(Answer, wire.parsed(text))
