"""The runs of a local sweep's trials."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.support.sweeps import a_view, asked
from trainrun_operator.cli.local_run import LocalServer
from trainrun_operator.cli.sweeping.news import SweepNews, TrialStarted
from trainrun_operator.cli.sweeping.preparation import prepare_sweep
from trainrun_operator.cli.sweeping.trials import LocalTrials
from trainrun_operator.core.sweep.plan import CreateTrial
from trainrun_operator.runtime.agents import RunAgents


class Listener:
    """Counts starts."""

    def __init__(self) -> None:
        self.starts = 0

    def emit(self, news: SweepNews) -> None:
        self.starts += isinstance(news, TrialStarted)

    def say(self, text: str) -> None:
        raise AssertionError(text)


class NoServer(LocalServer):
    """On which no run can be led."""

    def add(self, agents: RunAgents) -> None:
        raise OSError("no port is left")


async def test_a_run_that_cannot_be_led_at_all_ends_the_command_and_is_not_started_again(
    sweeps: Sweeps,
) -> None:
    prepared = prepare_sweep(sweeps.file(), replicas=None, storage=None, faults=())
    prepared.make_places()
    listener, ended, view = Listener(), asyncio.Event(), a_view(asked(0))
    trials = LocalTrials(prepared, NoServer(), sink=listener, wake=ended.set)
    trials.check()
    params = {"lr": 0.1, "width": 1}
    action = CreateTrial(name="lr-00000", trial=0, opening=1, folder="00000", params=params)
    assert trials.apply(action, view)
    async with asyncio.timeout(30):
        await ended.wait()

    with pytest.raises(OSError, match="no port is left"):
        trials.check()
    assert listener.starts == 1
    assert trials.working == []
