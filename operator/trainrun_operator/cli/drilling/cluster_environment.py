"""A drill in a cluster: runs of its own next to the user's, disturbed through the Kubernetes API.

Layer: cli. With the user's own rights: workers are deleted, at once or with their grace. Faults
that need more rights are not rehearsed here. Invariant: a run removed as a leftover was made by a
drill, ended so long ago that this drill would have removed it, and no other run has ever used its
folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.checkpoint.ownership import claimants
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import InvalidSpec, StoreError, StoreUnavailable, TrainRunError
from trainrun_operator.api.resources import TRAINRUN, TrainRun
from trainrun_operator.api.run.spec import MAX_NAME
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli.ctrl_c import on_interrupt
from trainrun_operator.cli.drilling.rehearsal import DrillEnvironment, offline, survives
from trainrun_operator.cli.drilling.run_monitor import StatusPoller, ended, with_stored
from trainrun_operator.cli.drilling.runs import DrillRun, FaultName, Goal, Scenario, second
from trainrun_operator.cli.finding import cluster_source
from trainrun_operator.core.run.stages.preempting import UNASKED
from trainrun_operator.worlds.kubernetes.own_run import OwnRun, users_cluster
from trainrun_operator.worlds.kubernetes.run_object import RunVersion
from trainrun_operator.worlds.local.program import training_container

IN_CLUSTER: tuple[FaultName, ...] = ("KillAfterCheckpoint", "Notice", "KillBeforeCheckpoint")
"""Faults that deleting a worker can make, in the order of rehearsal."""

REMOVING = 60.0
"""Seconds, in addition to the grace of its workers, that the removal of a run may take."""

NOTE = (
    "in the cluster, workers are deleted at once (kill) or with their grace (notice). Kills "
    "while saving, ranks that report nothing, and how often should_save() is called can only be "
    "checked on one machine: `trainrun drill` without --cluster"
)
WHY_NOT = (
    "this fault needs more than the right to delete pods: rehearse it on one machine, without "
    "--cluster"
)


@dataclass(kw_only=True)
class ClusterEnvironment(DrillEnvironment):
    """See `DrillEnvironment`."""

    run: TrainRun
    """The run as in its file."""
    say: Callable[[str], None]
    notes: ClassVar = (NOTE,)
    usual: ClassVar = IN_CLUSTER
    _token: str = field(default_factory=lambda: secrets.token_hex(2))
    _made: list[str] = field(default_factory=list)
    """Names of all runs and of their folders."""

    def possible(self, scenario: Scenario, control: DrillRun, *, until: int) -> Scenario:
        """See `DrillEnvironment`: steps are seen late, so faults strike as early as they make
        sense."""
        if scenario.name not in IN_CLUSTER:
            return Scenario(name=scenario.name, why_not=WHY_NOT)
        saves = [step for step in control.committed if step < until]
        if not scenario.faults:
            return scenario
        (fault,) = scenario.faults
        if scenario.name == "KillBeforeCheckpoint":
            return replace(scenario, faults=(replace(fault, step=0),))
        step = second(saves) + 1 if saves else fault.step
        return replace(scenario, faults=(replace(fault, step=step),))

    def try_run(self, scenario: Scenario | None, goal: Goal) -> DrillRun:
        """See `DrillEnvironment`."""
        return until_interrupted(self._try_run(scenario, goal))

    def check(self) -> None:
        """Report now what would be missing later. Raises InvalidSpec, StoreError, KubeError."""
        until_interrupted(self._check())

    def sweep(self) -> None:
        """Remove what workers stored after their run was removed: workers deleted by force still
        use their grace."""
        try:
            for name in self._made:
                self._empty(name)
        finally:
            self._store.close()

    async def _check(self) -> None:
        async with users_cluster() as cluster:
            namespace = cluster.namespace_of(self.run)
            missing = await cluster.missing_rights(namespace)
        if missing:
            raise InvalidSpec(
                f"a drill in namespace {namespace} needs rights that you do not have there: "
                f"{', '.join(missing)}. Ask for them, or rehearse on this machine, without "
                "--cluster"
            )
        try:
            await asyncio.to_thread(self._empty, drill_name(self.run, 0, self._token))
        except StoreError as error:
            raise type(error)(
                f"{error}. A drill reads metrics and checkpoints in {self.run.spec.storage.uri} "
                "from this machine, with your own credentials, and removes them at the end"
            ) from error
        await self._remove_left_behind(namespace)

    async def _remove_left_behind(self, namespace: str) -> None:
        """Remove what killed drills of this run have left; errors are only reported."""
        try:
            async with users_cluster() as cluster:
                for made in await cluster.runs_with(namespace, LABEL, self.run.metadata.name):
                    folder = RunStore(self._store, made.run.metadata.name)
                    left = is_left_behind(made, of=self.run)
                    if not left or not await asyncio.to_thread(is_its_own, folder, made.uid):
                        continue
                    await asyncio.to_thread(self._empty, folder.run_name)
                    # Last: only the run shows whose folder that is.
                    await cluster.delete_run(made)
                    self.say(f"removed {folder.uri} and its run, left by a drill that was killed")
        except TrainRunError as error:
            self.say(f"leftovers of killed drills may still be there: {error}")

    async def _try_run(self, scenario: Scenario | None, goal: Goal) -> DrillRun:
        started = time.monotonic()
        faults = scenario.faults if scenario is not None else ()
        name = drill_name(self.run, len(self._made) + 1, self._token)
        self._made.append(name)
        poller = StatusPoller(
            until=goal.until, share=goal.share, fault=faults[0] if faults else None
        )
        try:
            async with users_cluster() as cluster:
                document = drill_document(
                    self.run,
                    name=name,
                    namespace=cluster.namespace_of(self.run),
                    faults=len(faults),
                    seconds=goal.seconds,
                )
                own = cluster.own_run(document)
                try:
                    version = await self._let_run(own, poller, goal.seconds)
                finally:
                    await self._remove(own)
            took = time.monotonic() - started
            return await asyncio.to_thread(drill_run_of, version, poller, seconds=took)
        finally:
            await asyncio.to_thread(self._empty, name)

    async def _let_run(self, own: OwnRun, poller: StatusPoller, seconds: float) -> RunVersion:
        """Let it run for at most `seconds`; return its last version. Raises KubeError, InvalidSpec,
        StoreError."""
        deadline = time.monotonic() + seconds
        version = await own.create()
        while time.monotonic() < deadline and not version.status.finished:
            due = poller.due(version.status, await self._saved(own))
            if due == "Stop":
                break
            if due == "Strike":
                poller.struck = await _strike(own, poller, version)
            await asyncio.sleep(LOOK)
            version = await own.read() or version
        if not version.status.finished:
            await own.suspend()
        return await self._wait_for_end(own, version)

    async def _saved(self, own: OwnRun) -> list[CheckpointId]:
        try:
            found = await asyncio.to_thread(list_checkpoints, RunStore(self._store, own.name))
        except StoreUnavailable:
            return []
        return [info.id for info in found if info.state == "good"]

    async def _wait_for_end(self, own: OwnRun, version: RunVersion) -> RunVersion:
        """Wait until nothing runs and everything is stored that workers had to store."""
        deadline = time.monotonic() + self._grace + ENDING
        while time.monotonic() < deadline:
            version = await own.read() or version
            is_over = version.status.finished or version.status.is_true("Suspended")
            if is_over and not await own.works():
                break
            await asyncio.sleep(LOOK)
        return version

    async def _remove(self, own: OwnRun) -> None:
        left = f"remove it: kubectl --namespace {own.namespace} delete trainrun {own.name}"
        try:
            if not await own.remove(patience=self._grace + REMOVING):
                self.say(f"{own.name} or its pods are still there; {left}")
        except (asyncio.CancelledError, TrainRunError):
            self.say(f"{own.name} may still be there; {left}")
            raise

    def _empty(self, name: str) -> None:
        """Remove a run's folder from the storage. Raises StoreError."""
        folder = RunStore(self._store, name)
        folder.delete([item.key for item in folder.objects("")])
        folder.store.abort_uploads(folder.key(""), of=lambda _key: True)

    @cached_property
    def _store(self) -> ObjectStore:
        """One for all runs: making an S3 client takes 0.1 s and megabytes. Raises
        StoreMisconfigured."""
        at = self.run.spec.storage
        return open_store(at.uri, endpoint_url=at.endpoint_url, region=at.region)

    @property
    def _grace(self) -> float:
        return float(self.run.spec.workers.template.spec.grace)


@contextmanager
def cluster_environment(
    run: TrainRun, *, say: Callable[[str], None]
) -> Iterator[ClusterEnvironment]:
    """In the cluster of the user's kubeconfig, with nothing left at the end. Raises as `check`."""
    environment = ClusterEnvironment(run=run, say=say)
    environment.check()
    try:
        yield environment
    finally:
        with contextlib.suppress(StoreError):
            environment.sweep()


LOOK = 0.5
"""Seconds between two looks at the run."""
ENDING = 30.0
"""Seconds, in addition to the grace of its workers, that a suspended run may take to end."""


async def _strike(own: OwnRun, poller: StatusPoller, version: RunVersion) -> bool:
    """Delete the worker; return whether it was there."""
    fault = poller.fault
    assert fault is not None
    slot = fault.rank // version.config.processes_per_worker
    return await own.delete_pod(slot, grace=0 if fault.kind == "kill" else None)


def drill_run_of(version: RunVersion, poller: StatusPoller, *, seconds: float) -> DrillRun:
    """What was observed of the run. Raises StoreError."""
    ranks = range(version.run.spec.workers.replicas * version.config.processes_per_worker)
    ending, failure = ended(version.status, goal_reached=poller.goal_reached)
    observed = DrillRun(
        ending=ending,
        world_size=len(ranks),
        seconds=seconds,
        committed=tuple(sorted(poller.committed)),
        has_heartbeats=False,
        struck=poller.struck,
        failure=failure,
    )
    drill_run = with_stored(observed, cluster_source(version))
    attempts = frozenset(chapter.attempt for chapter in drill_run.chapters)
    return replace(
        drill_run,
        # The status has one step for all ranks.
        reported={
            chapter.attempt: dict.fromkeys(ranks, chapter.reached)
            for chapter in drill_run.chapters
            if chapter.reached is not None
        },
        sought=attempts,
        # A note names the attempts that never called should_save().
        asked=attempts
        - {
            chapter.attempt
            for chapter in drill_run.chapters
            for note in chapter.notes
            if UNASKED in note.message
        },
        opened=frozenset(
            chapter.attempt for chapter in drill_run.chapters if chapter.rendezvous_seconds
        ),
    )


LABEL = "trainrun.dev/drill"
"""Label of a drill's runs: the name of the run that is rehearsed."""
OFFLINE = offline("file:///tmp/mlruns")
"""Trackers write inside the pod."""
LEFT_BEHIND = 120.0
"""Seconds after its time when the operator ends a run whose drill was killed."""
MARK_KEPT = "168h"
"""How long after its end the run keeps its drill mark, so that a later drill may remove its
folder."""


def drill_name(run: TrainRun, number: int, token: str) -> str:
    """Name of the drill's n-th run: unique, and not longer than a name may be."""
    end = f"-drill-{token}-{number}"
    return run.metadata.name[: MAX_NAME - len(end)].rstrip("-") + end


def drill_document(
    run: TrainRun, *, name: str, namespace: str, faults: int, seconds: float
) -> dict[str, Any]:
    """The run to create under this name, with storage of the same name next to the user's. It may
    take `seconds`."""
    document = run.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = document["spec"]
    spec["storage"] |= {"runName": name, "onExisting": "Fail"}
    spec["failurePolicy"] = survives(faults)
    spec["activeDeadline"] = f"{math.ceil(seconds + LEFT_BEHIND)}s"
    spec["ttlAfterFinished"] = MARK_KEPT
    spec["retainFailedWorkers"] = 0
    spec.pop("suspend", None)
    _take_offline(spec["workers"]["template"]["spec"])
    users = run.metadata
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {**users.labels, LABEL: users.name},
        "annotations": {k: v for k, v in users.annotations.items() if "kubectl" not in k},
    }
    return {**TRAINRUN.head(), "metadata": metadata, "spec": spec}


def _take_offline(pod: dict[str, Any]) -> None:
    _, container = training_container(pod["containers"])
    own = [entry for entry in container.get("env", ()) if entry["name"] not in OFFLINE]
    added = [{"name": name, "value": value} for name, value in OFFLINE.items()]
    pod["containers"] = [
        {**each, "env": [*own, *added]} if each is container else each for each in pod["containers"]
    ]


OVER = timedelta(hours=1)
"""Time after the end of a run: a drill removes it within minutes. Longer, since the clock of its
operator wrote the end."""
_NAME = re.compile(r".+-drill-[0-9a-f]{4}-\d+")


def is_left_behind(version: RunVersion, *, of: TrainRun) -> bool:
    """Whether a drill of this run made it, with its folder in the storage of this run, and did not
    remove it in time."""
    made, name, end = version.run, version.run.metadata.name, _ended(version.status)
    storage, users = made.spec.storage, of.spec.storage
    return (
        _NAME.fullmatch(name) is not None
        and made.metadata.labels.get(LABEL) == of.metadata.name
        and (storage.run_name, storage.on_existing) == (name, "Fail")
        and (storage.uri, storage.endpoint_url) == (users.uri, users.endpoint_url)
        and end is not None
        and datetime.now(UTC) - end > OVER
    )


def is_its_own(folder: RunStore, uid: str) -> bool:
    """Whether only this TrainRun has ever used the folder. Raises StoreError."""
    # A run that started fresh in it need not have claimed the folder itself.
    return claimants(folder) <= {uid} and not folder.objects(layout.GENERATIONS)


def _ended(status: TrainRunStatus) -> datetime | None:
    """When its verdict was written, or when it was suspended: that is how a drill ends a run."""
    suspended = status.condition("Suspended")
    if status.finished:
        return status.completion_time
    if suspended is not None and suspended.status == "True":
        return suspended.last_transition_time
    return None


T = TypeVar("T")


def until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; Ctrl-C, SIGTERM and a closed terminal cancel it, so that it cleans up. A second
    Ctrl-C stops the cleanup as well.

    Raises KeyboardInterrupt at the end of cancelled work.
    """

    async def interruptible() -> T:
        task = asyncio.ensure_future(work)
        on_interrupt(task.cancel, task.cancel)
        return await task

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
