"""RunSettings that are edited while workers live: agents take the newest ones from answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.agent.checkpoints.test_checkpoints import PRELUDE, SAVE_THREE
from tests.agent.workers import start
from tests.support.eventually import eventually
from trainrun.contract.answer import Exit, Hold, ResolveRequest, RunSettings

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn


def settings(**fields: float | str) -> RunSettings:
    return RunSettings(**({"flush_timeout": 30.0} | fields))  # type: ignore[arg-type]


def commit_six(operator: OperatorStandIn, workers: Workers) -> None:
    """A worker that keeps ten saves steps 1 to 6."""
    workers.start(PRELUDE + "for s in range(1, 7): save(s)", settings=settings(keep=10))
    operator.order(Hold(attempt=1, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    operator.until(lambda s: s.committed and s.committed.id.step == 6)


def test_a_report_that_waits_for_room_goes_on_when_the_user_raises_max_pending(
    operator: OperatorStandIn, workers: Workers
) -> None:
    # The folder for storage is missing: nothing can be uploaded.
    worker = workers.start(
        SAVE_THREE,
        settings=settings(max_pending=1),
    )
    operator.order(start())
    operator.until(lambda s: s.stall > 0)
    worker.shows("saved 1")
    operator.also(settings=settings(max_pending=2))
    worker.shows("saved 2")
    state = operator.until(lambda s: len(s.staged) == 2)
    assert [entry.step for entry in state.staged] == [1, 2]
    assert "saved 3" not in worker.output


def test_the_next_attempt_begins_with_the_settings_that_were_told_last(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(
        SAVE_THREE,
        settings=settings(max_pending=1),
    )
    operator.order(Hold(attempt=1), settings=settings(max_pending=1))
    operator.until(lambda s: s.held)
    operator.order(start(), settings=settings(max_pending=3))
    worker.shows("saved 3")


def test_checkpoints_that_the_user_does_not_want_to_keep_any_more_are_deleted(
    operator: OperatorStandIn, workers: Workers
) -> None:
    commit_six(operator, workers)
    assert len(list((workers.storage / "run/checkpoints").glob("*/manifest.json"))) == 6

    operator.order(Exit(succeeded=True), settings=settings(keep=2))

    def steps() -> list[str]:
        found = (workers.storage / "run/checkpoints").glob("*/manifest.json")
        return sorted(path.parent.name[:14] for path in found)

    eventually(lambda: steps() == ["step-000000005", "step-000000006"], what=str(steps()))


def test_the_metric_by_which_the_user_wants_the_best_kept_reaches_agents_that_run(
    operator: OperatorStandIn, workers: Workers
) -> None:
    commit_six(operator, workers)

    def steps() -> list[int]:
        found = (workers.storage / "run/checkpoints").glob("*/manifest.json")
        return sorted(int(path.parent.name[5:14]) for path in found)

    assert steps() == [1, 2, 3, 4, 5, 6]
    score = settings(keep=2, score_metric="step", score_order="Min")
    operator.order(Exit(succeeded=True), settings=score)
    eventually(lambda: steps() == [1, 2, 5, 6], what=str(steps()))
