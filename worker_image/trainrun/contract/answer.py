"""What the operator answers an agent: its whole desired state.

Layer: contract. Level-triggered: the same answer may come twice, late or never. Times are seconds
that are left, never wall clocks. Unknown fields are ignored.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Literal

from trainrun.contract import wire
from trainrun.contract.ages import Changing, Remaining, essence
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import EvidenceRequest

POLL_INTERVAL = 10.0
"""Seconds after which an agent with no news sends the next heartbeat, at the latest; a third of the
heartbeat timeout where that is less."""
PROGRESS_INTERVAL = 1.0
"""Seconds between two heartbeats that only carry steps and metrics, and between two passes that
only look at them, where the operator does not ask for fewer; never less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """Claim the resume point of `attempt` in the store and report it (slot 0's agent), or show that
    this worker can read it."""

    attempt: int
    on_existing: Literal["Resume", "Fail", "StartFresh"] = "Resume"
    """What a folder that is there already means, while `Answer.generation` is not known."""
    ended: str = ""
    """The incident that ended the attempt before, for the record in the store."""
    committed: CheckpointId | None = None
    """The newest checkpoint that the operator knows to be committed: a store that shows nothing of
    it is not to be taken for an empty one."""
    trial_of: CheckpointId | None = None
    """Where the newest checkpoint is this one, the one before it is claimed, as a trial: attempts
    died while they opened it."""
    proof: bool = False
    """Claim nothing: read the manifest of `committed`, or list attempts where it is absent, and say
    `Resolved` with it where the store lets this worker do so."""
    look: bool = False
    """Claim nothing: only say whether the owner of the storage shows life."""

    def asks_as(self, other: ResolveRequest) -> bool:
        """Whether the answer to the other one is an answer to this one."""
        ours = (self.attempt, self.proof, self.look)
        others = (other.attempt, other.proof, other.look)
        return ours == others and (not self.proof or self.committed == other.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """No process of an attempt below `attempt` may run; get ready for it."""

    kind: Literal["Hold"] = "Hold"
    attempt: int
    """The next attempt; the agent offers a master port for it where `offer` says so."""
    number: int = 0
    """Grows when the same attempt is prepared anew: agents that are ready say which they mean."""
    flush: tuple[int, ...] = ()
    """Staged steps of the ended attempt that every rank has: finish their uploads first."""
    grace_seconds: Remaining = 0.0
    """How long processes of the ended attempt may take to end after SIGTERM; 0: they are killed at
    once."""
    linger_seconds: float = 0.0
    """How long processes of the ended attempt may still end by themselves, from when this is heard
    first: nothing is done to them, since who broke the collective may be about to say so."""
    flush_seconds: Remaining = 0.0
    """How long the uploads may still take; then they are abandoned."""
    flush_allowed: float = 0.0
    """How long they may take altogether. It grows while the store is away, and then is news, which
    what is left of a time is not."""
    offer: bool = False
    resolve: ResolveRequest | None = None
    prefetch: CheckpointId | None = None
    """What the attempt will most likely resume from: bring it here meanwhile (for one agent of each
    node). Nobody is handed anything before that is claimed."""

    @property
    def deadlines(self) -> tuple[float, ...]:
        """Seconds after which something is to be done about it again."""
        ends = (seconds for seconds in (self.linger_seconds, self.grace_seconds) if seconds)
        return (*ends, self.flush_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSource:
    """An agent on the same node that downloads the resume point; the others copy from it."""

    address: str
    """Its `AgentState.serves`."""
    secret: str = field(repr=False)
    """Its `AgentState.agent`: who knows it belongs to the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Run the processes of `attempt`: a copy of the start record. Started at most once."""

    kind: Literal["Start"] = "Start"
    attempt: int
    workers: int
    """Number of slots."""
    world_size: int
    """Number of processes over all workers."""
    master_addr: str
    master_port: int
    resume: CheckpointId | None = None
    run_id: str = ""
    """By which trackers know the run; empty: not known."""
    source: PeerSource | None = None
    """Who has the files of `resume` on this node; absent: this agent reads the store itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The run is over or suspended: stop processes, finish uploads that are under way, release the
    storage claim (slot 0's agent), leave with `code`."""

    kind: Literal["Exit"] = "Exit"
    code: int = 0
    succeeded: bool = False
    """Slot 0's agent writes `finished.json` first."""
    attempt: int = 0
    number: int = 0
    """The Hold before which this was said, however late it comes; attempt 0: obeyed always."""


Order = Hold | Start | Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOrder:
    """Agree on the call of `should_save()` that is answered with yes."""

    stage: Literal["Prepare", "Commit", "Abort"]
    call: int
    reason: str = ""
    deadline: Remaining | None = None
    """When the worker may be gone; absent: not known."""
    writer_rank: int = 0
    """The lowest rank that is not under notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step of the running attempt for which some worker has files, not yet committed."""

    step: int
    slots: tuple[int, ...] = ()
    """Slots whose part is in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Read these objects of a checkpoint again, from the store; set it aside if they are wrong."""

    attempt: int
    """The attempt that has been given this checkpoint, or that asks for one."""
    id: CheckpointId
    files: tuple[str, ...]


OnNotice = Literal[
    "Auto",  # AskScript where a process has called should_save() in this attempt, else Signal
    "AskScript",  # should_save() says so
    "Signal",  # SIGTERM, and some time
    "Stop",  # they are killed
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryEntry:
    """A part of the run's story that is over: to be stored once, as it is, under its number."""

    number: int
    text: str
    """JSON, of at most `wire.LARGEST_STORY_ENTRY` bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRank:
    """A rank that has ended an attempt, and was not taken away: what it did may be why."""

    attempt: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a user may edit while workers live. Durations are seconds.

    A value below is what the absent field means between versions, for ever. What a run gets by
    default stands in `api/run/spec.py`.
    """

    max_pending: int = 2
    """Checkpoint steps that may be staged and not uploaded."""
    keep: int = 3
    """Checkpoints that retention keeps."""
    score_metric: str = ""
    """It keeps the best ones by this metric; empty: the newest ones."""
    score_order: Literal["Max", "Min"] = "Max"
    """Which value of the metric is the best."""
    on_notice: OnNotice = "AskScript"
    """What becomes of a training that has to stop: for an agent that reaches no operator."""
    heartbeat_timeout: float = 30.0
    """The operator takes an agent that was silent for this long for lost."""
    flush_timeout: float = 120.0
    """How long uploads may take after the training has stopped, where no order says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An agent's whole desired state: the answer to a heartbeat."""

    version: int = wire.VERSION
    order: Order
    save: SaveOrder | None = None
    steps: tuple[OpenStep, ...] = ()
    drop: tuple[int, ...] = ()
    """Staged steps to forget: the backlog is full (the same for all ranks)."""
    committed: CheckpointId | None = None
    """The newest commit that the operator has heard of."""
    recheck: Recheck | None = None
    """What another node reads wrongly."""
    evidence: EvidenceRequest | None = None
    """The gang stands still: find out where, before anything is done about it."""
    generation: int = 0
    """In which generation of its folder the run is; 0: not known, and with it whoever claims the
    next attempt finds that out."""
    story: tuple[StoryEntry, ...] = ()
    """What the run's folder does not hold yet, as far as the operator knows (for one agent)."""
    settings: RunSettings | None = None
    """As they are now; absent: as the agent was configured."""
    key: str = field(default="", repr=False)
    """What the ranks of the attempt that is started know, and nobody else, in hexadecimal; empty:
    there is none."""
    lost: tuple[LostRank, ...] = ()
    """Of the last attempts, oldest first: a task that ran there has cost one of its retries."""
    begun: int = 0
    """The run has done steps, in this attempt or later ones: a store that shows none up to this one
    is not that of before. 0: nothing is known of steps."""
    poll: float = POLL_INTERVAL
    """Seconds after which the agent asks again at the latest."""
    progress: Changing[float] = PROGRESS_INTERVAL
    """Seconds between two heartbeats that carry only steps and metrics; what the operator waits for
    is told at once. Alone it is no news: a change of it comes with the next answer."""

    @property
    def digest(self) -> str:
        """What `AgentState.seen` repeats: differs when more than a remaining time or `progress`
        differs. It goes in clear, and tells nothing of the key."""
        plain = wire.encode(essence(replace(self, key="")))
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> Answer:
        """Raises wire.MalformedMessage."""
        return wire.decode(Answer, wire.parsed(text))
