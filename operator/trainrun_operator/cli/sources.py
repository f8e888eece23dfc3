"""Where commands read a run from, wherever it runs or has run; which generation of its folder is
meant, and which checkpoint is its best.

Layer: cli. Nothing is read before it is needed; `finding` decides which source a run has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainrun.checkpoint.inspection import CheckpointInfo
from trainrun.checkpoint.ownership import generations
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.selection import Score
from trainrun.checkpoint.stores.file import FileStore
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.contract import layout
from trainrun.errors import StoreDenied, TrainRunError
from trainrun_operator.api.run.spec import CheckpointSpec
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.place import RunPlace, StatusFile, StatusUnreadable


class UnknownRun(TrainRunError):
    """The run is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run, now or at its end."""

    uid: str
    status: TrainRunStatus
    leader: int | None
    """Process that leads the run; None: no process does."""
    abandoned: bool = False
    """The process of this machine that led it is gone, and no other has taken over."""
    spec: Mapping[str, object] = field(default_factory=dict)
    """As its user wrote it, with defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one run is read from: a folder in a storage, which holds its checkpoints but not its
    state, and the files that this machine keeps about it, if it has started it."""

    name: str
    """The run's folder in its storage."""
    storage: str
    """The storage's URI."""
    endpoint_url: str | None = None
    """Address of an S3-compatible server; absent, as `region`: boto3's usual sources decide."""
    region: str | None = None
    score: Score | None = None
    """How its file ranks the best checkpoints; None: not known, or not at all."""
    place: RunPlace
    """Where this machine keeps its files about the run."""
    store: ObjectStore | None = None
    """Its storage, opened, if it is shared with other runs; None: to be opened."""
    within: str = ""
    """Where `storage` is in `store`, `team/sweep/trials/`, say; empty: `store` is opened there."""
    closed: str = ""
    """Why its storage must not be read; empty: it may be."""

    @property
    def uri(self) -> str:
        """The URI of its folder."""
        return layout.run_uri(self.storage, self.name)

    def known_state(self) -> RunState | None:
        """The state of the run; None if it is not known. Raises StatusUnreadable."""
        try:
            return self.state()
        except UnknownRun:
            return None

    def state(self) -> RunState:
        """Read the state of the run. Raises UnknownRun and StatusUnreadable."""
        run = StatusFile(self.place.status).read()
        if run is None:
            store_of(self)
            raise UnknownRun(
                f"run {self.name} in {self.storage} was never started on this machine "
                f"({self.place.status} does not exist); `trainrun checkpoints` shows what its "
                "storage holds"
            )
        leader = leader_of(self.place.lock)
        return RunState(
            uid=run.uid,
            status=run.status,
            leader=None if leader is None else leader.pid,
            # A trial has no lock: the leader of its sweep leads it.
            abandoned=leader is None and self.place.lock.exists(),
            spec=run.spec.get("spec", {}),
        )

    def checkpoints(self) -> RunStore:
        """Return the store of its checkpoints, without any I/O. Raises StoreMisconfigured, and
        StoreDenied if it must not be read."""
        if self.closed:
            raise StoreDenied(self.closed)
        if self.store is not None:
            return RunStore(self.store, f"{self.within}{self.name}")
        store = open_store(self.storage, endpoint_url=self.endpoint_url, region=self.region)
        return RunStore(store, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource(Source):
    """A TrainRun in a cluster, read with the user's own credentials."""

    known: RunState
    namespace: str
    object_name: str
    """Name of the TrainRun; its folder in the storage may have another name."""
    per_worker: int
    """Processes per worker."""

    def state(self) -> RunState:
        """Return the state that was read."""
        return self.known


def store_of(source: Source) -> RunStore:
    """The store of its checkpoints. Raises UnknownRun if the run was never started here and the
    storage's folder does not exist, and StoreMisconfigured."""
    run = source.checkpoints()
    root = run.store.root if isinstance(run.store, FileStore) else None
    known = isinstance(source, ClusterSource) or source.place.status.exists()
    if root is not None and not known and not root.is_dir():
        raise UnknownRun(
            f"run {source.name} in {source.storage} was never started on this machine, and the "
            f"storage's folder {root} does not exist; is the volume mounted?"
        )
    return run


def never_started(source: Source) -> UnknownRun:
    """The error for a run that has nothing in its storage."""
    return UnknownRun(
        f"run {source.name} in {source.storage} was never started: the storage has nothing of "
        "it. Give <storage URI>/<run name>, the run's folder, its YAML file, or the name of a "
        "TrainRun"
    )


class UnknownGeneration(TrainRunError):
    """The run has no such generation, or no status says which one is its own."""


def generation_of(source: Source, number: int | None, *, certain: bool = False) -> RunStore:
    """The generation with this number; None: the run's own if its status names it, else the newest.

    `certain`: raise instead of taking the newest of several. Raises UnknownGeneration, StoreError.
    """
    run = store_of(source)
    if number is not None:
        return _numbered(generations(run), number)
    own = own_generation(source)
    if own is not None:
        return replace(run, generation=own)
    existing = generations(run)
    if certain and len(existing) > 1:
        listed = ", ".join(f"{each.generation} in {each.uri}" for each in existing)
        raise UnknownGeneration(
            f"{existing[0].uri} has {len(existing)} generations ({listed}), and no status says "
            "which one is meant: give --generation N"
        )
    return existing[-1]


def own_generation(source: Source) -> int | None:
    """The generation that the run uses; None: no status names it, or none was claimed yet."""
    try:
        return source.state().status.storage_generation or None
    except (StatusUnreadable, UnknownRun):
        return None


def _numbered(existing: list[RunStore], number: int) -> RunStore:
    found = next((run for run in existing if run.generation == number), None)
    if found is None:
        noun = "generation" if len(existing) == 1 else "generations"
        raise UnknownGeneration(
            f"{existing[0].uri} has {len(existing)} {noun}, but none with the number {number}"
        )
    return found


def checkpoint_object(info: CheckpointInfo) -> dict[str, object]:
    """A checkpoint in short, for programs."""
    return {
        "name": info.id.name,
        "step": info.id.step,
        "attempt": info.id.attempt,
        "state": info.state,
        "reason": info.reason,
        "committed": info.modified or None,
    }


BEST = "best"
"""Written in place of a step on the command line."""


class UnknownScore(TrainRunError):
    """It is not known which checkpoint is best, or --score cannot be read."""


def score_of(spec: CheckpointSpec) -> Score | None:
    """The score that the file of a run names."""
    if spec.score_metric is None or spec.score_order is None:
        return None
    return Score(metric=spec.score_metric, order=spec.score_order)


def wanted_score(asked: str | None, run: Source) -> Score | None:
    """The score given as `NAME:Max` or `NAME:Min`, or else that of the run's file.

    Raises UnknownScore.
    """
    if asked is None:
        return run.score
    metric, _, order = asked.rpartition(":")
    if metric and order == "Max":
        return Score(metric=metric, order="Max")
    if metric and order == "Min":
        return Score(metric=metric, order="Min")
    raise UnknownScore(f"--score {asked}: write NAME:Max or NAME:Min, such as loss:Min")


def best(found: Iterable[CheckpointInfo], score: Score | None) -> CheckpointInfo | None:
    """The best good checkpoint; None if none has a number for the metric."""
    if score is None:
        return None
    good = {info.id: info for info in found if info.state == "good"}
    values = {
        key: value for key, info in good.items() if (value := score.of(info.metrics)) is not None
    }
    return good[score.best_first(values, values)[0]] if values else None
