"""A drill in a cluster: runs of their own beside the user's, disturbed through the Kubernetes API.

Layer: cli. With the user's own rights: workers are deleted, at once or with their grace. What
takes more than that is not rehearsed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.errors import InvalidSpec, StoreError, TrainRunError
from trainrun_operator.cli.drilling.cluster.document import LABEL, drill_document, drill_name
from trainrun_operator.cli.drilling.cluster.interruption import until_interrupted
from trainrun_operator.cli.drilling.cluster.leftovers import is_its_own, is_left_behind
from trainrun_operator.cli.drilling.cluster.seen import course_of
from trainrun_operator.cli.drilling.cluster.sight import Sight
from trainrun_operator.cli.drilling.cluster.trial import ClusterTrial
from trainrun_operator.cli.drilling.scenarios import OF_SCRIPT, OURS, FaultName, Scenario, second
from trainrun_operator.worlds.kubernetes.own_run import users_cluster

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.store import ObjectStore
    from trainrun_operator.api.resources import TrainRun
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.worlds.kubernetes.own_run import OwnRun, UsersCluster

IN_CLUSTER: tuple[FaultName, ...] = ("KillAfterCheckpoint", "Notice", "KillBeforeCheckpoint")
"""Those that deleting a worker makes, in the order in which they are rehearsed."""

REMOVING = 60.0
"""Seconds beside the grace of its workers that the removal of a run may take."""

NOTE = (
    "in the cluster: workers are deleted, at once (kill) or with their grace (notice). What a kill "
    "while saving does, who reports nothing, and how often should_save() is asked shows on one "
    "machine alone: `trainrun drill` without --cluster"
)
WHY_NOT = (
    "that takes more than the right to delete pods: rehearse it on one machine, without --cluster"
)


@dataclass(slots=True, kw_only=True)
class ClusterGround:
    """See `Ground`."""

    run: TrainRun
    """As its file has it."""
    say: Callable[[str], None]
    notes: tuple[str, ...] = (NOTE,)
    _token: str = field(default_factory=lambda: secrets.token_hex(2))
    _made: list[str] = field(default_factory=list)
    """Names of all runs, which are also those of their folders."""
    _opened: ObjectStore | None = None

    def names(self, *, everything: bool) -> tuple[FaultName, ...]:
        """See `Ground`."""
        return (*OF_SCRIPT, *OURS) if everything else IN_CLUSTER

    def possible(self, scenario: Scenario, control: Course, *, until: int) -> Scenario:
        """See `Ground`: steps are seen late, so faults come as soon as they make sense."""
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

    def try_run(
        self,
        *,
        scenario: Scenario | None,
        until: int | None,
        seconds: float,
        share: float = math.inf,
    ) -> Course:
        """See `Ground`."""
        return until_interrupted(self._try_run(scenario, until, seconds, share))

    def check(self) -> None:
        """Say at once what would be missing later. Raises InvalidSpec, StoreError, KubeError."""
        until_interrupted(self._check())

    def sweep(self) -> None:
        """Remove what workers have stored after their run was gone: those that were deleted by
        force have their grace all the same."""
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
                "from here, with your own credentials, and removes them in the end"
            ) from error
        await self._remove_left_behind(namespace)

    async def _remove_left_behind(self, namespace: str) -> None:
        """What drills of this run have left that were killed; trouble with it is only told."""
        try:
            async with users_cluster() as cluster:
                for made in await cluster.runs_with(namespace, LABEL, self.run.metadata.name):
                    folder = RunStore(self._store, made.run.metadata.name)
                    if not is_left_behind(made, of=self.run):
                        continue
                    if not await asyncio.to_thread(is_its_own, folder, made.uid):
                        continue
                    await asyncio.to_thread(self._empty, folder.run_name)
                    # Last: without it nobody would know whose folder that is.
                    await cluster.delete_run(made)
                    self.say(f"removed {folder.uri} and its run, left by a drill that was killed")
        except TrainRunError as error:
            self.say(f"what drills that were killed have left may still be there: {error}")

    async def _try_run(
        self, scenario: Scenario | None, until: int | None, seconds: float, share: float
    ) -> Course:
        begun = time.monotonic()
        faults = scenario.faults if scenario is not None else ()
        name = drill_name(self.run, len(self._made) + 1, self._token)
        self._made.append(name)
        sight = Sight(until=until, share=share, fault=faults[0] if faults else None)
        try:
            async with users_cluster() as cluster:
                own = self._own_run(cluster, name, faults=len(faults), seconds=seconds)
                try:
                    folder = RunStore(self._store, name)
                    trial = ClusterTrial(run=own, store=folder, sight=sight, grace=self._grace)
                    version = await trial.hold(seconds)
                finally:
                    await self._remove(own)
            took = time.monotonic() - begun
            return await asyncio.to_thread(course_of, version, sight, seconds=took)
        finally:
            await asyncio.to_thread(self._empty, name)

    def _own_run(self, cluster: UsersCluster, name: str, *, faults: int, seconds: float) -> OwnRun:
        namespace = cluster.namespace_of(self.run)
        document = drill_document(
            self.run, name=name, namespace=namespace, faults=faults, seconds=seconds
        )
        return cluster.own_run(document)

    async def _remove(self, own: OwnRun) -> None:
        left = f"remove it: kubectl --namespace {own.namespace} delete trainrun {own.name}"
        try:
            if not await own.remove(patience=self._grace + REMOVING):
                self.say(f"{own.name} or pods of it are still there; {left}")
        except (asyncio.CancelledError, TrainRunError):
            self.say(f"{own.name} may still be there; {left}")
            raise

    def _empty(self, name: str) -> None:
        """Remove a run's folder from the storage. Raises StoreError."""
        folder = RunStore(self._store, name)
        folder.delete([item.key for item in folder.objects("")])
        folder.store.abort_uploads(folder.key(""), of=lambda _key: True)

    @property
    def _store(self) -> ObjectStore:
        """One for all runs: a client of S3 takes 0.1 s and megabytes to be made. Raises
        StoreMisconfigured."""
        if self._opened is None:
            at = self.run.spec.storage
            self._opened = open_store(at.uri, endpoint_url=at.endpoint_url, region=at.region)
        return self._opened

    @property
    def _grace(self) -> float:
        return float(self.run.spec.workers.template.spec.grace)


@contextmanager
def cluster_ground(run: TrainRun, *, say: Callable[[str], None]) -> Iterator[ClusterGround]:
    """In the cluster of the user's kubeconfig, with nothing left in the end. Raises as `check`."""
    ground = ClusterGround(run=run, say=say)
    ground.check()
    try:
        yield ground
    finally:
        with contextlib.suppress(StoreError):
            ground.sweep()
