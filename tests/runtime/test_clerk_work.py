"""A round of a clerk's work: what it counts as work, and what stands in its way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clerk.exchanges import UID, session, spec
from tests.support.memory_store import MemoryStore
from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.run_store import RunStore
from trainrun.errors import StoreDenied, StoreError, StoreMisconfigured
from trainrun.sweep.records import Targets
from trainrun.sweep.view import fold
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.clerking import ClerkOrders
from trainrun_operator.runtime.clerk_work import ClerkWork


class Office:
    """A clerk on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.store = MemoryStore()
        folder = RunStore(self.store, "search")
        self.work = ClerkWork(folder, sweep_uid=UID, clock=lambda: self.now)

    def hear(self, *, working: bool = True, **changes: Any) -> None:
        targets = Targets(session=session(), asked=1)
        self.work.hear(ClerkOrders(spec=spec(**changes), targets=targets, working=working))

    def passes(self, seconds: float) -> None:
        """So long, with a round every five seconds."""
        for _ in range(int(seconds / 5)):
            self.now += 5
            self.work.settle()

    @property
    def counted(self) -> float:
        records = self.work.state().records
        return fold(entry.record for entry in records).active


def test_time_counts_as_work_as_long_as_the_operator_says_so() -> None:
    office = Office()
    for _ in range(100):
        office.hear()
        office.passes(10)
    assert 980 <= office.counted <= 1000


@pytest.mark.slow
def test_hours_without_an_operator_in_which_no_trial_reports_are_no_work() -> None:
    """Else a weekend in which the operator was away would spend budget.activeTime."""
    office = Office()
    office.hear()
    office.passes(48 * 3600)
    assert office.counted <= 70


@pytest.mark.case("sweeps", "No operator is there for hours during a sweep")
def test_without_an_operator_time_counts_while_trials_report() -> None:
    office = Office()
    office.hear()
    office.passes(10)
    metrics, run = MetricsLog(1), RunStore(office.store, "search/trials/00000")
    for step in range(1, 101):
        metrics.write(run, [{"step": step, "rank": 0, "metrics": {"loss": 0.5}}])
        office.passes(30)
    assert 2900 <= office.counted <= 3100


def test_a_spec_of_another_version_is_told_and_what_is_known_of_the_log_stays() -> None:
    office = Office()
    office.hear()
    office.passes(5)
    office.hear(space=[{"name": "lr", "spline": {}}])
    office.passes(5)
    state = office.work.state()
    assert state.trouble is not None
    assert state.trouble.reason == "ClerkUnable"
    assert "this clerk cannot read the spec" in state.trouble.message
    assert state.position == 2

    office.hear()
    office.passes(5)
    assert office.work.state().trouble is None


@pytest.mark.case("sweeps", "The store refuses the clerk")
@pytest.mark.parametrize("error", [StoreDenied, StoreMisconfigured])
def test_a_store_that_refuses_the_clerk_is_told_as_refusing_and_not_as_away(
    error: type[StoreError], monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office()

    def refuse(*_: Any, **__: Any) -> Any:
        raise error("s3://bucket: InvalidAccessKeyId")

    with monkeypatch.context() as patched:
        patched.setattr(office.store, "list", refuse)
        patched.setattr(office.store, "get", refuse)
        office.passes(5)
    told = ClerkUnknown(reason="StorageMisconfigured", message="s3://bucket: InvalidAccessKeyId")
    assert office.work.state().trouble == told
    office.passes(5)
    assert office.work.state().trouble is None
