"""TrainSweeps and the runs of their trials, as the informers last saw them.

Layer: cluster. Where the CRD of TrainSweep is missing there are no sweeps; no run waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.core.sweep.observation import TrialRun
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.informer import Informer
from trainrun_operator.worlds.kubernetes.names import SWEEP_UID_LABEL
from trainrun_operator.worlds.kubernetes.sweeping.sweep_object import light
from trainrun_operator.worlds.kubernetes.sweeping.trial_object import TrialObject, trial_object

EVERYWHERE = ""
"""The namespace that stands for all."""

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
    ) -> None:
        """`namespaces`: those to watch, none for all; `on_sweep` gets (before, after) of a
        TrainSweep, `on_trial` the uid of the sweep whose run has changed."""
        self._on_trial = on_trial
        self._by_sweep: defaultdict[str, dict[str, TrialObject]] = defaultdict(dict)
        places = namespaces or (EVERYWHERE,)
        self._sweeps = {
            namespace: Informer[Raw](
                api,
                path=TRAINSWEEP.path(namespace),
                params={},
                project=light,
                key=_key,
                on_change=on_sweep,
            )
            for namespace in places
        }
        self._trials = {
            namespace: Informer[TrialObject](
                api,
                path=TRAINRUN.path(namespace),
                params={"labelSelector": SWEEP_UID_LABEL},
                project=trial_object,
                key=lambda trial: f"{trial.namespace}/{trial.run.name}",
                on_change=self._trial_changed,
            )
            for namespace in places
        }

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All of them, to be run."""
        return (*self._sweeps.values(), *self._trials.values())

    def follow(self) -> None:
        """From now on see every change, after fresh lists."""
        for informer in self.informers:
            informer.follow()

    async def listed(self, namespace: str) -> None:
        """Wait until the sweeps and trials of this namespace are listed, however long."""
        for informers in (self._sweeps, self._trials):
            await self._informer(informers, namespace).synced.wait()

    def runs(self, sweep_uid: str) -> tuple[TrialRun, ...]:
        """The runs of this sweep's trials."""
        return tuple(it.run for it in self._by_sweep.get(sweep_uid, {}).values())

    def learn_sweep(self, raw: dict[str, Any]) -> None:
        """Take what the API server answered to a write."""
        self._informer(self._sweeps, raw["metadata"]["namespace"]).learn(raw)

    def learn_trial(self, raw: dict[str, Any]) -> None:
        """Take what the API server answered to a write."""
        self._informer(self._trials, raw["metadata"]["namespace"]).learn(raw)

    def forget_trial(self, namespace: str, run: TrialRun) -> None:
        """The API server says that it is gone."""
        self._informer(self._trials, namespace).forget(f"{namespace}/{run.name}", run.uid)

    def _informer(self, of: dict[str, Informer[Any]], namespace: str) -> Informer[Any]:
        return of.get(namespace) or of[EVERYWHERE]

    def _trial_changed(self, before: TrialObject | None, after: TrialObject | None) -> None:
        for gone in (before,) if before is not None else ():
            runs = self._by_sweep.get(gone.sweep_uid, {})
            runs.pop(gone.run.uid, None)
            if not runs:
                self._by_sweep.pop(gone.sweep_uid, None)
        if after is not None:
            self._by_sweep[after.sweep_uid][after.run.uid] = after
        for uid in {it.sweep_uid for it in (before, after) if it is not None}:
            self._on_trial(uid)


def _key(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
