"""The state that an agent (one per worker) reports to the operator: the body of each heartbeat.

Layer: contract. Level-triggered: a single heartbeat holds the whole state, so a new operator needs
no earlier ones. Times are ages ("seconds ago" on the sender's monotonic clock), never wall clocks.
Unknown fields are ignored; see docs/architecture.md for the life of an attempt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from trainrun.contract import wire
from trainrun.contract.ages import Age, Changing, Remaining, changed
from trainrun.contract.answer import Recheck
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import CodeFile, Evidence, OutputProgress, Posted, RankConnections
from trainrun.contract.metrics import bounded
from trainrun.contract.staged_parts import CopiedPart, StagedStep
from trainrun.contract.wire import checked


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How one training process of the agent's attempt ended."""

    rank: int
    """Global rank."""
    code: int | None = None
    """Exit code; absent if a signal ended it."""
    signal: int | None = None
    """The number of the signal that ended it."""
    oom: bool = False
    """The cgroup's OOM counter rose while it died: the kernel killed it for memory."""
    exception: str = ""
    """`ValueError: text` of the uncaught Python exception, if there was one."""
    kinds: tuple[str, ...] = ()
    """The exception's class and base classes, each with its module (at most 16 of at most 120
    characters); absent if the process did not report them."""
    raised_at: str = ""
    """`loss.py:88`: where it was raised in the script's own code; absent if not reported."""
    last_lines: tuple[str, ...] = ()
    """The last lines of its output (at most 20 of at most 400 characters)."""
    yielded: bool = False
    """Exited 0 after `should_save()` was true and without `finish()`: the run continues later."""
    ordered: bool = False
    """The agent ended it on an order, or had sent it SIGTERM before: its exit says nothing about
    the training, which may or may not have been done."""
    age: Age = 0.0
    """Seconds since it ended."""

    @property
    def well(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.code == 0 and not self.ordered

    @property
    def failed(self) -> bool:
        """Whether it ended by itself in any other way."""
        return self.code != 0 and not self.ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The newest checkpoint of the attempt whose manifest this agent has written or read."""

    id: CheckpointId
    size_bytes: int = 0
    age: Age = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveVote:
    """This worker's vote on the call of `should_save()` at which all ranks save."""

    calls: int = 0
    """Highest number of calls by any of its live ranks in this attempt."""
    prepared: int | None = None
    """The call at which its ranks wait for the outcome; binding until committed or aborted."""
    refused: int = 0
    """Highest call that it has refused; it never prepares this or a lower one."""
    refusals: int = 0
    """Number of refusals in this attempt: each makes the operator choose a call further ahead."""
    committed: int | None = None
    """From this call on, its ranks receive the save request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice that this worker will be taken away (SIGTERM, eviction, reclaim)."""

    reason: str
    age: Age = 0.0
    remaining: Remaining | None = None
    """Seconds until it is taken away, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The master address that slot 0's agent offers; it has tested the port by binding it."""

    attempt: int
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A checkpoint that does not read correctly on this node, although the listing looks right."""

    id: CheckpointId
    files: tuple[str, ...]
    """The objects in its folder that do not match."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rechecked:
    """The result of an order to read a checkpoint again."""

    recheck: Recheck
    good: bool
    """It reads as it was written; otherwise the checkpoint has been set aside."""
    message: str = ""
    """The damage."""


Outcome = Literal[
    "Resolved",  # `resume` is the resume point (absent: start from scratch) and is claimed
    "Finished",  # the run has already finished
    "InUse",  # another TrainRun owns the storage; it is alive
    "NotEmpty",  # onExisting: Fail, and the folder is in use; or a trial with other parameters
    "NoGoodCheckpoint",  # a checkpoint was committed once, and no good one is left
    "Suspect",  # this node cannot read `suspect`: another node must read it
    "Behind",  # the store has `highest_attempt` >= the requested one
    "Unavailable",  # the store cannot be reached now
    "Misconfigured",  # wrong credentials, missing bucket, unsupported server
    "Looked",  # nothing was claimed, as requested: see `owner`
]
OwnerLife = Literal[
    "Unknown",  # not watched for long enough
    "Moves",  # its beat changes
    "Still",  # its beat has not changed for the lease of `trainrun.checkpoint.ownership`
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The result of claiming the resume point of `attempt`, or of checking that this agent can read
    it (`ResolveRequest.proof`)."""

    attempt: int
    outcome: Outcome
    resume: CheckpointId | None = None
    highest_attempt: int = 0
    """The highest attempt number in the store."""
    set_aside: tuple[str, ...] = ()
    """Checkpoints found damaged on the way, with reasons."""
    trial_of: CheckpointId | None = None
    """The newest checkpoint, if `resume` is the one before it (`ResolveRequest.trial_of`)."""
    staged: bool = False
    """`resume` is that of `ResolveRequest.staged`: it has no manifest yet."""
    message: str = ""
    suspect: Suspect | None = None
    generation: int = 1
    """The generation of its folder that the run uses, if the store answered."""
    run_id: str = ""
    """The run's id, if it is resolved."""
    owner: OwnerLife = "Unknown"
    """Whether the owner of the storage shows life, if `ResolveRequest.look` was set."""
    age: Age = 0.0


REFUSED = "Refused"
"""Reason of the problem `StorageUnavailable` of a worker whose processes wait for a checkpoint that
the store refuses to let it read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A condition of this worker for its user; removed when it is over."""

    type: str
    """`CheckpointWaiting`, `ResumeIgnored`, `StorageUnavailable`, ..."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """The resume point is damaged, according to the listing or a record in the store."""

    id: CheckpointId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LongSection:
    """A part of the script, declared by a rank, in which no step ends."""

    rank: int
    name: str
    timeout: float
    """Seconds that it may take."""
    lasts: float = 0.0
    """Seconds that it had taken when this was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A rank's pace over the last minutes; medians."""

    step: float
    """Seconds per step."""
    busy: float
    """Fraction of the time in which its process and all its descendants computed or waited for a
    CPU; above 1 if several did so at once."""


Phase = Literal[
    "Idle",  # no live process and no flush: `held` is the attempt that it is ready for
    "Running",  # at least one process of `attempt` is alive
    "Flushing",  # no live process; the uploads named in the Hold order are in progress
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The Hold order that an agent carries out; the agent's phase shows whether it is done."""

    attempt: int = 0
    """0: there is no such order."""
    number: int = 0
    flush: tuple[int, ...] = ()
    in_place: bool = False
    stand_in: tuple[int, ...] = ()


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
    """Grows with each heartbeat of this agent; a lower one that arrives late is dropped."""
    node: str = ""
    phase: Phase = "Idle"
    attempt: int = 0
    """The attempt whose processes it is running or ran last; 0 before the first."""
    exits: tuple[ProcessExit, ...] = ()
    """Ended processes of `attempt`."""
    steps: Changing[tuple[int | None, ...]] = ()
    """Last step reported by each local rank in `attempt`."""
    passed: Changing[int] = -1
    """Newest step of `attempt` that is final on all local ranks: each has reported its files, or
    that it has none, or a later step, or has ended well. -1: none. Where several workers have a
    script's folder each: above every step once nothing more comes from this one; until then
    `StagedStep.complete` alone tells, for each step by itself."""
    metrics: Changing[dict[str, Any]] = field(default_factory=dict)
    """Last metrics reported by the lowest local rank, JSON-safe (see `contract.metrics`)."""
    posted: Changing[Posted | None] = None
    """From slot 0: progress posted by a framework in `attempt`. For display only."""
    output: OutputProgress | None = None
    """Progress that the output of one of its ranks shows in `attempt`."""
    staged: tuple[StagedStep, ...] = ()
    """Steps of `attempt` not yet known to be committed, ascending; those with `after_save` stay
    listed until the attempt ends. A worker without files for an open step (Answer.steps) lists it
    with empty `ranks`."""
    dropped: tuple[int, ...] = ()
    """Steps of `attempt` that it dropped on order (the last 64). It never writes a done marker for
    them: a marker without its files would make a checkpoint look complete."""
    holds: tuple[CheckpointId, ...] = ()
    """Checkpoints of which this worker has its part: described and on its disk, or stored."""
    copies: tuple[CopiedPart, ...] = ()
    """Parts of other workers, saved in `attempt`, of which it has copies or makes them."""
    committed: Committed | None = None
    save: SaveVote = SaveVote()
    notice: Notice | None = None
    held: Held = Held()
    code: tuple[CodeFile, ...] | None = None
    """The code that its processes run; during a Hold, the code that they would run now. Empty: the
    command names no script that exists. Absent: not examined yet."""
    offer: Offer | None = None
    resolution: Resolution | None = None
    problems: tuple[Problem, ...] = ()
    fatal: Problem | None = None
    """A problem that a restart cannot cure: two ranks save the same file name, or another TrainRun
    owns the storage."""
    damaged: Damaged | None = None
    suspect: Suspect | None = None
    """This node misreads the resume point of `attempt`: processes wait for a second reader."""
    rechecked: Rechecked | None = None
    """The result of the last `Answer.recheck`."""
    evidence: Evidence | None = None
    """The result of the last `Answer.evidence`, for `attempt`."""
    recorded: tuple[int, ...] = ()
    """Numbers of `Answer.story` that are in the store."""
    finished: bool = False
    """All local ranks called `trainrun.finish()`."""
    asked_for_checkpoint: Changing[bool] = False
    """A process of `attempt` called `trainrun.get_checkpoint()`."""
    spawned: Age | None = None
    """Seconds since the processes of `attempt` were spawned."""
    first_step: Age | None = None
    """Seconds since the first report of `attempt` on this worker."""
    stepped: Age | None = None
    """Seconds since the newest report of `attempt` on this worker."""
    owes: Changing[float | None] = None
    """Seconds for which a step of `attempt` was due when this was sent: since the newest report,
    the end of a wait for the agent or of a long section, or the spawn. Absent while the processes
    wait for their agent or are in a section, and if none is alive. Unlike an age it does not grow
    in a stored message: a report may have come since the agent's last heartbeat."""
    slowest: Changing[float] = 0.0
    """Longest time in seconds for which a step of `attempt` was due, without the worker's first
    step. 0: not known."""
    quiet: Changing[float | None] = None
    """Seconds for which the processes of `attempt` and their descendants had used almost no CPU and
    I/O when this was sent. Absent: not known."""
    paces: Changing[tuple[Pace | None, ...]] = ()
    """Pace of each local rank that was measured for a minute; empty: of none."""
    meeting: RankConnections | None = None
    """The connections of `attempt`, if it has several processes. Absent: not observed."""
    section: Changing[LongSection | None] = None
    """The open long section that times out first, or has been over its timeout longest."""
    stall: Changing[float] = 0.0
    """Seconds for which `report(checkpoint=)` has waited for room, on the rank that waited most."""
    saves: Changing[int] = 0
    """Checkpoints that a rank of `attempt` has reported: the one with the most."""
    save_cost: Changing[float] = 0.0
    """Mean seconds by which a save has made its step longer, on the slowest rank; 0: not known."""
    rendezvous: Changing[float] = 0.0
    """Seconds from the spawn of the processes of `attempt` to `get_checkpoint()`; 0: no call."""
    imports: Changing[float] = 0.0
    """Seconds from the spawn of the processes of `attempt` until the last of those that contacted
    the agent had imported trainrun; 0: none has."""
    import_bytes: Changing[int] = 0
    """Maximum memory of a process of `attempt` after it imported trainrun; 0: not known."""
    warm: Changing[int] = 0
    """Number of processes of `attempt` that started from a standby interpreter."""
    cold: Changing[str] = ""
    """Why a process of `attempt` did not start from a standby, with its rank; empty: all did, or
    the run keeps none."""
    standby_bytes: Changing[int] = 0
    """Maximum memory of a standby interpreter of this worker when it was ready; 0: not known."""
    load: Changing[float] = 0.0
    """Seconds from the first request for a checkpoint until the last process had it."""
    ask_gap: Changing[float] = 0.0
    """Maximum seconds from a rank's call of `should_save()` to its next, or now; 0: at most one."""
    fewest_calls: Changing[int] = 0
    """Calls of `should_save()` in this attempt by the live rank with the fewest calls."""
    ask_pause: Changing[float] = 0.0
    """Seconds since the last call of that rank, or since it was first seen."""
    seen: Changing[str] = ""
    """Digest of the last answer received: a waiting server replies when it has a different one."""
    serves: str = ""
    """`host:port` where other agents of its node can copy its checkpoint files; empty: nowhere."""
    serves_tls: str = ""
    """The same for agents of other nodes, by TLS; empty: it has no certificate."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> AgentState:
        """Raises wire.MalformedMessage."""
        return AgentState.read(wire.parsed(text))

    @staticmethod
    def read(message: object) -> AgentState:
        """Read parsed JSON. Cleans texts and bounds metrics: the content comes from a script.

        Raises wire.MalformedMessage.
        """
        state = wire.decode(AgentState, message, check=checked)
        if (posted := state.posted) is not None and posted.metrics:
            state = changed(state, posted=replace(posted, metrics=bounded(posted.metrics)))
        if (output := state.output) is not None and output.metrics:
            state = changed(state, output=replace(output, metrics=bounded(output.metrics)))
        return changed(state, metrics=bounded(state.metrics)) if state.metrics else state
