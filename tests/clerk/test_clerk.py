"""A clerk brings the log to what its operator wants, whoever of the two dies."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.clerk.exchanges import UID, Bureau, session
from tests.kube.waiting import until
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.records import Ask, End, EndedRun
from trainrun_operator.core.sweep.boundary import ClerkUnknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest_asyncio.fixture
async def bureau(tmp_path: Path) -> AsyncIterator[Bureau]:
    opened = await Bureau.open(tmp_path)
    yield opened
    await opened.close()


async def test_what_is_wanted_of_the_log_stands_in_it_and_is_known_here(bureau: Bureau) -> None:
    bureau.start_clerk()
    assert isinstance(bureau.exchange.log(), ClerkUnknown)
    bureau.order(asked=2)
    view = await bureau.view(lambda it: it.asked == 2, "two trials are asked for")
    assert [it.uid for it in view.sessions] == [UID]
    assert all(0.001 <= it.params["lr"] <= 0.1 for it in view.trials.values())

    bureau.order(asked=3)
    assert (await bureau.view(lambda it: it.asked == 3, "a third")).trials[1] == view.trials[1]


async def test_a_trial_is_told_as_ended_with_all_that_it_has_reported(bureau: Bureau) -> None:
    bureau.start_clerk()
    bureau.order(asked=1)
    await bureau.view(lambda it: it.asked == 1, "a trial is asked for")
    bureau.report(0, 0.5, 0.4)
    seen = await bureau.view(lambda it: it.reports == 2, "its reports are read")
    assert seen.trials[0].values == {1: 0.5, 2: 0.4}

    bureau.report(0, 0.5, 0.4, 0.25)
    bureau.order(asked=1, ended=(EndedRun(0, 1, succeeded=True, restarts=2, attempt=1),))
    view = await bureau.view(lambda it: it.count("Succeeded"), "its end is told")
    assert (view.trials[0].value, view.trials[0].restarts) == (0.25, 2)


async def test_a_metric_of_another_name_is_named_with_the_end_of_its_trial(bureau: Bureau) -> None:
    bureau.start_clerk()
    bureau.order(asked=1)
    await bureau.view(lambda it: it.asked == 1, "a trial is asked for")
    bureau.report(0, 0.5, metric="train_loss")
    bureau.order(asked=1, ended=(EndedRun(0, 1, succeeded=True, attempt=1),))
    view = await bureau.view(lambda it: it.count("Errored"), "its end is told")
    assert "never reported loss, only train_loss: call" in view.trials[0].message


@pytest.mark.case("sweeps", "The store refuses the clerk")
async def test_a_store_that_refuses_the_clerk_is_told_and_written_to_once_it_takes_it(
    bureau: Bureau,
) -> None:
    bureau.start_clerk()
    bureau.order(asked=1)
    await bureau.view(lambda it: it.asked == 1, "a trial is asked for")
    log = bureau.folder / "storage" / "search" / "log"
    log.rename(log.with_name("elsewhere"))
    log.write_text("no folder")
    bureau.order(asked=2)
    await until(lambda: _reason(bureau) == "StorageMisconfigured")
    assert str(log) in bureau.exchange.log().message

    log.unlink()
    log.with_name("elsewhere").rename(log)
    view = await bureau.view(lambda it: it.asked == 2, "the next one is asked for")
    assert view.position == 3


async def test_time_counts_while_the_operator_says_that_trials_work(bureau: Bureau) -> None:
    bureau.start_clerk()
    bureau.order(asked=1, working=True)
    await bureau.view(lambda it: it.asked == 1, "a trial is asked for")
    bureau.report(0, 0.5)
    view = await bureau.view(lambda it: it.reports == 1, "its report is read")
    assert 0 < view.active < 60


@pytest.mark.case("sweeps", "The clerk is killed, or its node")
async def test_a_clerk_that_is_killed_is_replaced_by_one_that_knows_all(bureau: Bureau) -> None:
    first = bureau.start_clerk()
    bureau.order(asked=3)
    before = await bureau.view(lambda it: it.asked == 3, "three trials are asked for")
    first.send_signal(signal.SIGKILL)
    first.wait()

    bureau.order(asked=4)
    bureau.start_clerk()
    after = await bureau.view(lambda it: it.asked == 4, "the next clerk asks for a fourth")
    assert {n: after.trials[n].params for n in range(3)} == {
        n: it.params for n, it in before.trials.items()
    }
    assert len(after.sessions) == 1


async def test_two_clerks_at_once_write_each_trial_once(bureau: Bureau) -> None:
    bureau.start_clerk()
    bureau.start_clerk()
    for asked in range(1, 9):
        bureau.order(asked=asked)
        await bureau.view(lambda it, asked=asked: it.asked == asked, f"{asked} trials")
    records = []
    SweepLog(_folder(bureau), on_record=records.append).read_on()
    assert [it.trial for it in records if isinstance(it, Ask)] == list(range(8))


@pytest.mark.case("sweeps", "The operator is killed during a sweep")
async def test_an_operator_that_knows_nothing_gets_a_long_log_piece_by_piece(
    bureau: Bureau,
) -> None:
    log = SweepLog(_folder(bureau))
    log.append(session())
    padding = "x" * 20_000
    for trial in range(60):
        assert log.append(Ask(trial, {"lr": 0.01, "padding": padding}))
    bureau.start_clerk()
    view = await bureau.view(lambda it: it.position == 61, "the whole log")
    assert view == log.view


async def test_an_operator_that_begins_anew_hears_the_clerk_that_is_there(
    bureau: Bureau, tmp_path: Path
) -> None:
    bureau.start_clerk()
    bureau.order(asked=2)
    await bureau.view(lambda it: it.asked == 2, "two trials are asked for")
    await bureau.server.stop()

    again = await Bureau.open(tmp_path, port=bureau.port)
    try:
        view = await again.view(lambda it: it.asked == 2, "the log is known again")
        again.order(asked=2, end=End("Succeeded", "AllTrialsEnded", "done"))
        ended = await again.view(lambda it: it.end is not None, "the new one's orders are heard")
        assert ended.trials == view.trials
    finally:
        await again.close()


async def test_a_sampler_that_its_image_lacks_is_named(bureau: Bureau, tmp_path: Path) -> None:
    blocked = tmp_path / "without" / "optuna"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('no optuna in this image')")
    bureau.start_clerk(pythonpath=str(blocked.parent))
    bureau.order(asked=1, spec_changes={"sampler": {"name": "TPE"}})
    await until(lambda: _reason(bureau) == "ClerkUnable")
    log = bureau.exchange.log()
    assert isinstance(log, ClerkUnknown)
    assert "TPE needs Optuna" in log.message


async def test_a_log_with_a_hole_is_named_and_nothing_is_written(bureau: Bureau) -> None:
    log = SweepLog(_folder(bureau))
    for record in (session(), Ask(0, {"lr": 0.01}), Ask(1, {"lr": 0.02})):
        log.append(record)
    (bureau.folder / "storage" / "search" / "log" / "000000002.json").unlink()
    bureau.order(asked=5)
    bureau.start_clerk()
    await until(lambda: _reason(bureau) == "LogDamaged")
    assert "000000002.json" in bureau.exchange.log().message
    names = sorted(it.name for it in (bureau.folder / "storage" / "search" / "log").iterdir())
    assert names == ["000000001.json", "000000003.json"]


async def test_a_clerk_whose_sweep_was_deleted_ends(bureau: Bureau) -> None:
    clerk = bureau.start_clerk()
    bureau.order(asked=1)
    await bureau.view(lambda it: it.asked == 1, "a trial is asked for")
    bureau.server.clerks.remove(UID)
    await until(lambda: clerk.poll() is not None)
    assert clerk.returncode == 0
    assert clerk.stderr is not None
    assert "is gone" in clerk.stderr.read()


def _folder(bureau: Bureau) -> RunStore:
    return RunStore(bureau.store, "search")


def _reason(bureau: Bureau) -> str:
    log = bureau.exchange.log()
    return log.reason if isinstance(log, ClerkUnknown) else ""
