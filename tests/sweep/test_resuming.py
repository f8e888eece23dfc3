"""What a new session does: Ray's own tables of iterations, by the four combinations of flags.

A script trains two iterations and reports each; once, trials fail or hang after the first one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.sweeps import a_search, a_view, asked, begun, report, told
from trainrun.sweep.records import Reports
from trainrun.sweep.view import SweepView, fold, own_value

ITERATIONS = 2


def one(trial: int) -> Reports:
    return Reports((report(trial, 1, 1),))


ERRORED = a_view(
    *map(asked, range(4)),
    *(record for it in (0, 2) for record in (one(it), Reports((report(it, 2, 2),)), told(it))),
    *(record for it in (1, 3) for record in (one(it), told(it, "Errored"))),
)
"""Iterations 2, 1, 2, 1: the second and the fourth have failed."""
UNFINISHED = a_view(
    *map(asked, range(4)),
    one(0),
    Reports((report(0, 2, 2),)),
    told(0),
    one(1),
    one(2),
    told(2, "Errored"),
)
"""Iterations 2, 1, 1, 0: ended, interrupted, failed, never started."""


def trained_to_the_end(view: SweepView) -> list[int]:
    """The iterations of each trial, once every open one has trained twice more."""
    for trial in view.trials.values():
        if trial.open:
            had = max(trial.results, default=0)
            more = [
                replace(
                    report(trial.number, had + it, had + it),
                    incarnation=trial.incarnation,
                    attempt=max(trial.resumed, default=0) + 1,
                    resumed=had,
                    seq=it,
                )
                for it in range(1, ITERATIONS + 1)
            ]
            view = fold([Reports(tuple(more))], view)
    owns = [own_value(trial, a_search().objective) for trial in view.trials.values()]
    return [0 if own is None else int(own.value) for own in owns]


@pytest.mark.parametrize(
    ("before", "flags", "iterations"),
    [
        (ERRORED, {"resume_errored": True}, [2, 3, 2, 3]),
        (ERRORED, {"restart_errored": True}, [2, 2, 2, 2]),
        (UNFINISHED, {}, [2, 3, 1, 2]),
        (UNFINISHED, {"resume_unfinished": False, "resume_errored": True}, [2, 1, 3, 0]),
    ],
    ids=["resume errored", "restart errored", "resume unfinished", "errored alone"],
)
def test_the_flags_give_rays_own_table_of_iterations(
    before: SweepView, flags: dict[str, Any], iterations: list[int]
) -> None:
    taken_up = fold([begun(uid="again", **flags)], before)

    assert trained_to_the_end(taken_up) == iterations


def test_the_four_hundred_that_were_never_started_are_resumed_too() -> None:
    """Edge case 3."""
    view = fold([begun(uid="again")], a_view(*map(asked, range(400))))

    assert view.count("Open") == 400


def test_a_resume_of_errored_trials_alone_resumes_them() -> None:
    """Edge case 6."""
    flags: dict[str, Any] = {"resume_unfinished": False, "resume_errored": True}
    view = fold([begun(uid="again", **flags)], UNFINISHED)

    assert [it.state for it in view.trials.values()] == ["Succeeded", "Skipped", "Open", "Skipped"]
    assert view.trials[1].reason == "ResumeUnfinishedFalse"


def test_a_resumed_trial_keeps_its_folder_and_has_a_run_of_its_own() -> None:
    resumed = fold([begun(uid="again", resume_errored=True)], ERRORED).trials[1]
    restarted = fold([begun(uid="again", restart_errored=True)], ERRORED).trials[1]

    assert (resumed.opening, resumed.incarnation, resumed.results) == (2, 1, {1: 1.0})
    assert (restarted.opening, restarted.incarnation, restarted.results) == (2, 2, {})
    assert (resumed.reason, resumed.value) == ("", None)


def test_a_session_holds_once_and_lifts_the_end() -> None:
    """Edge case 8: a sweep that failed fast can be taken up again."""
    again = begun(uid="again", resume_errored=True)
    once = fold([again], ERRORED)
    told_again = fold([told(1, "Errored", opening=2), again], once)

    assert told_again.trials[1].state == "Errored"
    assert told_again.sessions == (begun(), again)
