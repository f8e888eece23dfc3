"""Messages between an agent (one per worker) and the operator.

Level-triggered: a heartbeat carries the agent's whole state, its answer the agent's whole desired
state, so either side may forget everything and catch up in one exchange. Times are ages ("seconds
ago" on the sender's monotonic clock), never wall clocks. Each message has a version; unknown fields
are ignored; see docs/architecture.md for the life of an attempt.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from trainrun import wire

VERSION = 1
"""Version of these messages. An operator serves this one and the one before."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CheckpointId:
    """Names a checkpoint of a run; ordered by (attempt, step), which is also "newer than"."""

    attempt: int
    step: int

    @property
    def name(self) -> str:
        """The checkpoint's folder, `step-000001200-attempt-3`."""
        return f"step-{self.step:09d}-attempt-{self.attempt}"


# ------------------------------------------------------------------------- agent -> operator


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How one training process of the agent's attempt ended."""

    rank: int
    """Global rank."""
    code: int | None = None
    """Exit code; absent when a signal ended it."""
    signal: int | None = None
    """The number of the signal that ended it."""
    oom: bool = False
    """The cgroup's OOM counter rose while it died: the kernel killed it for memory."""
    exception: str = ""
    """`ValueError: text` of the uncaught Python exception, where there was one."""
    last_lines: tuple[str, ...] = ()
    """The last lines of its output (at most 20 of at most 400 characters)."""
    yielded: bool = False
    """Exited 0 after `should_save()` was true and without `finish()`: to be continued later."""
    ordered: bool = False
    """The agent ended it on an order: says nothing about the training."""
    age: float = 0.0
    """Seconds since it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedStep:
    """A checkpoint step on this worker's disk."""

    step: int
    ranks: tuple[int, ...] = ()
    """Local ranks' global numbers that brought files."""
    complete: bool = False
    """Every local rank has passed this step: the worker's part is known."""
    uploaded: bool = False
    """The worker's part, done marker included, is in the store."""
    whole: bool = False
    """Reported with whole=True: nobody else is waited for."""
    after_save: bool = False
    """Reported after the save request of this attempt was answered: it is what was asked for."""
    age: float = 0.0
    """Seconds since it was first staged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The newest checkpoint of the attempt whose manifest this agent has written or seen."""

    id: CheckpointId
    size_bytes: int = 0
    age: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveVote:
    """This worker's part in agreeing on the call of `should_save()` that is answered with yes."""

    calls: int = 0
    """Highest number of calls that one of its live ranks has made in this attempt."""
    prepared: int | None = None
    """The call at which its ranks wait for the outcome; binding until committed or aborted."""
    refused: int = 0
    """Highest call that it has refused; it never prepares that or a lower one."""
    refusals: int = 0
    """How often it refused in this attempt: the next call is chosen further ahead."""
    committed: int | None = None
    """From this call on, its ranks are answered with the save request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Somebody told this worker that it will be taken away (SIGTERM, eviction, reclaim)."""

    reason: str
    age: float = 0.0
    remaining: float | None = None
    """Seconds until it is taken away, where known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The master address that slot 0's agent offers; its port was tried by binding."""

    attempt: int
    address: str
    port: int


Outcome = Literal[
    "Resolved",  # `resume` is the resume point (absent: start from nothing) and is claimed
    "Finished",  # the run has finished before
    "InUse",  # another TrainRun owns the storage; it is alive
    "NotEmpty",  # onExisting: Fail, and there is something
    "NoGoodCheckpoint",  # something was committed once, and nothing good is left
    "Behind",  # the store knows `highest_attempt` >= the asked one
    "Unavailable",  # the store cannot be reached now
    "Misconfigured",  # wrong credentials, missing bucket, unsupported server
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What the store answered when this agent claimed the resume point of `attempt`."""

    attempt: int
    outcome: Outcome
    resume: CheckpointId | None = None
    highest_attempt: int = 0
    """The highest attempt number that the store knows."""
    set_aside: tuple[str, ...] = ()
    """Checkpoints found damaged on the way, with reasons."""
    message: str = ""
    age: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A condition of this worker that its user should see; gone when it is over."""

    type: str
    """`CheckpointWaiting`, `ResumeIgnored`, `StorageUnavailable`, ..."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """The resume point turned out to be damaged when it was read."""

    id: CheckpointId
    message: str


Phase = Literal[
    "Idle",  # no process lives and nothing is being flushed: ready for an order
    "Running",  # at least one process of `attempt` lives
    "Flushing",  # no process lives; uploads that the Hold order named are being finished
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """An agent's whole state: the body of a heartbeat."""

    version: int = VERSION
    run: str
    run_uid: str
    slot: int
    worker: str
    """The worker's name, `<run>-<slot>-<creation>`."""
    created_for: int
    agent: str
    """Random identity of this agent process."""
    sequence: int
    """Grows with every heartbeat of this agent; a lower one that arrives late is dropped."""
    node: str = ""
    phase: Phase = "Idle"
    attempt: int = 0
    """The attempt whose processes it runs or ran last; 0 before the first."""
    exits: tuple[ProcessExit, ...] = ()
    """Ended processes of `attempt`."""
    steps: tuple[int | None, ...] = ()
    """Last step reported by each local rank in `attempt`."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Last metrics reported by the lowest local rank, JSON-safe (see `trainrun.metrics`)."""
    staged: tuple[StagedStep, ...] = ()
    """Steps of `attempt` not yet known to be committed, ascending; those with `after_save` stay
    listed until the attempt ends, so that the save is seen however fast it was committed. A worker
    that learned of an open step (Answer.steps) and brings no files lists it with empty `ranks`."""
    dropped: tuple[int, ...] = ()
    """Steps of `attempt` that it dropped on order (the last 64). It never writes a done marker for
    them: a marker without its files would make a checkpoint look complete."""
    committed: Committed | None = None
    save: SaveVote = SaveVote()
    notice: Notice | None = None
    offer: Offer | None = None
    resolution: Resolution | None = None
    problems: tuple[Problem, ...] = ()
    fatal: Problem | None = None
    """An error of the script that no restart can cure (two ranks bring one file name)."""
    damaged: Damaged | None = None
    finished: bool = False
    """Every local rank called `trainrun.finish()`."""
    spawned: float | None = None
    """Seconds since the processes of `attempt` were spawned."""
    first_step: float | None = None
    """Seconds since the first report of `attempt` on this worker."""
    stepped: float | None = None
    """Seconds since the newest report of `attempt` on this worker."""
    stall: float = 0.0
    """Seconds that `report(checkpoint=)` has waited for room in this attempt, on the rank where it
    is most."""
    seen: str = ""
    """Digest of the last answer received: a waiting server answers when it has a different one."""
    serves: str = ""
    """`host:port` where other agents of its node can copy the checkpoint files that it has;
    empty: nowhere."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> "AgentState":
        """Raises wire.MalformedMessage."""
        return wire.decode(AgentState, _parse(text))


# ------------------------------------------------------------------------- operator -> agent


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """Claim the resume point of `attempt` in the store and report it (slot 0's agent only)."""

    attempt: int
    on_existing: Literal["Resume", "Fail"] = "Resume"
    ended: str = ""
    """The incident that ended the attempt before, for the record in the store."""
    committed: CheckpointId | None = None
    """The newest checkpoint that the operator knows to be committed: a store that shows nothing of
    it is not to be taken for an empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """No process of an attempt below `attempt` may run; get ready for it."""

    kind: Literal["Hold"] = "Hold"
    attempt: int
    """The next attempt; the agent offers a master port for it where `offer` says so."""
    flush: tuple[int, ...] = ()
    """Staged steps of the ended attempt that every rank has: finish their uploads first."""
    flush_seconds: float = 0.0
    """How long the uploads may still take; then they are abandoned."""
    offer: bool = False
    resolve: ResolveRequest | None = None


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


Order = Hold | Start | Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOrder:
    """Agree on the call of `should_save()` that is answered with yes."""

    stage: Literal["Prepare", "Commit", "Abort"]
    call: int
    reason: str = ""
    deadline: float | None = None
    """Seconds left to save; absent: unknown."""
    writer_rank: int = 0
    """The lowest rank that is not under notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step of the running attempt for which some worker has files, not yet committed."""

    step: int
    slots: tuple[int, ...] = ()
    """Slots whose part is in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An agent's whole desired state: the answer to a heartbeat."""

    version: int = VERSION
    order: Order
    save: SaveOrder | None = None
    steps: tuple[OpenStep, ...] = ()
    drop: tuple[int, ...] = ()
    """Staged steps to forget: the backlog is full (the same for all ranks)."""
    committed: CheckpointId | None = None
    """The newest commit that the operator has heard of."""
    poll: float = 10.0
    """Seconds after which the agent asks again at the latest."""

    @property
    def digest(self) -> str:
        """What `AgentState.seen` repeats: differs when anything but a remaining time differs."""
        plain = wire.encode(self)
        if plain.get("save"):
            plain["save"].pop("deadline", None)
        plain["order"].pop("flush_seconds", None)
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> "Answer":
        """Raises wire.MalformedMessage."""
        return wire.decode(Answer, _parse(text))


def _parse(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise wire.MalformedMessage(f"not JSON: {error}") from error
