"""The judge notices each promise of a sweep when it is broken on purpose."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.levels import some
from trainrun.sweep import clerk
from trainrun.sweep.records import Ask
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.core.sweep import planner, slots
from trainrun_operator.core.sweep.plan import DeleteTrial, SweepPlan
from trainrun_operator.simulation.sweep import actors
from trainrun_operator.simulation.sweep.judge import BrokenPromise
from trainrun_operator.simulation.sweep.life import SweepLife

SEEDS = 150
"""Lives within which each of these mistakes shows."""

Patch = Callable[[pytest.MonkeyPatch], None]


def ends_are_told_whatever_the_opening(patch: pytest.MonkeyPatch) -> None:
    def is_open(log: SweepView, run: Any) -> bool:
        return run.trial in log.trials and log.trials[run.trial].open

    def tell(view: SweepView, targets: Any, search: Any) -> Any:
        known = [run for run in targets.ended if run.trial in view.trials]
        ended = tuple(replace(it, opening=view.trials[it.trial].opening) for it in known)
        return real(view, replace(targets, ended=ended), search)

    real = clerk._tell
    patch.setattr(planner, "_is_open", is_open)
    patch.setattr(clerk, "_tell", tell)


def late_sessions_are_recorded(patch: pytest.MonkeyPatch) -> None:
    def session(view: SweepView, targets: Any) -> Any:
        wanted = targets.session
        return None if view.holds(wanted.uid, wanted.token) else wanted

    patch.setattr(clerk, "_session", session)


def anybody_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SweepView, "led_by", SweepView.holds)


def runs_are_suspended_before_the_end_is_recorded(patch: pytest.MonkeyPatch) -> None:
    real = planner._going_on

    def hasty(log: SweepView, observation: Any, config: Any, name: str) -> SweepPlan:
        plan = real(log, observation, config, name)
        ending = plan.targets is not None and plan.targets.end is not None
        more = planner._suspended(observation.runs) if ending else ()
        return replace(plan, actions=(*plan.actions, *more))

    patch.setattr(planner, "_going_on", hasty)


def runs_are_deleted_when_they_have_ended(patch: pytest.MonkeyPatch) -> None:
    def deletions(log: SweepView, runs: Any, config: Any) -> tuple[DeleteTrial, ...]:
        return tuple(DeleteTrial(name=run.name, uid=run.uid) for run in runs if run.ended)

    patch.setattr(planner, "deletions", deletions)


def slots_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = slots.fill
    patch.setattr(
        planner,
        "fill",
        lambda log, runs, config, *, name: real(
            log, runs, replace(config, max_concurrent=9, max_unplaced=9), name=name
        ),
    )


def trials_are_asked_for_after_the_end(patch: pytest.MonkeyPatch) -> None:
    def ask(view: SweepView, targets: Any, search: Any, suggest: Any) -> Ask | None:
        return (
            Ask(view.asked, {})
            if view.end is not None and view.asked < 12
            else real(view, targets, search, suggest)
        )

    real = clerk._ask
    patch.setattr(clerk, "_ask", ask)


def numbers_are_given_by_the_targets(patch: pytest.MonkeyPatch) -> None:
    def ask(view: SweepView, targets: Any, search: Any, _suggest: Any) -> Ask | None:
        return None if view.asked >= targets.asked else Ask(targets.asked - 1, {"lr": 0.5})

    patch.setattr(clerk, "_ask", ask)


def results_go_by_what_was_reported_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TrialView,
        "results",
        property(lambda self: dict(itertools.islice(self.values.items(), 2))),
    )


def reports_in_the_store_are_not_read(patch: pytest.MonkeyPatch) -> None:
    real = actors.next_record
    patch.setattr(
        actors,
        "next_record",
        lambda view, targets, search, *, active, stored: real(view, targets, search, active=active),
    )


BUGS: list[tuple[Patch, str]] = [
    (late_sessions_are_recorded, "it came to no end|does not lead"),
    (anybody_writes, "a session that does not lead"),
    (runs_are_suspended_before_the_end_is_recorded, "nothing justifies SuspendTrial"),
    (runs_are_deleted_when_they_have_ended, "is open, and was deleted"),
    (slots_are_not_counted, "trials work at once"),
    (trials_are_asked_for_after_the_end, "was asked after the end"),
    (numbers_are_given_by_the_targets, "was asked out of turn"),
    (results_go_by_what_was_reported_first, "counts with what it did not reach"),
    (ends_are_told_whatever_the_opening, "no run has ended so"),
    (reports_in_the_store_are_not_read, "counts with what it did not reach|it has reported"),
]


def by_name(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("bug", "said"), some(BUGS, quick=3), ids=by_name)
def test_the_judge_notices_that(bug: Patch, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    with pytest.raises(BrokenPromise, match=said):
        all_lives()


def all_lives() -> None:
    for seed in range(SEEDS):
        SweepLife(seed).live()
