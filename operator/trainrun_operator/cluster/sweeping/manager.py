"""All sweeps of an operator: one SweepLeader each while this operator leads.

Layer: cluster. A sweep that is over has no leader until its spec changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.cluster.sweeping.clerks import Clerks
from trainrun_operator.cluster.sweeping.world import ClusterSweep, SweepDependencies, SweepReporter
from trainrun_operator.cluster.unmanaged_runs import Record, UnmanagedRuns
from trainrun_operator.cluster.watch import RunWatch, SweepIndex
from trainrun_operator.core.run.boundary import Event
from trainrun_operator.core.sweep.display import is_settled
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.informer import settled
from trainrun_operator.kube.raw import mapping, text
from trainrun_operator.runtime.clerk_exchange import ClerkExchange, ClerkExchanges
from trainrun_operator.runtime.reconciler import Wakeup
from trainrun_operator.runtime.sweep_leader import SweepLeader
from trainrun_operator.worlds.kubernetes.world import WorldDependencies

Raw = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class _LedSweep:
    world: ClusterSweep
    wakeup: Wakeup
    task: asyncio.Task[None]


class SweepManager:
    """Knows every sweep; leads them from `lead` on."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespaces: Sequence[str],
        exchanges: ClerkExchanges,
        record: Record,
        runs: RunWatch,
    ) -> None:
        """`namespaces`: the ones to watch, empty for all; `runs` has the TrainRuns."""
        self._exchanges = exchanges
        self._record = record
        self._unmanaged_runs = UnmanagedRuns(record, TRAINSWEEP)
        self._publishing: asyncio.Task[None] | None = None
        self._sweeps: dict[str, Raw] = {}
        """By uid, as last seen."""
        self._led: dict[str, _LedSweep] = {}
        self._around: SweepDependencies | None = None
        self.index = SweepIndex(
            api, namespaces=namespaces, on_sweep=self._changed, on_trial=self.wake, runs=runs
        )

    async def lead(self, clerks: Clerks, cluster: WorldDependencies) -> None:
        """Start to decide once everything that can be listed is listed; returns then."""
        self.index.follow()
        await settled([informer.listing for informer in self.index.informers])
        self._around = SweepDependencies(
            cluster=cluster,
            index=self.index,
            clerks=clerks,
            led_elsewhere=self._led_elsewhere,
        )
        self._publishing = asyncio.create_task(self._unmanaged_runs.publish(cluster))
        for raw in tuple(self._sweeps.values()):
            self._see(raw)

    async def stop(self) -> None:
        """Stop to decide; running trials continue."""
        self._around = None
        tasks = [led.task for led in self._led.values()]
        tasks += [self._publishing] if self._publishing is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self, uid: str) -> None:
        """Something that concerns this sweep has changed."""
        if (led := self._led.get(uid)) is not None:
            led.wakeup.now()

    def _changed(self, before: Raw | None, after: Raw | None) -> None:
        if after is not None:
            self._sweeps[after["metadata"]["uid"]] = after
            self._see(after)
        elif before is not None:
            self._gone(before["metadata"]["uid"])

    def _see(self, raw: Raw) -> None:
        if self._around is None:
            return
        if not self._around.cluster.installation.may_lead(holder_of(raw)):
            return  # another installation leads it
        uid, is_deleted = raw["metadata"]["uid"], "deletionTimestamp" in raw["metadata"]
        if is_deleted:
            self._unmanaged_runs.deleted_sweep(raw, raw["trimmed"].raw or {})
        if (led := self._led.get(uid)) is not None:
            led.world.seen(raw)
        elif not is_settled(raw) and not is_deleted:
            self._begin(raw, self._around)

    def _begin(self, raw: Raw, around: SweepDependencies) -> None:
        uid = raw["metadata"]["uid"]
        wakeup = Wakeup()
        exchange = ClerkExchange(sweep_uid=uid, on_news=wakeup.now)
        telling = SweepReporter(self._tell)
        world = ClusterSweep(
            raw=raw, around=around, exchange=exchange, telling=telling, wakeup=wakeup
        )
        self._exchanges.add(exchange)

        async def lead() -> None:
            await self.index.listed(raw["metadata"]["namespace"])  # else trials would look lost
            await SweepLeader(world, wakeup).lead()

        task = asyncio.create_task(lead())
        self._led[uid] = _LedSweep(world=world, wakeup=wakeup, task=task)
        task.add_done_callback(lambda _task: self._over(uid))

    def _over(self, uid: str) -> None:
        if self._led.pop(uid, None) is not None:
            self._exchanges.remove(uid)
        # The spec may have changed while the last pass was made.
        if (raw := self._sweeps.get(uid)) is not None:
            self._see(raw)

    def _gone(self, uid: str) -> None:
        self._sweeps.pop(uid, None)
        self._unmanaged_runs.gone(uid)
        if (led := self._led.get(uid)) is not None:
            led.task.cancel()

    def _led_elsewhere(self, uid: str, ours: str) -> str:
        other = self._sweeps.get(uid) if uid != ours else None
        if other is None or is_settled(other):
            return ""
        metadata = other["metadata"]
        return (
            f"TrainSweep {metadata['namespace']}/{metadata['name']} runs the search in this "
            "folder; delete it, or use another storage.sweepName"
        )

    def _tell(self, raw: Raw, event: Event) -> None:
        self._record(raw, event, datetime.now(UTC))


def holder_of(raw: Raw) -> str:
    """The installation that leads the sweep; empty: none yet."""
    return text(mapping(raw, "status"), "holder")
