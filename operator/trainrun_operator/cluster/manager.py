"""All runs of an operator: one reconciler each, started when we lead, woken by what concerns it.

Layer: cluster. One task per run, whose Wakeup merges any number of wishes into the next pass: that
is the work queue, with one pass in flight per run by construction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.cluster.neighbours import Neighbours, Record
from trainrun_operator.cluster.node_memory import NodeMemory, Tell
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.installation import Installation
from trainrun_operator.core.run.plan import Event, Plan
from trainrun_operator.core.run.planner import decide
from trainrun_operator.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    Unauthorized,
    Unavailable,
)
from trainrun_operator.runtime.agent_server import AgentServer
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.runtime.mishaps import one_line
from trainrun_operator.runtime.news import Happened, RunNews
from trainrun_operator.runtime.reconciler import Reconciler
from trainrun_operator.runtime.wakeup import Wakeup
from trainrun_operator.worlds.base import Seen
from trainrun_operator.worlds.kubernetes.kept import TooLarge, bare
from trainrun_operator.worlds.kubernetes.run_object import (
    RunObject,
    holder_of,
    is_managed_elsewhere,
    led_version,
    number_of,
)
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, Surroundings

_log = logging.getLogger(__name__)

PASSING = (AlreadyExists, Conflict, Forbidden, Gone, NotFound, Unauthorized, Unavailable)
"""What calls may meet while others write, or while the API server is away or has just begun."""

REPORT = "the run is left as it is until its spec is changed; report the bug"

RETOLD_WITHIN = timedelta(minutes=10)
"""Events this young are told again when we begin to lead: who led before may have died over them.
Older ones may have been forgotten by the cluster, and would come back."""


@dataclass(slots=True, kw_only=True)
class _Led:
    """A run and what leads it."""

    object: RunObject
    wakeup: Wakeup
    agents: RunAgents
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """A run that could not be read, of which its user was told."""

    generation: int
    version: int
    why: InvalidSpec


class RunManager:
    """Knows every run; leads them while `leading`."""

    def __init__(
        self,
        *,
        installation: Installation,
        server: AgentServer,
        metrics: Metrics,
        record: Record,
        tell_node: Tell = lambda _node, _event, _time: None,
    ) -> None:
        """`installation` is ours; its key need not be known yet. `tell_node` takes events on nodes.

        `nodes` tells what runs have met on them.
        """
        self._installation = installation
        self._neighbours = Neighbours(installation.name, record)
        self._telling: asyncio.Task[None] | None = None
        self._server = server
        self._record = record
        self.nodes = NodeMemory(tell_node)
        self._places: dict[str, str] = {}
        """The namespaces of all runs that are known, by uid."""
        self._runs: dict[str, _Led] = {}
        self._unreadable: dict[str, RunAgents] = {}
        """Of runs that this operator has never been able to read: a newer one may, so their agents
        are put off."""
        self._refused: dict[str, _Refused] = {}
        """Runs that cannot be read, by uid."""
        self._around: Surroundings | None = None
        self._metrics = metrics
        metrics.follow(self.states)

    # -------------------------------------------------------------------------- what is seen

    def seen(self, raw: Mapping[str, Any], *, restored: bool = False) -> None:
        """A TrainRun is there in this version; `restored`: from a backup, so that versions which
        we know and that are higher are none any more."""
        raw = {**TRAINRUN.head(), **raw}  # lists leave them out
        uid = raw["metadata"]["uid"]
        if "deletionTimestamp" in raw["metadata"]:
            self.gone(uid)  # its pods go by owner reference: there is nothing left to decide
            return
        if is_managed_elsewhere(raw):
            return
        self._places[uid] = raw["metadata"]["namespace"]
        led = self._runs.get(uid)
        if not self._installation.may_lead(holder_of(raw)):
            if led is None or restored or number_of(raw) >= led.object.current.number:
                self._lead_no_more(uid)
                self._neighbours.seen(raw)
            return
        self._neighbours.gone(uid)
        refused = self._refused.get(uid)
        if led is None and refused is not None and refused.version == number_of(raw):
            self._refuse(raw, refused.why)  # a megabyte is not read again to be refused again
            return
        try:
            if led is None:
                self._add(raw)
            elif led.object.learn(raw, restored=restored):
                self._remember(led)
                led.wakeup.now()
        except InvalidSpec as error:
            self._refuse(raw, error)
        except Exception as error:  # noqa: BLE001 - whatever one of them holds, the others are led
            odd = InvalidSpec(f"this operator cannot read it: {one_line(error)}; {REPORT}")
            if self._refuse(raw, odd):
                _log.exception("TrainRun %s cannot be read", raw["metadata"].get("name"))
        else:
            if led is not None and led.object.refusal:
                # By whichever way it came: the answer to a write of ours may have been faster.
                self._refuse(led.object.current.head, led.object.refusal)
            else:
                self._forget_unreadable(uid)

    def gone(self, uid: str) -> None:
        """The TrainRun was deleted."""
        self._places.pop(uid, None)
        self._neighbours.gone(uid)
        self._lead_no_more(uid)

    def _lead_no_more(self, uid: str) -> None:
        self._forget_unreadable(uid)
        led = self._runs.pop(uid, None)
        if led is None:
            return
        self.nodes.forget(uid)
        led.object.deleted = True
        if led.task is not None:
            led.task.cancel()
            self._server.remove(uid)

    def uids(self, namespace: str = "") -> frozenset[str]:
        """All runs of this namespace (empty: of any) known at this moment, those of other
        installations included."""
        return frozenset(uid for uid, place in self._places.items() if namespace in ("", place))

    def knows(self, uid: str, version: int) -> bool:
        """Whether this resourceVersion of the run is no news; of one led elsewhere: any."""
        led, refused = self._runs.get(uid), self._refused.get(uid)
        if led is None and refused is None:
            return uid in self._places
        known = led.object.current.number if led is not None else 0
        return version <= max(known, refused.version if refused is not None else 0)

    def listed(self, raw: Mapping[str, Any], *, known_before: frozenset[str]) -> None:
        """A list shows this TrainRun; `known_before` were known when it was asked for. One that was
        deleted since then must not come back."""
        uid = raw["metadata"]["uid"]
        if uid not in known_before or uid in self._places:
            self.seen(raw)

    def relisted(
        self,
        versions: Mapping[str, int],
        *,
        known_before: frozenset[str],
        version: int = 0,
        restored: bool = False,
    ) -> frozenset[str]:
        """These were all TrainRuns of a namespace, or of the cluster: the resourceVersion of each,
        by uid. `version` is the list's; `restored`: a backup was. Returns those that the list shows
        older than we know them, though its own version is higher: they, too, were restored, and
        have to be `seen` once more.

        One that was created since the list was asked for is not in it, and must not be taken for
        deleted.
        """
        for uid in known_before - versions.keys():
            self.gone(uid)
        return frozenset(
            uid
            for uid, led in self._runs.items()
            if uid in versions
            and (restored or versions[uid] < led.object.current.number <= version)
        )

    def wake(self, uid: str) -> None:
        """Something that concerns this run has changed."""
        led = self._runs.get(uid)
        if led is not None:
            led.wakeup.now()

    def states(self) -> Iterator[tuple[TrainRunStatus, RunConfig]]:
        """Status and configuration of every run."""
        for led in self._runs.values():
            yield led.object.current.status, led.object.current.config

    # ------------------------------------------------------------------------------- leading

    def lead(self, around: Surroundings, *, grace: float = 0.0) -> None:
        """From now on we decide; silence of agents counts only after `grace` seconds."""
        self._around = around
        self._telling = asyncio.create_task(self._neighbours.tell(around))
        for led in self._runs.values():
            self._start(led, around, grace=grace)

    async def stop(self) -> None:
        """Decide nothing any more; what runs goes on."""
        self._around = None
        tasks = [led.task for led in self._runs.values() if led.task is not None]
        tasks += [self._telling] if self._telling is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, raw: Mapping[str, Any]) -> None:
        version = led_version(raw)
        wakeup = Wakeup(progress_interval=lambda: self._server.cadence.interval)
        led = _Led(
            object=RunObject(version),
            wakeup=wakeup,
            agents=RunAgents(run_uid=version.uid, on_news=wakeup.now, on_progress=wakeup.soon),
        )
        self._runs[version.uid] = led
        self._remember(led)
        if self._around is not None:
            self._start(led, self._around)

    def _start(self, led: _Led, around: Surroundings, *, grace: float = 0.0) -> None:
        led.agents.secret = around.place.seal_key
        namespace, name = led.object.current.namespace, led.object.current.name
        self._server.add(led.agents)

        def wrote(before: TrainRunStatus, after: TrainRunStatus) -> None:
            self._metrics.wrote(before, after)
            self._remember(led, after)

        world = KubernetesWorld(
            run=led.object,
            around=around,
            wake=led.wakeup.after,
            wrote=wrote,
            tell=lambda event: self._record(led.object.current.head, event, datetime.now(UTC)),
            strikes=lambda: self.nodes.of(namespace),
        )
        reconciler = Reconciler(
            world=world,
            agents=led.agents,
            decide=decide,
            events=_Recorder(led.object, self._record),
            wakeup=led.wakeup,
            name=f"{namespace}/{name}",
            retell=RETOLD_WITHIN,
            on_pass=self._metrics.passed,
            passing=PASSING,
            on_mishap=self._metrics.mishap,
        )

        def over(_seen: Seen, _plan: Plan) -> bool:
            return led.object.deleted

        async def lead() -> None:
            await around.pods.listed(namespace)  # else they would look lost
            led.agents.restart_listening(grace=grace)  # until then none of them was heard
            await reconciler.run(over)

        led.task = asyncio.create_task(lead())

    def _remember(self, led: _Led, status: TrainRunStatus | None = None) -> None:
        self.nodes.learn(
            led.object.current.head["metadata"],
            status or led.object.current.status,
            now=datetime.now(UTC),
            leads=self._around is not None,
        )

    def _refuse(self, raw: Mapping[str, Any], why: InvalidSpec) -> bool:
        """Tell the user of a run that cannot be read, once for each generation: now is told."""
        metadata = raw["metadata"]
        uid, generation = metadata["uid"], metadata.get("generation", 0)
        known = self._refused.get(uid)
        self._refused[uid] = _Refused(generation=generation, version=number_of(raw), why=bare(why))
        if isinstance(why, TooLarge) and uid not in self._runs:
            self._neighbours.too_large(raw, str(why))  # where its condition does not tell it yet
        if known is not None and known.generation == generation:
            return False
        if not isinstance(why, TooLarge):
            event = Event(type="Warning", reason="InvalidSpec", message=str(why))
            self._record(raw, event, datetime.now(UTC))
        if uid not in self._runs and uid not in self._unreadable:
            agents = RunAgents(run_uid=uid, on_news=_nothing, on_progress=_nothing)
            self._unreadable[uid] = agents
            self._server.add(agents)
        return True

    def _forget_unreadable(self, uid: str) -> None:
        self._refused.pop(uid, None)
        if self._unreadable.pop(uid, None) is not None and uid not in self._runs:
            self._server.remove(uid)


def _nothing() -> None:
    """Nobody waits for these news."""


@dataclass(slots=True)
class _Recorder:
    """Events of one run go to the cluster."""

    object: RunObject
    record: Record

    def emit(self, news: RunNews) -> None:
        """Take note of events; the rest is in the status."""
        if isinstance(news, Happened):
            self.record(self.object.current.head, news.event, news.time)
