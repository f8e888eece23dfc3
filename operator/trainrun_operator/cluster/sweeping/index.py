"""TrainSweeps and the runs of their trials, as they were last seen.

Layer: cluster. Where the CRD of TrainSweep is missing there are no sweeps; no run waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.cluster.watch import RunWatch
from trainrun_operator.core.sweep.observation import TrialRun
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.informer import Informer
from trainrun_operator.kube.list_state import EVERYWHERE
from trainrun_operator.worlds.kubernetes.sweeping.sweep_object import light
from trainrun_operator.worlds.kubernetes.sweeping.trial_object import TrialObject

Raw = Mapping[str, Any]


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
        """`namespaces`: those to watch, none for all; `on_sweep` gets (before, after) of a
        TrainSweep, `on_trial` the uid of the sweep whose run has changed; `runs` knows the
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
        """Of sweeps, to be run."""
        return tuple(self._sweeps.values())

    def follow(self) -> None:
        """From now on see every change, after fresh lists."""
        self._runs.renew()
        for informer in self.informers:
            informer.follow()

    async def listed(self, namespace: str) -> None:
        """Wait until the sweeps and trials of this namespace are listed, however long."""
        await self._of(namespace).synced.wait()
        await self._runs.fresh(namespace)

    def runs(self, sweep_uid: str) -> tuple[TrialRun, ...]:
        """The runs of this sweep's trials."""
        return tuple(it.run for it in self._by_sweep.get(sweep_uid, {}).values())

    def learn_sweep(self, raw: dict[str, Any]) -> None:
        """Take what the API server answered to a write."""
        self._of(raw["metadata"]["namespace"]).learn(raw)

    def learn_trial(self, raw: dict[str, Any]) -> None:
        """Take what the API server answered to a write."""
        self._runs.learn(raw)

    def forget_trial(self, namespace: str, uid: str) -> None:
        """The API server says that it is gone."""
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
        for uid in {it.sweep_uid for it in (before, after) if it is not None}:
            self._on_trial(uid)


def _key(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
