"""The status of a sweep, for 3 trials and for 1,000."""

from __future__ import annotations

import dataclasses
import json

from tests.support.sweeps import a_config, a_run, a_search, a_view, asked, decided, reported, told
from trainrun.sweep.records import Ask, End
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.core.sweep.display import status_of_log, sweep_status
from trainrun_operator.core.sweep.observation import ClerkUnknown, SweepObservation
from trainrun_operator.core.sweep.planner import decide_sweep


def test_it_tells_what_runs_what_ended_and_what_is_ahead() -> None:
    log = a_view(
        *map(asked, range(3)),
        reported(2, s1=0.25),
        told(0, message="", value="0.5", step=7, restarts=2),
        told(1, "Errored", reason="Hung", message="no step for 5 min"),
    )
    observation, config = SweepObservation(log=log, runs=(a_run(2),)), a_config()

    status = sweep_status(observation, config, decided(log, a_run(2)), before=TrainSweepStatus())

    assert (status.phase, status.trials.text, status.asked, status.position) == (
        "Running",
        "2/4",
        3,
        7,
    )
    assert (status.trials.open, status.trials.succeeded, status.trials.errored) == (1, 1, 1)
    assert status.best is not None
    assert (status.best.trial, status.best.value, status.best.step) == (2, "0.25", 1)
    assert status.best.params == {"lr": 0.1 * 3}
    assert status.running == (2,)
    assert [(it.trial, it.state, it.value, it.restarts) for it in status.last_ended] == [
        (0, "Succeeded", "0.5", 2),
        (1, "Errored", "", 0),
    ]
    assert status.active_seconds == 1


def test_the_best_value_is_told_exactly_and_in_six_digits() -> None:
    exact = 0.8493827160493827
    log = a_view(asked(0), told(0, value=str(exact), step=3))
    best = status_of_log(log, a_search().objective, trials=None).best
    assert best is not None
    assert (best.value, best.text) == (str(exact), "0.849383")


def test_what_was_said_of_the_trials_stays_while_the_log_is_not_known() -> None:
    before = TrainSweepStatus(phase="Running", asked=7, position=9)
    unknown = SweepObservation(log=ClerkUnknown(message="the store is away"))
    plan = decide_sweep(unknown, a_config(), name="s")

    begun = SweepObservation(log=a_view())
    nothing = sweep_status(begun, a_config(), decided(a_view()), before=TrainSweepStatus())
    assert (nothing.best, nothing.trials.text) == (None, "0/4")
    status = sweep_status(unknown, a_config(), plan, before=before)

    assert (status.phase, status.asked, status.position) == ("Running", 7, 9)
    assert (status.reason, status.message) == ("ClerkNotHeard", "the store is away")


def test_the_log_alone_says_as_what_a_sweep_has_ended() -> None:
    objective = a_search().objective
    open_ = status_of_log(a_view(asked(0), told(0), asked(1)), objective, trials=None)
    assert (open_.phase, open_.reason, open_.trials.text) == ("Running", "Unfinished", "1")
    over = a_view(asked(0), told(0), End("Succeeded", "AllTrialsEnded", "all of them"))
    status = status_of_log(over, objective, trials=3)
    assert (status.phase, status.reason, status.message, status.trials.text) == (
        *("Succeeded", "AllTrialsEnded", "all of them"),
        "1/3",
    )


def test_a_status_is_small_whatever_the_number_of_trials() -> None:
    """(g) of the acceptance: under 16 KiB at 1,000 trials."""
    long = {f"p{it}": "x" * 1000 for it in range(64)}
    log = a_view(
        *(Ask(it, long) for it in range(1000)),
        *(told(it, "Errored", message="é" * 9000) for it in range(500)),
        told(500),
    )
    runs = tuple(a_run(it) for it in range(501, 1000))
    observation, config = SweepObservation(log=log, runs=runs), a_config(search=a_search())

    status = sweep_status(observation, config, decided(log, *runs), before=TrainSweepStatus())

    assert status.best is not None
    assert (status.best.trial, status.best.params, len(status.running)) == (500, {}, 32)
    text = json.dumps(dataclasses.asdict(status), ensure_ascii=False).encode()
    assert len(text) < 16 << 10
