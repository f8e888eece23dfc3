"""What an agent (one per worker) tells the operator: its whole state, the body of each heartbeat.

Layer: contract. Level-triggered: whoever has forgotten everything has caught up after one of them.
Times are ages ("seconds ago" on the sender's monotonic clock), never wall clocks. Unknown fields
are ignored; see docs/architecture.md for the life of an attempt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from trainrun.contract import wire
from trainrun.contract.ages import Age, Changing, Remaining, changed
from trainrun.contract.answer import Recheck
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import CodeFile, Evidence, Posted, RankConnections
from trainrun.contract.metrics import bounded
from trainrun.contract.wire import checked


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
    kinds: tuple[str, ...] = ()
    """The exception's class and its bases, each with its module (at most 16 of at most 120
    characters); absent where its process could not tell."""
    raised_at: str = ""
    """`loss.py:88`, where it was raised in the script's own code; absent where nobody told."""
    last_lines: tuple[str, ...] = ()
    """The last lines of its output (at most 20 of at most 400 characters)."""
    yielded: bool = False
    """Exited 0 after `should_save()` was true and without `finish()`: to be continued later."""
    ordered: bool = False
    """The agent ended it on an order, or had sent it SIGTERM before: however it ended, it says
    nothing about the training, and nobody knows whether it was done."""
    age: Age = 0.0
    """Seconds since it ended."""

    @property
    def well(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.code == 0 and not self.ordered

    @property
    def failed(self) -> bool:
        """It ended by itself, in any other way."""
        return self.code != 0 and not self.ordered


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
    age: Age = 0.0
    """Seconds since it was first staged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The newest checkpoint of the attempt whose manifest this agent has written or seen."""

    id: CheckpointId
    size_bytes: int = 0
    age: Age = 0.0


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
    age: Age = 0.0
    remaining: Remaining | None = None
    """Seconds until it is taken away, where known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The master address that slot 0's agent offers; its port was tried by binding."""

    attempt: int
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A checkpoint that reads wrongly on this node, although the listing shows nothing wrong."""

    id: CheckpointId
    files: tuple[str, ...]
    """The objects in its folder that do."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rechecked:
    """What came of an order to read again."""

    recheck: Recheck
    good: bool
    """Read as it was written; otherwise the checkpoint is set aside by now."""
    message: str = ""
    """What is wrong."""


Outcome = Literal[
    "Resolved",  # `resume` is the resume point (absent: start from nothing) and is claimed
    "Finished",  # the run has finished before
    "InUse",  # another TrainRun owns the storage; it is alive
    "NotEmpty",  # onExisting: Fail, and there is something; or a trial of other parameters
    "NoGoodCheckpoint",  # something was committed once, and nothing good is left
    "Suspect",  # `suspect` reads wrongly here: another node is to read it
    "Behind",  # the store knows `highest_attempt` >= the asked one
    "Unavailable",  # the store cannot be reached now
    "Misconfigured",  # wrong credentials, missing bucket, unsupported server
    "Looked",  # nothing was claimed, as it was asked: `owner` says what was seen
]
OwnerLife = Literal[
    "Unknown",  # not looked at for long enough
    "Moves",  # its beat changes
    "Still",  # its beat has not changed for the lease of `trainrun.checkpoint.ownership`
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What the store answered when this agent claimed the resume point of `attempt`, or showed that
    it can read it (`ResolveRequest.proof`)."""

    attempt: int
    outcome: Outcome
    resume: CheckpointId | None = None
    highest_attempt: int = 0
    """The highest attempt number that the store knows."""
    set_aside: tuple[str, ...] = ()
    """Checkpoints found damaged on the way, with reasons."""
    trial_of: CheckpointId | None = None
    """The newest checkpoint, where `resume` is the one before it (`ResolveRequest.trial_of`)."""
    message: str = ""
    suspect: Suspect | None = None
    generation: int = 1
    """In which generation of its folder the run is, where the store answers."""
    run_id: str = ""
    """The run's id, where it is resolved."""
    owner: OwnerLife = "Unknown"
    """Whether the owner of the storage shows life, where a look was asked for."""
    age: Age = 0.0


REFUSED = "Refused"
"""Reason of the problem `StorageUnavailable` of a worker whose processes wait for a checkpoint that
the store does not let it read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A condition of this worker that its user should see; gone when it is over."""

    type: str
    """`CheckpointWaiting`, `ResumeIgnored`, `StorageUnavailable`, ..."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """The resume point is damaged, as the listing shows or somebody has recorded in the store."""

    id: CheckpointId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LongSection:
    """A part of the script, declared by a rank, in which no step ends."""

    rank: int
    name: str
    timeout: float
    """Seconds that it may take at most."""
    lasts: float = 0.0
    """Seconds that it has taken when this was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a rank has worked for the last minutes; medians."""

    step: float
    """Seconds of a step."""
    busy: float
    """Part of the time for which its process, and all that this has started, has computed or waited
    for a CPU; above 1 where several do so at a time."""


Phase = Literal[
    "Idle",  # no process lives and nothing is being flushed: `held` says what it is ready for
    "Running",  # at least one process of `attempt` lives
    "Flushing",  # no process lives; uploads that the Hold order named are being finished
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The Hold order that an agent carries out; the agent's phase says whether it is done."""

    attempt: int = 0
    """0: it has none now."""
    number: int = 0
    flush: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """An agent's whole state: the body of a heartbeat."""

    version: int = wire.VERSION
    run: str
    run_uid: str
    slot: int
    worker: str
    """The worker's name, `<run>-<slot>-<creation>`."""
    created_for: int
    agent: str
    """Random identity of this agent process."""
    sequence: Changing[int]
    """Grows with every heartbeat of this agent; a lower one that arrives late is dropped."""
    node: str = ""
    phase: Phase = "Idle"
    attempt: int = 0
    """The attempt whose processes it runs or ran last; 0 before the first."""
    exits: tuple[ProcessExit, ...] = ()
    """Ended processes of `attempt`."""
    steps: Changing[tuple[int | None, ...]] = ()
    """Last step reported by each local rank in `attempt`."""
    passed: Changing[int] = -1
    """Newest step of `attempt` for which nothing more comes from its ranks: each has brought files
    for it or said that it has none, or has reported a later one, or has ended well. -1: none."""
    metrics: Changing[dict[str, Any]] = field(default_factory=dict)
    """Last metrics reported by the lowest local rank, JSON-safe (see `contract.metrics`)."""
    posted: Changing[Posted | None] = None
    """Slot 0's: what a framework has posted in `attempt`. For display alone."""
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
    held: Held = Held()
    code: tuple[CodeFile, ...] | None = None
    """What its processes run; while it holds, what they would run now. Empty: the command names no
    script that can be found. Absent: it has not looked yet."""
    offer: Offer | None = None
    resolution: Resolution | None = None
    problems: tuple[Problem, ...] = ()
    fatal: Problem | None = None
    """What no restart can cure: two ranks bring one file name; the storage is another's."""
    damaged: Damaged | None = None
    suspect: Suspect | None = None
    """The resume point of `attempt` reads wrongly here: its processes wait for a second reader."""
    rechecked: Rechecked | None = None
    """What the last `Answer.recheck` has led to."""
    evidence: Evidence | None = None
    """What the last `Answer.evidence` has led to, of `attempt`."""
    recorded: tuple[int, ...] = ()
    """Numbers of `Answer.story` that are in the store."""
    finished: bool = False
    """Every local rank called `trainrun.finish()`."""
    asked_for_checkpoint: Changing[bool] = False
    """A process of `attempt` called `trainrun.get_checkpoint()`."""
    spawned: Age | None = None
    """Seconds since the processes of `attempt` were spawned."""
    first_step: Age | None = None
    """Seconds since the first report of `attempt` on this worker."""
    stepped: Age | None = None
    """Seconds since the newest report of `attempt` on this worker."""
    owes: Changing[float | None] = None
    """Seconds for which the processes of `attempt` had owed a step when this was told: since the
    newest report, the end of a wait for the agent or of a long section, or the spawn. Absent while
    they wait for their agent or are in a section, and where none of them lives. Unlike an age it
    does not grow in what was kept: of what an agent has not told nobody knows that nothing came."""
    slowest: Changing[float] = 0.0
    """Seconds for which a step of `attempt` was owed at most before it came, the first one of the
    worker not counted. 0: nobody knows."""
    quiet: Changing[float | None] = None
    """Seconds for which the processes of `attempt`, with all that they have started, had used next
    to no CPU and I/O when this was told. Absent: nobody knows."""
    paces: Changing[tuple[Pace | None, ...]] = ()
    """Of each local rank, where its agent has measured it for a minute; empty: of none."""
    meeting: RankConnections | None = None
    """Of `attempt`, where it has several processes. Absent: nobody looks."""
    section: Changing[LongSection | None] = None
    """The open long section whose time is over first, or has been over longest."""
    stall: Changing[float] = 0.0
    """Seconds that `report(checkpoint=)` has waited for room in this attempt, on the rank where it
    is most."""
    rendezvous: Changing[float] = 0.0
    """Seconds from the spawn of the processes of `attempt` until one of them asked for a
    checkpoint; 0: none has."""
    imports: Changing[float] = 0.0
    """Seconds from the spawn of the processes of `attempt` until the last of them that has spoken
    to its agent had imported trainrun; 0: none has."""
    import_bytes: Changing[int] = 0
    """Memory of a process of `attempt` when it had imported trainrun, at most; 0: nobody knows."""
    warm: Changing[int] = 0
    """Processes of `attempt` that a standby interpreter became."""
    cold: Changing[str] = ""
    """Why a process of `attempt` did not begin as a standby, with its rank; empty: all did, or the
    run keeps none."""
    standby_bytes: Changing[int] = 0
    """Memory of a standby interpreter of this worker when it was ready, at most; 0: nobody
    knows."""
    load: Changing[float] = 0.0
    """Seconds from then until the last of them had it."""
    ask_gap: Changing[float] = 0.0
    """Seconds between two calls of `should_save()` of one rank in this attempt, at most; the time
    since its last one included. 0: a second or less, or none has asked."""
    fewest_calls: Changing[int] = 0
    """Calls of `should_save()` in this attempt by the living rank that has made fewest."""
    ask_pause: Changing[float] = 0.0
    """Seconds since that rank has made the last of them, or was first seen."""
    seen: Changing[str] = ""
    """Digest of the last answer received: a waiting server answers when it has a different one."""
    serves: str = ""
    """`host:port` where other agents of its node can copy the checkpoint files that it has;
    empty: nowhere."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> AgentState:
        """Raises wire.MalformedMessage."""
        return AgentState.read(wire.parsed(text))

    @staticmethod
    def read(message: object) -> AgentState:
        """From JSON that has been parsed. Texts are cleaned and metrics bounded: nobody vouches
        for what a script writes.

        Raises wire.MalformedMessage.
        """
        state = wire.decode(AgentState, message, check=checked)
        if state.posted is not None and state.posted.metrics:
            posted = replace(state.posted, metrics=bounded(state.posted.metrics))
            state = changed(state, posted=posted)
        return changed(state, metrics=bounded(state.metrics)) if state.metrics else state
