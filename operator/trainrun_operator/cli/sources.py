"""What the verbs that look at a run read from, wherever it runs or has run.

Layer: cli. Nothing is read before it is asked for. A run of another place (a cluster) is one more
`Source`; `finding` decides which one a run has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.selection import Score
from trainrun.errors import TrainRunError
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.place import RunPlace, StatusFile


class UnknownRun(TrainRunError):
    """Nothing is known of the run that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run as it is now, or was when it ended."""

    uid: str
    status: TrainRunStatus
    leader: int | None
    """Process that leads the run; None: nobody does."""
    left: bool = False
    """Whoever led it on this machine is gone, and nobody has taken over."""


class Source(Protocol):
    """Where one run is read from."""

    @property
    def name(self) -> str:
        """The run's folder in its storage."""

    @property
    def storage(self) -> str:
        """The storage's URI."""

    @property
    def score(self) -> Score | None:
        """By which its file says the best checkpoints are kept; None: not known, or none."""

    def state(self) -> RunState:
        """Read how the run fares. Raises UnknownRun and StatusUnreadable."""

    def checkpoints(self) -> RunStore:
        """Return where its checkpoints lie, without any I/O. Raises StoreMisconfigured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSource:
    """A folder in a storage: it holds checkpoints, and nothing says how the run fares."""

    name: str
    storage: str
    endpoint_url: str | None = None
    """Address of an S3-compatible server; absent, as `region`: boto3's usual sources decide."""
    region: str | None = None
    score: Score | None = None
    place: RunPlace
    """Where this machine keeps what it knows of the run, if it has started it."""

    def state(self) -> RunState:
        """Raise UnknownRun."""
        raise UnknownRun(
            f"run {self.name} in {self.storage} was never started on this machine "
            f"({self.place.status} does not exist); `trainrun checkpoints` shows what its "
            "storage holds"
        )

    def checkpoints(self) -> RunStore:
        """See `Source`."""
        store = open_store(self.storage, endpoint_url=self.endpoint_url, region=self.region)
        return RunStore(store, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A run whose storage is known, and more than that."""

    stored: StorageSource

    @property
    def name(self) -> str:
        """See `Source`."""
        return self.stored.name

    @property
    def storage(self) -> str:
        """See `Source`."""
        return self.stored.storage

    @property
    def score(self) -> Score | None:
        """See `Source`."""
        return self.stored.score

    def checkpoints(self) -> RunStore:
        """See `Source`."""
        return self.stored.checkpoints()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSource(_Known):
    """A run that was started on this machine."""

    def state(self) -> RunState:
        """See `Source`."""
        run = StatusFile(self.stored.place.status).read()
        if run is None:  # removed since it was found
            return self.stored.state()
        lock = self.stored.place.lock
        leader = leader_of(lock)
        return RunState(
            uid=run.uid,
            status=run.status,
            leader=None if leader is None else leader.pid,
            left=leader is None and lock.exists(),  # a trial has none: who leads the sweep leads it
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource(_Known):
    """A TrainRun in a cluster, as it was read there with the user's own credentials."""

    known: RunState
    namespace: str
    object_name: str
    """Of the TrainRun, which its folder in the storage need not have."""
    per_worker: int
    """Processes of each worker."""

    def state(self) -> RunState:
        """See `Source`."""
        return self.known
