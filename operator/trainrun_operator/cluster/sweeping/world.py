"""The world of one sweep in a cluster: its object, its runs, its clerk exchange, its events.

Layer: cluster. `runtime/sweep_leader.py` decides what is done in which order. A status write is
guarded by the version of the object that was read: a write based on an older version fails.
Events report once what users must know. They follow from the log: the previous leader has reported
what was in the log when we began.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from trainrun._common.text import cut
from trainrun.errors import InvalidSpec
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.pod_template import shape_problem
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.api.sweep.status import (
    MAX_MESSAGE,
    TrainSweepStatus,
    json_object,
    status_from,
)
from trainrun_operator.cluster.sweeping.clerks import Clerks
from trainrun_operator.cluster.watch import SweepIndex
from trainrun_operator.core.run.boundary import Event
from trainrun_operator.core.sweep.boundary import (
    CLERK_REFUSED,
    ClerkUnknown,
    CreateTrial,
    DeleteTrial,
    SuspendTrial,
    SweepObservation,
    SweepPlan,
    TrialAction,
)
from trainrun_operator.core.sweep.clerking import ClerkOrders, with_remedy
from trainrun_operator.core.sweep.config import displaced, sweep_config
from trainrun_operator.core.sweep.display import TOO_LARGE, with_refusal
from trainrun_operator.kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    is_refusal,
)
from trainrun_operator.runtime.clerk_exchange import ClerkExchange
from trainrun_operator.runtime.reconciler import Wakeup
from trainrun_operator.runtime.sweep_leader import SweepSeen
from trainrun_operator.worlds.base import StatusUnwritable
from trainrun_operator.worlds.kubernetes.sweep_objects import (
    described,
    known_spec,
    light,
    trial_manifest,
)
from trainrun_operator.worlds.kubernetes.trimmed_objects import TooLarge, TrimmedObject, trimmed
from trainrun_operator.worlds.kubernetes.world import WorldDependencies

Raw = Mapping[str, Any]
Record = Callable[[Raw, Event], None]

_log = logging.getLogger(__name__)


class SweepReporter:
    """Reports news of one sweep as events."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._reported: SweepView | None = None
        self._clerk_refused = False

    def look(self, raw: Raw, log: SweepView | ClerkUnknown) -> None:
        """Report what is new in the log."""
        if isinstance(log, ClerkUnknown):
            return
        before, self._reported = self._reported, log
        # Records of a log that was not empty at the first look were reported before.
        if before is None and log.position > 0:
            return
        for event in _news(before or SweepView(), log):
            self._record(raw, event)

    def clerk(self, raw: Raw, unknown: ClerkUnknown | None) -> None:
        """Report once that the clerk's pod cannot be created; the pod's events show all else."""
        refused = unknown if unknown and unknown.reason == CLERK_REFUSED else None
        if refused is not None and not self._clerk_refused:
            self._record(raw, Event(type="Warning", reason=refused.reason, message=refused.message))
        self._clerk_refused = refused is not None

    def refused(self, raw: Raw, reason: str, message: str) -> None:
        """Report that the spec cannot be used."""
        self._record(raw, Event(type="Warning", reason=reason, message=message))


def _news(before: SweepView, now: SweepView) -> Iterator[Event]:
    if len(now.sessions) > len(before.sessions):
        what = "the sweep starts" if not before.sessions else "the sweep resumes"
        yield Event(type="Normal", reason="TakenUp", message=what)
    for trial in now.trials.values():
        earlier = before.trials.get(trial.number)
        if earlier is None and trial.fallback:
            message = f"the parameters of trial {trial.number} are random: {trial.fallback}"
            yield Event(type="Warning", reason="SamplerFailed", message=message)
        if earlier is None and (moved := displaced(trial)):
            yield Event(type="Warning", reason="RecordsLost", message=moved)
        if not trial.open and (earlier is None or earlier.open or earlier.opening != trial.opening):
            yield _ended(trial)
    if now.end is not None and before.end is None:
        end = now.end.record
        good = end.verdict == "Succeeded"
        yield Event(type="Normal" if good else "Warning", reason=end.reason, message=end.message)


def _ended(trial: TrialView) -> Event:
    why = f": {trial.message.splitlines()[0]}" if trial.message.strip() else ""
    value = "" if trial.value is None else f" with {trial.value:g}"
    message = f"trial {trial.number} {trial.state.lower()}{value} ({trial.reason}){why}"
    errored = trial.state == "Errored"
    return Event(
        type="Warning" if errored else "Normal", reason=f"Trial{trial.state}", message=message
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDependencies:
    """Objects that all sweeps of an operator share."""

    cluster: WorldDependencies
    index: SweepIndex
    clerks: Clerks
    led_elsewhere: Callable[[str, str], str]
    """(uid of another TrainSweep, uid of ours) -> why ours may not take over from it; empty: it
    may."""
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held during a pass of a sweep too large for the cache: its whole parsed spec is in memory
    until the pass ends."""


@dataclass(frozen=True, kw_only=True)
class ClusterSeen(SweepSeen):
    """An observation of a sweep in a cluster."""

    raw: Raw
    """The object at the time of the observation."""
    whole: Raw
    """The same object with the complete spec of the user."""
    sweep: TrainSweep


@dataclass(kw_only=True, eq=False, repr=False)
class ClusterSweep:
    """The SweepWorld of one sweep."""

    raw: Raw
    around: SweepDependencies
    exchange: ClerkExchange
    telling: SweepReporter
    wakeup: Wakeup

    def __post_init__(self) -> None:
        self._api, self._guard = self.around.cluster.api, self.around.cluster.check_leadership
        self._no_clerk: ClerkUnknown | None = None
        """Why the clerk cannot answer, if its pod shows that."""
        self._last_error = ""

    def seen(self, raw: Raw) -> None:
        """Take the newest version of the object. The cache leaves out older ones, except after a
        backup was restored."""
        if raw != self.raw:
            self.raw = raw
            self.wakeup.now()

    @property
    def _name(self) -> str:
        metadata = self.raw["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    # ------------------------------------------------------------------------------- a look

    @asynccontextmanager
    async def look(self) -> AsyncIterator[ClusterSeen | None]:
        """Yields None if the sweep is being deleted or its spec is invalid. Raises KubeError."""
        raw = self.raw
        is_large = raw["trimmed"].packed is None
        async with self.around.large if is_large else nullcontext():
            yield None if "deletionTimestamp" in raw["metadata"] else await self._look(raw)

    async def _look(self, raw: Raw) -> ClusterSeen | None:
        before = status_from(raw.get("status") or {})
        try:
            whole = await self._whole(raw["trimmed"])
            sweep = described(whole)
            if problem := shape_problem(sweep.spec.run.workers.template):
                raise InvalidSpec(f"spec.run.workers.template.{problem}")
        except InvalidSpec as error:
            await self._refuse(raw, before, error)
            return None
        observation = SweepObservation(
            log=self._log(sweep),
            acted_on=before.position,
            in_use=self._in_use(sweep),
            runs=self.around.index.runs(sweep.metadata.uid),
            carried_out=self.exchange.carried_out,
        )
        return ClusterSeen(
            name=sweep.metadata.name,
            config=sweep_config(sweep),
            observation=observation,
            before=before,
            generation=raw["metadata"].get("generation", 0),
            holder=self.around.cluster.installation.holder,
            now=datetime.now(UTC).replace(microsecond=0),
            raw=raw,
            whole=whole,
            sweep=sweep,
        )

    def _log(self, sweep: TrainSweep) -> SweepView | ClerkUnknown:
        log = self.exchange.log()
        if not isinstance(log, ClerkUnknown):
            return log
        secret = sweep.spec.storage.credentials_secret_ref
        return self._no_clerk or with_remedy(log, secret=secret.name if secret else "")

    def _in_use(self, sweep: TrainSweep) -> str:
        sessions = self.exchange.view.sessions
        newest = sessions[-1].uid if sessions else ""
        return self.around.led_elsewhere(newest, sweep.metadata.uid) if newest else ""

    async def _whole(self, known: TrimmedObject) -> Raw:
        """The complete object. Raises TooLarge, and Conflict if it has changed since."""
        known.check_size()
        if (raw := known.raw) is None:
            metadata = self.raw["metadata"]
            path = TRAINSWEEP.path(metadata["namespace"], metadata["name"])
            raw = {**TRAINSWEEP.head(), **await self._api.get(path)}
            if trimmed(raw).digest != known.digest:
                raise Conflict(f"{self._name}: the TrainSweep has changed since it was read")
        return raw

    async def _refuse(self, raw: Raw, before: TrainSweepStatus, why: InvalidSpec) -> None:
        """Report a spec that cannot be used: running trials continue, no trial starts."""
        reason = TOO_LARGE if isinstance(why, TooLarge) else "InvalidSpec"
        message, generation = cut(str(why), MAX_MESSAGE), raw["metadata"].get("generation", 0)
        status = replace(before, reason=reason, message=message, observed_generation=generation)
        now = datetime.now(UTC).replace(microsecond=0)
        status = replace(status, conditions=with_refusal(status, now=now))
        if status != before:
            await self._put(raw, status)
            self.telling.refused(raw, reason, str(why))

    # ----------------------------------------------------------------------- what follows

    async def write(self, seen: ClusterSeen, status: TrainSweepStatus) -> None:
        """Write the status, guarded by the version that was seen. Raises KubeError."""
        await self._put(seen.raw, status)

    async def _put(self, raw: Raw, status: TrainSweepStatus) -> None:
        # The API server changes only the status.
        body = {
            **TRAINSWEEP.head(),
            "metadata": raw["metadata"],
            "status": json_object(status),
        }
        path = TRAINSWEEP.path(raw["metadata"]["namespace"], raw["metadata"]["name"])
        written = await self._api.put(f"{path}/status", body, guard=self._guard)
        self.raw = light(written)
        self.around.index.learn_sweep(written)

    def tell(self, seen: ClusterSeen, _status: TrainSweepStatus) -> None:
        """Report news as events."""
        self.telling.look(seen.raw, seen.observation.log)

    async def order(self, seen: ClusterSeen, plan: SweepPlan) -> None:
        """Ensure that there is a clerk, and give it its orders. Raises KubeError."""
        self._no_clerk = await self.around.clerks.look_after(
            seen.sweep, self.exchange, wanted=not plan.over
        )
        self.telling.clerk(seen.raw, self._no_clerk)
        working = any(run.phase == "Running" for run in seen.observation.runs)
        spec = known_spec(seen.whole)
        self.exchange.order(ClerkOrders(spec=spec, targets=plan.targets, working=working))

    def rest(self, plan: SweepPlan) -> bool:
        """Whether to leave the sweep: one that is over is left until its spec changes."""
        self._last_error = ""
        return plan.over

    def failed(self, error: Exception) -> None:
        """Log the error; every error is retried."""
        match error:
            case Conflict() | NotFound() | StatusUnwritable():
                pass  # the watch brings the new version, or we no longer lead
            case KubeError():
                if str(error) != self._last_error:  # once, not at every try
                    self._last_error = str(error)
                    _log.warning("%s: %s", self._name, error)
            case _:
                _log.error("%s: a pass failed; retrying", self._name, exc_info=error)

    async def apply(self, seen: ClusterSeen, action: TrialAction) -> str:
        """Carry out one action. Raises KubeError."""
        match action:
            case CreateTrial():
                return await self._create(seen.sweep, action)
            case SuspendTrial():
                await self._suspend(seen.sweep, action)
            case DeleteTrial():
                await self._delete(seen.sweep, action)
        return ""

    async def _create(self, sweep: TrainSweep, action: CreateTrial) -> str:
        namespace, api = sweep.metadata.namespace, self._api
        manifest = trial_manifest(sweep, action)
        try:
            made = await api.post(TRAINRUN.path(namespace), manifest, guard=self._guard)
        except AlreadyExists:
            made = await api.get(TRAINRUN.path(namespace, action.name))
            labels = made["metadata"].get("labels", {})
            if any(labels.get(key) != it for key, it in manifest["metadata"]["labels"].items()):
                return "another TrainRun has this name; delete or rename it"
        except KubeError as error:
            if not is_refusal(error):
                raise
            return str(error)
        self.around.cluster.learn_run(made, 0)
        return ""

    async def _suspend(self, sweep: TrainSweep, action: SuspendTrial) -> None:
        path = TRAINRUN.path(sweep.metadata.namespace, action.name)
        raw = await self._api.get(path)
        if raw["metadata"]["uid"] != action.uid:
            return
        body = {**raw, "spec": {**raw["spec"], "suspend": action.suspend}}
        self.around.cluster.learn_run(await self._api.put(path, body, guard=self._guard), 0)

    async def _delete(self, sweep: TrainSweep, action: DeleteTrial) -> None:
        path = TRAINRUN.path(sweep.metadata.namespace, action.name)
        body = {"preconditions": {"uid": action.uid}, "propagationPolicy": "Background"}
        try:
            await self._api.delete(path, body=body, guard=self._guard)
        except NotFound:
            pass
        except Conflict:
            return  # another run has its name; the watch will show it
        self.around.index.forget_trial(sweep.metadata.namespace, action.uid)
