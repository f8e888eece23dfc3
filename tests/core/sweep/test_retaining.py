"""Whose checkpoints a sweep does not need any more."""

from __future__ import annotations

from typing import Any

from tests.support.sweeps import a_config, a_run, a_search, a_view, asked, decided, reported, told
from trainrun.sweep.records import End, Record
from trainrun.sweep.view import fold
from trainrun_operator.core.sweep.rules import cleared


def of(*records: Record, runs: tuple[Any, ...] = (), **config: Any) -> tuple[int, ...]:
    numbers = range(6)
    view = a_view(*(asked(it) for it in numbers), *records)
    return cleared(view, runs, a_config(**{"best_checkpoints": 2, **config}))


ENDED = tuple(told(it, value=str(0.1 * (it + 1))) for it in range(5))


def test_the_best_ones_and_those_that_are_open_keep_their_checkpoints() -> None:
    assert of(*ENDED) == (2, 3, 4)


def test_an_open_trial_that_is_ahead_displaces_no_checkpoint() -> None:
    """It may diverge, or end worse: then the best ones would be gone."""
    assert of(*ENDED, reported(5, s1=0.01)) == (2, 3, 4)


def test_where_much_is_better_the_greatest_are_the_best() -> None:
    assert of(*ENDED, search=a_search(goal="maximize")) == (0, 1, 2)


def test_an_errored_trial_may_go_on_from_what_it_saved() -> None:
    assert of(told(0, state="Errored"), told(1, value="0.1"), told(2, value="0.2")) == ()


def test_diverged_and_skipped_trials_are_never_the_best() -> None:
    assert of(told(0, state="Diverged", value="nan"), told(1, state="Skipped")) == (0, 1)


def test_nothing_goes_while_the_run_of_the_trial_is_there() -> None:
    assert of(*ENDED, runs=(a_run(3, "Succeeded"),)) == (2, 4)


def test_without_a_number_everything_stays() -> None:
    assert of(*ENDED, best_checkpoints=None) == ()


def test_it_is_ordered_while_the_sweep_goes_on_and_once_it_has_ended() -> None:
    view = a_view(*(asked(it) for it in range(4)), *ENDED[:4])
    config = a_config(best_checkpoints=1)
    ending = decided(view, config=config)
    ended = decided(fold([End("Succeeded", "AllTrialsEnded", "")], view), config=config)
    for plan in (ending, ended):
        assert plan.targets is not None
        assert plan.targets.cleared == (1, 2, 3)
