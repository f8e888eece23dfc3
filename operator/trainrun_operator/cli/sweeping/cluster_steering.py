"""Trials paused, stopped and resumed in the TrainSweep of a cluster, with the user's own rights.

Layer: cli. Written over the version that it follows from: two users do not undo each other's
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import TrainRunError
from trainrun.sweep.view import TrialView
from trainrun_operator.cli.sweeping.loading import store_of
from trainrun_operator.cli.sweeping.orders import (
    Follow,
    KnownTrials,
    Order,
    Steered,
    edit_of,
)
from trainrun_operator.worlds.kubernetes.reading import change_sweep

if TYPE_CHECKING:
    from trainrun.sweep.records import TrialState
    from trainrun_operator.api.sweep.status import TrainSweepStatus
    from trainrun_operator.cli.cluster_names import ClusterName
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion


def steer_in_cluster(follow: Follow, name: ClusterName, trials: tuple[int, ...]) -> Steered:
    """Change the object. Raises InvalidSpec, and what a cluster answers."""
    deciding = _Deciding(follow=follow, trials=trials)
    change_sweep(name.name, name.namespace, deciding.fields)
    assert deciding.steered is not None, "it was asked at least once"
    return deciding.steered


@dataclass(slots=True, kw_only=True)
class _Deciding:
    """For one version after the other, where others write as well."""

    follow: Follow
    trials: tuple[int, ...]
    steered: Steered | None = None
    known: KnownTrials | None = None
    """Read once: whole seconds, in which others would write again."""

    def fields(self, version: SweepVersion) -> Mapping[str, object]:
        if self.known is None:
            self.known = _known(version) if self.trials else KnownTrials(trials={})
        where = version.where
        order = Order(where=where, sweep=version.sweep, trials=self.trials, known=self.known)
        edit = edit_of(self.follow, order)
        self.steered = Steered(where=where, edit=edit, follows=_who_follows(version))
        return edit.changes


def _known(version: SweepVersion) -> KnownTrials:
    """The trials of the log; where it cannot be read those that the operator tells of, and why: the
    spec can be changed all the same."""
    sweep = version.sweep
    try:
        view = SweepLog(RunStore(store_of(sweep), sweep.sweep_name)).read_on()
    except TrainRunError as error:
        trouble = f"whether these trials are open is not known, the log cannot be read: {error}"
        return KnownTrials(trials=_told(version.status), trouble=trouble)
    return KnownTrials(trials=view.trials)


def _told(status: TrainSweepStatus) -> dict[int, TrialView]:
    """What the operator says of trials: it tells of a few."""
    running = {it: TrialView(it, {}) for it in status.running}
    ended = {
        it.trial: TrialView(it.trial, {}, state=cast("TrialState", it.state), reason=it.reason)
        for it in status.last_ended
    }
    return {**running, **ended}


def _who_follows(version: SweepVersion) -> str:
    if version.status.holder:
        return "the operator takes it up"
    return "no operator leads the sweep yet, the first one that does goes by it"
