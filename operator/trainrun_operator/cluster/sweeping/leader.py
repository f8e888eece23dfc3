"""One sweep led: look, decide, write what follows, then do it.

Layer: cluster. Invariant: a run is created, suspended or deleted only after a write of the status
that nobody else has overtaken says how much of the log is acted on; what the log does not say is
not done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, assert_never

from trainrun.errors import InvalidSpec
from trainrun.sweep.view import SweepView
from trainrun.text import cut
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.api.sweep.status import MAX_MESSAGE, TrainSweepStatus
from trainrun_operator.api.sweep.status_json import json_object, status_from
from trainrun_operator.api.template_shapes import shape_problem
from trainrun_operator.cluster.sweeping.clerks import Clerks
from trainrun_operator.cluster.sweeping.index import SweepIndex
from trainrun_operator.cluster.sweeping.telling import SweepTelling
from trainrun_operator.core.run.installation import Installation
from trainrun_operator.core.sweep.clerking import ClerkOrders, with_remedy
from trainrun_operator.core.sweep.conditions import TOO_LARGE, with_conditions, with_too_large
from trainrun_operator.core.sweep.config import sweep_config
from trainrun_operator.core.sweep.display import notable, sweep_status
from trainrun_operator.core.sweep.observation import ClerkUnknown, SweepObservation, TrialRun
from trainrun_operator.core.sweep.plan import (
    CreateTrial,
    DeleteTrial,
    SuspendTrial,
    SweepPlan,
    TrialAction,
)
from trainrun_operator.core.sweep.planner import decide_sweep
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    is_refusal,
)
from trainrun_operator.runtime.clerk_desk import ClerkDesk
from trainrun_operator.runtime.wakeup import Wakeup
from trainrun_operator.worlds.base import StatusUnwritable
from trainrun_operator.worlds.kubernetes.kept import Kept, TooLarge, kept
from trainrun_operator.worlds.kubernetes.sweeping.sweep_object import described, known_spec, light
from trainrun_operator.worlds.kubernetes.sweeping.trial_object import trial_manifest

DISPLAY_EVERY = 15.0
"""Seconds between two writes of the status that only show progress."""
LOOK_AGAIN = 5.0
"""Seconds after which a clerk that is not heard is looked after."""
RETRY = 2.0
"""Seconds until a pass that failed is tried again."""

Raw = Mapping[str, Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSurroundings:
    """What all sweeps of an operator share."""

    api: KubeApi
    index: SweepIndex
    clerks: Clerks
    guard: Callable[[], None]
    """Raises where another operator leads."""
    installation: Installation
    """Ours."""
    led_elsewhere: Callable[[str, str], str]
    """(uid of another TrainSweep, uid of ours) -> why that one may not be superseded; empty: it
    may."""
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held for a pass of one that is not kept: it is there as a whole, parsed, until the end."""


class SweepLeader:
    """Of one sweep."""

    def __init__(
        self, raw: Raw, around: SweepSurroundings, *, desk: ClerkDesk, telling: SweepTelling
    ) -> None:
        self._raw = raw
        self._around = around
        self._desk = desk
        self._telling = telling
        self._wakeup = Wakeup()
        self._shown_at = 0.0
        self._refused: dict[str, str] = {}
        """By the name of a run: why it cannot be created."""
        self._no_clerk: ClerkUnknown | None = None
        """Why the clerk cannot answer, where its pod shows that."""
        self._said = ""

    def seen(self, raw: Raw) -> None:
        """The newest version of the object: the cache has left out older ones, but for those of a
        backup that was restored."""
        if raw != self._raw:
            self._raw = raw
            self._wakeup.now()

    def wake(self) -> None:
        """Something that concerns the sweep has changed."""
        self._wakeup.now()

    async def lead(self) -> None:
        """Until the sweep is over."""
        while True:
            await self._wakeup.wait()
            try:
                is_large = self._raw["kept"].packed is None
                async with self._around.large if is_large else nullcontext():
                    if await self._pass():
                        return
                self._said = ""
            except (Conflict, NotFound, StatusUnwritable):
                self._wakeup.after(RETRY)  # the watch brings what it has become, or we lead no more
            except KubeError as error:
                self._say(str(error))
                self._wakeup.after(RETRY)
            # A sweep must not be left alone because of one pass; the next begins from fresh facts.
            except Exception:  # noqa: BLE001
                _log.exception("%s: a pass failed; trying again", self._name)
                self._wakeup.after(RETRY)

    def _say(self, text: str) -> None:
        """Once, not with every try."""
        if text != self._said:
            _log.warning("%s: %s", self._name, text)
            self._said = text

    @property
    def _name(self) -> str:
        metadata = self._raw["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    async def _pass(self) -> bool:
        """Whether nothing will change until the spec does. Raises KubeError."""
        raw = self._raw
        if "deletionTimestamp" in raw["metadata"]:
            return False
        before = status_from(raw.get("status") or {})
        try:
            whole = await self._whole(raw["kept"])
            sweep = described(whole)
            if problem := shape_problem(sweep.spec.run.workers.template):
                raise InvalidSpec(f"spec.run.workers.template.{problem}")
        except InvalidSpec as error:
            await self._refuse(raw, before, error)
            return False
        runs = self._around.index.runs(sweep.metadata.uid)
        observation = SweepObservation(
            log=self._log(sweep),
            acted_on=before.position,
            in_use=self._in_use(sweep),
            runs=runs,
            carried_out=self._desk.carried_out,
        )
        config = sweep_config(sweep)
        plan = decide_sweep(observation, config, name=sweep.metadata.name)
        generation = raw["metadata"].get("generation", 0)
        status = sweep_status(observation, config, plan, before=before, generation=generation)
        status = self._with_refusals(status, plan)
        await self._write(raw, self._complete(status, before, observation), before, plan)
        self._telling.look(raw, observation.log)
        self._no_clerk = await self._around.clerks.look_after(
            sweep, self._desk, wanted=not plan.over
        )
        self._telling.clerk(raw, self._no_clerk)
        self._order(whole, plan, runs)
        for action in plan.actions:
            await self._apply(sweep, action)
        self._wake_later(plan, observation)
        return plan.over

    def _log(self, sweep: TrainSweep) -> SweepView | ClerkUnknown:
        log = self._desk.log()
        if not isinstance(log, ClerkUnknown):
            return log
        secret = sweep.spec.storage.credentials_secret_ref
        return self._no_clerk or with_remedy(log, secret=secret.name if secret else "")

    def _in_use(self, sweep: TrainSweep) -> str:
        sessions = self._desk.view.sessions
        newest = sessions[-1].uid if sessions else ""
        return self._around.led_elsewhere(newest, sweep.metadata.uid) if newest else ""

    async def _whole(self, known: Kept) -> Raw:
        """What its user has written. Raises TooLarge, and Conflict where that is another by now."""
        known.check_size()
        if (raw := known.raw) is None:
            metadata = self._raw["metadata"]
            path = TRAINSWEEP.path(metadata["namespace"], metadata["name"])
            raw = {**TRAINSWEEP.head(), **await self._around.api.get(path)}
            if kept(raw).digest != known.digest:
                raise Conflict(f"{self._name}: it has changed")
        return raw

    def _order(self, raw: Raw, plan: SweepPlan, runs: tuple[TrialRun, ...]) -> None:
        working = any(run.phase == "Running" for run in runs)
        self._desk.order(ClerkOrders(spec=known_spec(raw), targets=plan.targets, working=working))

    def _wake_later(self, plan: SweepPlan, observation: SweepObservation) -> None:
        if plan.wake_after is not None:
            self._wakeup.after(plan.wake_after)
        if isinstance(observation.log, ClerkUnknown) or self._refused:
            self._wakeup.after(LOOK_AGAIN)
        elif not plan.over:
            self._wakeup.after(DISPLAY_EVERY)

    def _complete(
        self, status: TrainSweepStatus, before: TrainSweepStatus, observation: SweepObservation
    ) -> TrainSweepStatus:
        status = replace(status, holder=self._around.installation.holder)
        unknown = observation.log if isinstance(observation.log, ClerkUnknown) else None
        conditions = with_conditions(
            status, before=before, clerk=unknown, now=datetime.now(UTC).replace(microsecond=0)
        )
        works = unknown is None and status.phase not in ("Succeeded", "Failed")
        return replace(status, conditions=conditions, clerks=int(works))

    def _with_refusals(self, status: TrainSweepStatus, plan: SweepPlan) -> TrainSweepStatus:
        """What cannot be created is the first thing that its user has to know."""
        wanted = {it.name for it in plan.actions if isinstance(it, CreateTrial)}
        self._refused = {name: why for name, why in self._refused.items() if name in wanted}
        if not self._refused:
            return status
        name, why = next(iter(self._refused.items()))
        message = f"the TrainRun {name} cannot be created: {why}"
        return replace(status, reason="TrialRefused", message=cut(message, MAX_MESSAGE))

    async def _write(
        self, raw: Raw, status: TrainSweepStatus, before: TrainSweepStatus, plan: SweepPlan
    ) -> None:
        """Guarded by the version that the plan was made from. Raises KubeError."""
        late = time.monotonic() - self._shown_at > DISPLAY_EVERY
        if not (notable(status, before) or plan.guarded or (late and status != before)):
            return
        await self._put(raw, status)
        self._shown_at = time.monotonic()

    async def _put(self, raw: Raw, status: TrainSweepStatus) -> None:
        # The rest stays as it is, whatever stands here.
        body = {
            **TRAINSWEEP.head(),
            "metadata": raw["metadata"],
            "status": json_object(status),
        }
        path = TRAINSWEEP.path(raw["metadata"]["namespace"], raw["metadata"]["name"])
        written = await self._around.api.put(f"{path}/status", body, guard=self._around.guard)
        self._raw = light(written)
        self._around.index.learn_sweep(written)

    async def _refuse(self, raw: Raw, before: TrainSweepStatus, why: InvalidSpec) -> None:
        """A spec that cannot be used: what runs goes on, nothing new is begun."""
        reason = TOO_LARGE if isinstance(why, TooLarge) else "InvalidSpec"
        status = replace(before, reason=reason, message=cut(str(why), MAX_MESSAGE))
        generation = raw["metadata"].get("generation", 0)
        status = replace(status, observed_generation=generation)
        if reason == TOO_LARGE:
            now = datetime.now(UTC).replace(microsecond=0)
            status = replace(status, conditions=with_too_large(status, now=now))
        if status != before:
            await self._put(raw, status)
            self._telling.refused(raw, reason, str(why))

    async def _apply(self, sweep: TrainSweep, action: TrialAction) -> None:
        """Raises KubeError."""
        match action:
            case CreateTrial():
                await self._create(sweep, action)
            case SuspendTrial():
                await self._suspend(sweep, action)
            case DeleteTrial():
                await self._delete(sweep, action)
            case _:
                assert_never(action)

    async def _create(self, sweep: TrainSweep, action: CreateTrial) -> None:
        namespace, api = sweep.metadata.namespace, self._around.api
        manifest = trial_manifest(sweep, action)
        try:
            made = await api.post(TRAINRUN.path(namespace), manifest, guard=self._around.guard)
        except AlreadyExists:
            made = await api.get(TRAINRUN.path(namespace, action.name))
            labels = made["metadata"].get("labels", {})
            if any(labels.get(key) != it for key, it in manifest["metadata"]["labels"].items()):
                self._refused[action.name] = "another TrainRun has this name; delete or rename it"
                return
        except KubeError as error:
            if not is_refusal(error):
                raise
            # Asked again in seconds.
            self._refused[action.name] = str(error)
            return
        self._refused.pop(action.name, None)
        self._around.index.learn_trial(made)

    async def _suspend(self, sweep: TrainSweep, action: SuspendTrial) -> None:
        path = TRAINRUN.path(sweep.metadata.namespace, action.name)
        raw = await self._around.api.get(path)
        if raw["metadata"]["uid"] != action.uid:
            return
        body = {**raw, "spec": {**raw["spec"], "suspend": action.suspend}}
        self._around.index.learn_trial(
            await self._around.api.put(path, body, guard=self._around.guard)
        )

    async def _delete(self, sweep: TrainSweep, action: DeleteTrial) -> None:
        path = TRAINRUN.path(sweep.metadata.namespace, action.name)
        body = {"preconditions": {"uid": action.uid}, "propagationPolicy": "Background"}
        try:
            await self._around.api.delete(path, body=body, guard=self._around.guard)
        except (NotFound, Conflict):
            pass  # it is gone, or another one has its name
        for run in self._around.index.runs(sweep.metadata.uid):
            if run.uid == action.uid:
                self._around.index.forget_trial(sweep.metadata.namespace, run)
