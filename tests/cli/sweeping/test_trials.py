"""The runs of a local sweep's trials."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.sweeping.local_sweeps import Sweeps
from trainrun.sweep.view import TrialView
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.local_run import LocalServer
from trainrun_operator.cli.sweeping.local_sweep import LocalSweep
from trainrun_operator.cli.sweeping.preparation import WatchedFile, prepare_sweep
from trainrun_operator.cli.sweeping.sweep_events import SweepNews, TrialStarted
from trainrun_operator.cli.sweeping.trials import LocalTrials
from trainrun_operator.core.sweep.boundary import CreateTrial, SuspendTrial
from trainrun_operator.runtime.agents import RunAgents


class Listener:
    """Counts starts."""

    def __init__(self) -> None:
        self.starts = 0

    def emit(self, news: SweepNews) -> None:
        self.starts += isinstance(news, TrialStarted)

    def say(self, text: str) -> None:
        assert text.startswith("saving all trials"), text


class NoServer(LocalServer):
    """On which no run can be led."""

    def add(self, agents: RunAgents) -> None:
        raise OSError("no port is left")


async def test_a_run_that_cannot_be_led_at_all_ends_the_command_and_is_not_started_again(
    sweeps: Sweeps,
) -> None:
    prepared = prepare_sweep(RunOptions(file=sweeps.file()))
    prepared.make_places()
    listener, ended = Listener(), asyncio.Event()
    trials = LocalTrials(prepared=prepared, server=NoServer(), sink=listener, wake=ended.set)
    trials.check()
    params = {"lr": 0.1, "width": 1}
    action = CreateTrial(name="lr-00000", trial=TrialView(0, params))
    assert trials.apply(action)
    async with asyncio.timeout(30):
        await ended.wait()

    with pytest.raises(OSError, match="no port is left"):
        trials.check()
    assert listener.starts == 1
    assert trials.working == []


async def test_a_trial_that_was_about_to_begin_when_its_user_stopped_the_sweep_does_not(
    sweeps: Sweeps,
) -> None:
    prepared = prepare_sweep(RunOptions(file=sweeps.file()))
    prepared.make_places()
    listener = Listener()
    sweep = LocalSweep(
        prepared, uid="uid", sink=listener, file=WatchedFile(prepared, lambda: prepared)
    )
    actions = [
        CreateTrial(name="lr-00000", trial=TrialView(0, {"lr": 0.1, "width": 1})),
        SuspendTrial(name="lr-00001", uid="lr-00001", suspend=False),
    ]
    sweep._interrupt()
    async with sweep.look() as seen:
        for action in actions:
            await sweep.apply(seen, action)

    assert listener.starts == 0
