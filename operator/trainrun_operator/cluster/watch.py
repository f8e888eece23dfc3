"""The caches of TrainRuns and TrainSweeps.

Layer: cluster. One cache of TrainRuns, fed by kopf's handlers: kopf's watch brings changes, lists
find what it missed, and answers to our own calls enter it at once. Invariant: a deletion or change
that no watch reported is found soon after the next watch starts, or after a minute if none does; so
is a restored backup, since that ends the watches. Each namespace is listed separately: one that is
gone or refuses does not block the others, and its runs do not count as deleted. Without the CRD of
TrainSweep there are no sweeps; no run waits for it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.core.sweep.boundary import TrialRun
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.informer import (
    EVERYWHERE,
    Informer,
    ListState,
    SharedWatchInformer,
    settled,
)
from trainrun_operator.worlds.kubernetes.sweep_objects import TrialObject, light, trial_object

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunMark:
    """The part of a TrainRun that is cached here; the manager holds the rest."""

    uid: str
    trial: TrialObject | None


class RunWatch:
    """The cache of TrainRuns, by namespace."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespaces: Sequence[str],
        seen: Callable[[Raw], None],
        gone: Callable[[str], None],
    ) -> None:
        """`namespaces`: those to list, empty for all. `seen` gets each version once, never an older
        one unless a backup was restored; `gone` gets the uid of a deleted run."""
        self._seen = seen
        self._gone = gone
        self.on_trial: Callable[[TrialObject | None, TrialObject | None], None] = _no_sweeps
        """Gets (before, after) of a trial's run."""
        self._places = {
            namespace: SharedWatchInformer[RunMark](
                api,
                path=TRAINRUN.path(namespace),
                params={},
                project=self._project,
                # Not the name: late news of an earlier run of the same name must still end it.
                key=lambda mark: mark.uid,
                on_change=self._changed,
            )
            for namespace in namespaces or (EVERYWHERE,)
        }
        for place in self._places.values():
            place.follow()
        self.listed = asyncio.Event()
        """Set once the TrainRuns of all listable namespaces were listed: the CRD exists."""

    @property
    def listings(self) -> tuple[ListState, ...]:
        """One for each namespace."""
        return tuple(place.listing for place in self._places.values())

    def knows(self, namespace: str) -> bool:
        """Whether the runs of this namespace have been listed: before that, an unknown run need
        not be gone."""
        place = self._place(namespace)
        return place is not None and place.synced.is_set()

    @property
    def readable(self) -> frozenset[str]:
        """The namespaces that can be listed now; the empty string means all."""
        return frozenset(
            namespace
            for namespace, place in self._places.items()
            if place.synced.is_set() and not place.listing.trouble
        )

    def changed(self, kind: str, raw: Raw) -> None:
        """The watch brought this object; `kind` is ADDED, MODIFIED or DELETED."""
        if (place := self._place(raw["metadata"]["namespace"])) is not None:
            place.on_event(kind, raw)

    def watched(self, path: str, *, good: bool) -> None:
        """A watch of this path has started, or could not: changes since the previous watch may be
        lost, and a backup may have been restored."""
        for place in self._places.values():
            if path.endswith(place.listing.path):  # a proxy may have a prefix
                place.on_watch(good=good)

    def learn(self, raw: Raw, previous: int = 0) -> None:
        """Store an answer of the API server; `previous` as for informers."""
        if (place := self._place(raw["metadata"]["namespace"])) is not None:
            place.learn(raw, previous=previous)

    def forget(self, namespace: str, uid: str) -> None:
        """The API server says that this run is gone."""
        if (place := self._place(namespace)) is not None:
            place.forget(uid)

    def renew(self) -> None:
        """The cache may be stale: see `fresh`."""
        for place in self._places.values():
            place.renew()

    async def fresh(self, namespace: str) -> None:
        """Wait until the runs of this namespace were listed since `renew`, without a timeout."""
        if (place := self._place(namespace)) is not None:
            await place.fresh()

    async def run(self) -> None:
        """List all TrainRuns repeatedly; never returns."""
        async with asyncio.TaskGroup() as group:
            for place in self._places.values():
                group.create_task(place.run())
            await settled(self.listings)
            self.listed.set()

    def _place(self, namespace: str) -> SharedWatchInformer[RunMark] | None:
        return self._places.get(namespace) or self._places.get(EVERYWHERE)

    def _project(self, raw: Raw) -> RunMark:
        self._seen(raw)
        return RunMark(uid=raw["metadata"]["uid"], trial=trial_object(raw))

    def _changed(self, before: RunMark | None, after: RunMark | None) -> None:
        trials = tuple(None if mark is None else mark.trial for mark in (before, after))
        if trials[0] != trials[1]:
            self.on_trial(*trials)
        if before is not None and after is None:
            self._gone(before.uid)


def _no_sweeps(_before: object, _after: object) -> None:
    """The default of `on_trial`: there are no sweeps."""


class SweepIndex:
    """The caches of sweeps and of their runs."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespaces: Sequence[str],
        on_sweep: Callable[[Raw | None, Raw | None], None],
        on_trial: Callable[[str], None],
        runs: RunWatch,
    ) -> None:
        """`namespaces`: those to watch, empty for all; `on_sweep` gets (before, after) of a
        TrainSweep, `on_trial` the uid of the sweep whose run changed; `runs` caches the
        TrainRuns."""
        self._runs = runs
        runs.on_trial = self._trial_changed
        self._on_trial = on_trial
        self._by_sweep: defaultdict[str, dict[str, TrialObject]] = defaultdict(dict)
        self._sweeps = {
            namespace: Informer[Raw](
                api,
                path=TRAINSWEEP.path(namespace),
                params={},
                project=light,
                key=_key,
                on_change=on_sweep,
            )
            for namespace in namespaces or (EVERYWHERE,)
        }

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """The informers of sweeps; the caller runs them."""
        return tuple(self._sweeps.values())

    def follow(self) -> None:
        """From now on report every change, after fresh lists."""
        self._runs.renew()
        for informer in self.informers:
            informer.follow()

    async def listed(self, namespace: str) -> None:
        """Wait until the sweeps and trials of this namespace are listed, without a timeout."""
        await self._of(namespace).synced.wait()
        await self._runs.fresh(namespace)

    def runs(self, sweep_uid: str) -> tuple[TrialRun, ...]:
        """The runs of this sweep's trials."""
        return tuple(trial.run for trial in self._by_sweep.get(sweep_uid, {}).values())

    def learn_sweep(self, raw: Raw) -> None:
        """Store the API server's answer to a write."""
        self._of(raw["metadata"]["namespace"]).learn(raw)

    def forget_trial(self, namespace: str, uid: str) -> None:
        """The API server says that this run is gone."""
        self._runs.forget(namespace, uid)

    def _of(self, namespace: str) -> Informer[Raw]:
        return self._sweeps.get(namespace) or self._sweeps[EVERYWHERE]

    def _trial_changed(self, before: TrialObject | None, after: TrialObject | None) -> None:
        if before is not None:
            runs = self._by_sweep.get(before.sweep_uid, {})
            runs.pop(before.run.uid, None)
            if not runs:
                self._by_sweep.pop(before.sweep_uid, None)
        if after is not None:
            self._by_sweep[after.sweep_uid][after.run.uid] = after
        for uid in {trial.sweep_uid for trial in (before, after) if trial is not None}:
            self._on_trial(uid)


def _key(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
