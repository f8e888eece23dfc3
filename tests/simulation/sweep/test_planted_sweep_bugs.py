"""The judge notices each promise of a sweep when it is broken on purpose."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.sweep.calm import late_session, raised_budget, resumed_error
from tests.simulation.world.sweep.faults import live
from tests.simulation.world.sweep.judge import BrokenPromise
from tests.support.levels import some
from trainrun.checkpoint import sweep_log
from trainrun.checkpoint.numbered_log import NumberedLog
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep import clerk
from trainrun.sweep.records import Ask, SweepSession, Targets
from trainrun.sweep.view import EndAt, SweepView, TrialView, ranked
from trainrun_operator.core.sweep import display, planner, rules
from trainrun_operator.core.sweep.boundary import CreateTrial, DeleteTrial, SweepPlan
from trainrun_operator.runtime import sweep_leader
from trainrun_operator.runtime.clerk_exchange import ClerkExchange
from trainrun_operator.runtime.clerk_work import TrialFolders

SEEDS = 200
"""Lives within which each of these mistakes shows."""

Patch = Callable[[pytest.MonkeyPatch], None]

# --------------------------------------------------------------------------- what the log holds


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


def ends_are_told_twice(patch: pytest.MonkeyPatch) -> None:
    def tell(view: SweepView, targets: Any, search: Any) -> Any:
        trials = {number: replace(it, state="Open") for number, it in view.trials.items()}
        return real(replace(view, trials=trials), targets, search)

    real = clerk._tell
    patch.setattr(clerk, "_tell", tell)


def late_sessions_are_recorded(patch: pytest.MonkeyPatch) -> None:
    def session(view: SweepView, targets: Any) -> Any:
        wanted = targets.session
        return None if view.holds(wanted.uid, wanted.token) else wanted

    patch.setattr(clerk, "_session", session)


def anybody_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SweepView, "led_by", SweepView.holds)


def records_are_written_over_others(patch: pytest.MonkeyPatch) -> None:
    def put_once(self: RunStore, key: str, data: bytes) -> bool:
        self.store.put(self.key(key), data)
        return True

    patch.setattr(RunStore, "put_once", put_once)


def volumes_hold_something_else(patch: pytest.MonkeyPatch) -> None:
    real = NumberedLog._write_full_volumes

    def bind(self: NumberedLog[Any]) -> None:
        kept, self._after_volumes = (
            self._after_volumes,
            [data[:-2] + b" }\n" for data in self._after_volumes],
        )
        real(self)
        self._after_volumes = kept[len(kept) - len(self._after_volumes) :]

    patch.setattr(NumberedLog, "_write_full_volumes", bind)


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


def one_trial_more_is_asked_than_is_wanted(patch: pytest.MonkeyPatch) -> None:
    """Edge case 4."""
    real = clerk._ask
    patch.setattr(
        clerk,
        "_ask",
        lambda view, targets, search, suggest: real(
            view, replace(targets, asked=targets.asked + 1), search, suggest
        ),
    )


def reports_are_counted_again_when_they_come_again(patch: pytest.MonkeyPatch) -> None:
    def on_reports(trial: TrialView, reports: Any) -> tuple[TrialView, int]:
        return real(replace(trial, heard={}), reports)

    real = clerk.on_reports
    patch.setattr(clerk, "on_reports", on_reports)


def values_are_rounded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep_log, "written", lambda value: f"{value:.1f}")


def reports_in_the_store_are_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TrialFolders, "read_on", lambda *_: ())


def results_go_by_what_was_reported_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TrialView,
        "results",
        property(lambda self: dict(itertools.islice(self.values.items(), 2))),
    )


# --------------------------------------------------------------------------- what is wanted


def all_trials_are_asked_for_at_once(patch: pytest.MonkeyPatch) -> None:
    def eager(log: SweepView, observation: Any, config: Any, name: str) -> SweepPlan:
        plan = real(log, observation, config, name)
        more = plan.targets is not None and plan.targets.end is None and not config.suspend
        targets = replace(plan.targets, asked=config.trials) if more else plan.targets
        return replace(plan, targets=targets)

    real = planner._in_progress
    patch.setattr(planner, "_in_progress", eager)


def time_that_is_spent_ends_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_time_spent", lambda *_: None)


# --------------------------------------------------------------------------- what is done


def nobody_says_first_what_is_acted_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SweepPlan, "guarded", property(lambda _: False))
    patch.setattr(sweep_leader, "notable", lambda *_: False)


def runs_are_suspended_before_the_end_is_recorded(patch: pytest.MonkeyPatch) -> None:
    real = planner._in_progress

    def hasty(log: SweepView, observation: Any, config: Any, name: str) -> SweepPlan:
        plan = real(log, observation, config, name)
        going = plan.targets is not None and plan.targets.end is not None
        more = planner._suspended(observation.runs) if going else ()
        return replace(plan, actions=(*plan.actions, *more))

    patch.setattr(planner, "_in_progress", hasty)


def runs_are_deleted_when_they_have_ended(patch: pytest.MonkeyPatch) -> None:
    def deletions(log: SweepView, runs: Any, config: Any) -> tuple[DeleteTrial, ...]:
        return tuple(DeleteTrial(name=run.name, uid=run.uid) for run in runs if run.ended)

    patch.setattr(planner, "deletions", deletions)


def slots_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = rules.fill
    patch.setattr(
        planner,
        "fill",
        lambda log, runs, config, *, name: real(
            log, runs, replace(config, max_concurrent=9, max_unplaced=9), name=name
        ),
    )


def nobody_waits_until_others_have_room(patch: pytest.MonkeyPatch) -> None:
    real = rules.fill
    patch.setattr(
        planner,
        "fill",
        lambda log, runs, config, *, name: real(
            log, runs, replace(config, max_unplaced=9), name=name
        ),
    )


def closed_trials_are_started_again(patch: pytest.MonkeyPatch) -> None:
    def ready(log: SweepView, runs: Any, config: Any) -> Any:
        trials = {number: replace(it, state="Open") for number, it in log.trials.items()}
        return real(replace(log, trials=trials), runs, config)

    real = rules._ready
    patch.setattr(rules, "_ready", ready)


def paused_trials_go_on(patch: pytest.MonkeyPatch) -> None:
    def ready(log: SweepView, runs: Any, config: Any) -> Any:
        return real(log, runs, replace(config, paused=frozenset()))

    real = rules._ready
    patch.setattr(rules, "_ready", ready)


def later_openings_get_other_parameters(patch: pytest.MonkeyPatch) -> None:
    def creation(trial: TrialView, sweep: str) -> CreateTrial:
        made = real(trial, sweep)
        other = replace(trial, params={"lr": 0.5})
        return replace(made, trial=other) if trial.opening > 1 else made

    real = rules.creation
    patch.setattr(rules, "creation", creation)


# --------------------------------------------------------------------------- what is kept


def folders_of_trials_that_the_log_has_lost_are_used_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SweepLog, "_unused", lambda _log, _trial: 1)


def checkpoints_of_errored_trials_are_deleted(patch: pytest.MonkeyPatch) -> None:
    def cleared(log: SweepView, runs: Any, config: Any) -> tuple[int, ...]:
        errored = [it.number for it in log.trials.values() if it.state == "Errored"]
        return (*real(log, runs, config), *errored) if config.best_checkpoints else ()

    real = planner.cleared
    patch.setattr(planner, "cleared", cleared)


def open_trials_count_among_the_best(patch: pytest.MonkeyPatch) -> None:
    def counting(log: SweepView, objective: Any) -> Any:
        found = ranked(log, objective)
        return [replace(it, trial=replace(it.trial, state="Stopped")) for it in found]

    patch.setattr(rules, "ranked", counting)


def nobody_waits_until_all_is_deleted(patch: pytest.MonkeyPatch) -> None:
    done = Targets(session=SweepSession(uid=""), cleared=tuple(range(20)))
    always = property(lambda _: done, lambda _, value: None)
    patch.setattr(ClerkExchange, "carried_out", always, raising=False)


# --------------------------------------------------------------------------- what is said


def a_sweep_is_said_to_be_over_before_its_runs_are_saved(patch: pytest.MonkeyPatch) -> None:
    """Edge case 20."""

    def hasty(log: SweepView, end: EndAt, observation: Any, config: Any) -> SweepPlan:
        plan = real(log, end, observation, config)
        return replace(plan, verdict=replace(plan.verdict, phase=end.record.verdict))

    real = planner._ended
    patch.setattr(planner, "_ended", hasty)


def a_spec_is_said_to_be_acted_on_while_the_log_is_not_known(patch: pytest.MonkeyPatch) -> None:
    def hasty(*given: Any, generation: int, **more: Any) -> Any:
        status = real(*given, generation=generation, **more)
        return replace(status, observed_generation=generation)

    real = display.sweep_status
    patch.setattr(sweep_leader, "sweep_status", hasty)


def pieces_that_do_not_follow_are_taken_for_the_log(patch: pytest.MonkeyPatch) -> None:
    def hear(self: ClerkExchange, state: Any) -> None:
        real(self, replace(state, sent_after=self.view.position))

    real = ClerkExchange.hear
    patch.setattr(ClerkExchange, "hear", hear)


def time_that_is_spent_is_always_a_success(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_results", lambda _view, _config: 1)


def the_worst_is_shown_as_the_best(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(display, "best", lambda *given: next(reversed(ranked(*given)), None))


def messages_are_shown_at_any_length(patch: pytest.MonkeyPatch) -> None:
    real = display._ended
    patch.setattr(display, "_ended", lambda trial: replace(real(trial), message="x" * 6000))


BUGS: list[tuple[Patch, str]] = [
    (anybody_writes, "a session that does not lead"),
    (ends_are_told_twice, "told twice"),
    (records_are_written_over_others, "without asking whether it is there"),
    (volumes_hold_something_else, "is no copy of its records"),
    (trials_are_asked_for_after_the_end, "was asked after the end"),
    (numbers_are_given_by_the_targets, "was asked out of turn"),
    (one_trial_more_is_asked_than_is_wanted, "nobody has wanted trial"),
    (reports_are_counted_again_when_they_come_again, "counted twice"),
    (values_are_rounded, "was never reported"),
    (reports_in_the_store_are_not_read, "it has reported"),
    (results_go_by_what_was_reported_first, "counts with what it did not reach"),
    (all_trials_are_asked_for_at_once, "are asked for ahead"),
    (time_that_is_spent_ends_nothing, "than the budget allows|the budget is spent"),
    (nobody_says_first_what_is_acted_on, "and the status says"),
    (runs_are_suspended_before_the_end_is_recorded, "nothing justifies SuspendTrial"),
    (runs_are_deleted_when_they_have_ended, "is open, and was deleted"),
    (slots_are_not_counted, "trials work at once|asked for ahead"),
    (nobody_waits_until_others_have_room, "trials wait for room at once"),
    (closed_trials_are_started_again, "is closed: CreateTrial"),
    (paused_trials_go_on, "is to wait"),
    (later_openings_get_other_parameters, "no record justifies"),
    (folders_of_trials_that_the_log_has_lost_are_used_again, "in the folder of another trial"),
    (checkpoints_of_errored_trials_are_deleted, "was deleted, and the trial is Errored"),
    (open_trials_count_among_the_best, "was deleted, and the trial is one of the best"),
    (nobody_waits_until_all_is_deleted, "is not needed, and has left"),
    (a_sweep_is_said_to_be_over_before_its_runs_are_saved, "the sweep is over, and|and has left"),
    (pieces_that_do_not_follow_are_taken_for_the_log, "the status counts|it came to no end"),
    (time_that_is_spent_is_always_a_success, "it has no result, and its end is"),
    (the_worst_is_shown_as_the_best, "the best is"),
    (messages_are_shown_at_any_length, "the status has"),
]


def by_name(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("bug", "said"), some(BUGS, quick=3), ids=by_name)
def test_the_judge_notices_that(bug: Patch, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    with pytest.raises(BrokenPromise, match=said):
        all_lives()


def test_a_late_session_that_ends_the_newer_one_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    late_sessions_are_recorded(monkeypatch)

    assert [it.uid for it in late_session().sessions] == ["uid-1.0", "uid-0.0"]


def test_a_run_that_is_told_for_a_later_opening_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    ends_are_told_whatever_the_opening(monkeypatch)

    with pytest.raises(BrokenPromise, match="no run has ended so"):
        resumed_error()


def test_a_budget_that_is_forgotten_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    a_spec_is_said_to_be_acted_on_while_the_log_is_not_known(monkeypatch)

    assert raised_budget().asked == 4


def all_lives() -> None:
    for seed in range(SEEDS):
        live(seed)
