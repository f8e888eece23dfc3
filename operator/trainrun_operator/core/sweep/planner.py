"""decide_sweep: from an observation of a sweep to a plan.

Layer: core, pure and total. The rules are listed in order of precedence. Invariants: a run is
created, suspended or deleted only if the log asks for it; a view older than the position that was
acted on decides nothing; silence of the clerk or the store never disturbs a training.
"""

from __future__ import annotations

import math
from dataclasses import replace

from trainrun.sweep.records import EndedRun, SweepSession, Targets
from trainrun.sweep.view import EndAt, SweepView
from trainrun_operator.api.sweep.status import SweepPhase
from trainrun_operator.core.sweep.boundary import (
    ClerkUnknown,
    SuspendTrial,
    SweepObservation,
    SweepPlan,
    SweepVerdict,
    TrialAction,
    TrialRun,
)
from trainrun_operator.core.sweep.config import SweepConfig, changed_fields, in_sweep
from trainrun_operator.core.sweep.rules import Slots, cleared, deletions, endings, fill, time_left

LOOK_AGAIN = 5.0
"""Seconds between passes while the sweep waits for something that may not announce itself."""


def decide_sweep(observation: SweepObservation, config: SweepConfig, *, name: str) -> SweepPlan:
    """The plan for one observation of the sweep of this name."""
    log = observation.log
    if isinstance(log, ClerkUnknown):
        return _wait("Pending", log.reason, log.message)
    if log.position < observation.acted_on:
        message = (
            f"the operator acted on record {observation.acted_on} of the log, but only "
            f"{log.position} are known. If this persists, newer records are lost: put them back, "
            "or delete the TrainSweep and apply it again, which continues from record "
            f"{log.position}"
        )
        return _wait("Running", "LogBehind", message)
    newest = max(
        (session.token for session in log.sessions if session.uid == config.uid), default=0
    )
    if newest > config.token:
        message = f"the log has resume.token {newest}, newer than {config.token} in the spec"
        return _wait("Running", "SpecBehind", message)
    if not log.holds(config.uid, config.token):
        return _take_up(log, observation, config)
    if not log.led_by(config.uid, config.token):
        return _superseded(log, observation.runs)
    if (changed := _changed(log, config)) is not None:
        return _set_aside(changed, observation.runs)
    if log.end is not None:
        plan = _ended(log, log.end, observation, config)
    else:
        plan = _in_progress(log, observation, config, name)
    message = plan.verdict.message + _without_token(log, config)
    return replace(plan, verdict=replace(plan.verdict, message=message))


# ------------------------------------------------------------------------------ who leads it


def _take_up(log: SweepView, observation: SweepObservation, config: SweepConfig) -> SweepPlan:
    """Record a session before anything else."""
    if (refusal := _refusal(log, config)) is not None:
        return SweepPlan(verdict=refusal, over=True)
    if observation.in_use:
        return _wait("Pending", "StorageInUse", observation.in_use)
    message = "resuming the sweep" if log.sessions else "starting the log"
    plan = _wait("Pending", "TakingUp", message)
    targets = replace(_session(config), after=len(log.sessions))
    return replace(plan, targets=targets, takes_up=True)


def _changed(log: SweepView, config: SweepConfig) -> SweepVerdict | None:
    """Checked also after our own session: a file may change while no operator leads, an object at
    any time."""
    if not log.sessions or log.sessions[0].spec == config.immutable:
        return None
    fields = changed_fields(log.sessions[0].spec, config.immutable)
    return SweepVerdict(
        phase="Failed",
        reason="SpecChanged",
        message=f"the folder holds a search with another {', '.join(fields)}, so its trials are "
        "not comparable. Use another storage.sweepName, or change it back",
    )


def _refusal(log: SweepView, config: SweepConfig) -> SweepVerdict | None:
    if (changed := _changed(log, config)) is not None:
        return changed
    known = any(session.uid == config.uid for session in log.sessions)
    if config.fail_on_existing and log.sessions and not known:
        return SweepVerdict(
            phase="Failed",
            reason="AlreadyExists",
            message=f"the folder already holds a search of {log.asked} trials and onExisting is "
            "Fail; use another storage.sweepName, or onExisting: Resume to continue it",
        )
    return None


def _superseded(log: SweepView, runs: tuple[TrialRun, ...]) -> SweepPlan:
    """Another TrainSweep continues it: our runs save, and give up their folders."""
    verdict = SweepVerdict(
        phase="Failed",
        reason="TakenOver",
        message=f"TrainSweep uid {log.sessions[-1].uid} continues this search: it was applied "
        "again, on another machine or cluster or under another name, with the same storage",
    )
    return _set_aside(verdict, runs)


def _without_token(log: SweepView, config: SweepConfig) -> str:
    """The note on flags for errored trials that were set since the session began: they apply from
    the next session on."""
    begun, errored = log.sessions[-1], log.count("Errored")
    wanted = {
        "resumeErrored": config.resume_errored and not begun.resume_errored,
        "restartErrored": config.restart_errored and not begun.restart_errored,
    }
    flag = next((flag for flag, is_new in wanted.items() if is_new), "")
    if not errored or not flag:
        return ""
    return f"; resume.{flag} is true: add 1 to resume.token to retry errored trials ({errored})"


def _set_aside(verdict: SweepVerdict, runs: tuple[TrialRun, ...]) -> SweepPlan:
    """Write nothing more, and save running trials; `verdict` holds once they are saved."""
    over = not any(run.live for run in runs)
    return SweepPlan(
        verdict=verdict if over else replace(verdict, phase="Running"),
        actions=_suspended(runs),
        over=over,
    )


def _session(config: SweepConfig) -> Targets:
    session = SweepSession(
        uid=config.uid,
        token=config.token,
        spec=config.immutable,
        resume_unfinished=config.resume_unfinished,
        resume_errored=config.resume_errored,
        restart_errored=config.restart_errored,
    )
    return Targets(session=session)


# ---------------------------------------------------------------------------- while it is led


def _ended(
    log: SweepView, at: EndAt, observation: SweepObservation, config: SweepConfig
) -> SweepPlan:
    """Open trials are saved and stay open; a larger budget lets the sweep continue with them. The
    sweep is over only after that, after all ends are in the log, and after surplus runs and
    checkpoints are deleted: operators leave a sweep alone once it is over."""
    targets, end = _targets_of(log, observation.runs, config), at.record
    # Another rule may hold by now, since saved trials have reported more: that changes nothing.
    now = next((end_now for end_now in endings(log, config) if end_now.reason == end.reason), None)
    if now is None or now.verdict != end.verdict:
        why = "its spec has changed" if now is None else "a trial has ended with a value since"
        message = f"resumed because {why}; it had ended with: {end.message}"
        verdict = SweepVerdict(phase="Running", reason="GoingOn", message=message)
        return SweepPlan(verdict=verdict, targets=replace(targets, amend=at.position))
    actions: tuple[TrialAction, ...] = (
        *deletions(log, observation.runs, config),
        *_suspended(_of_open_trials(log, observation.runs)),
    )
    done = observation.carried_out
    left = set(targets.cleared) - set(() if done is None else done.cleared)
    over = not (actions or targets.ended or left or any(run.live for run in observation.runs))
    verdict = SweepVerdict(phase=end.verdict, reason=end.reason, message=end.message)
    if not over:
        verdict = SweepVerdict(phase="Running", reason="Ending", message=end.message)
    return SweepPlan(verdict=verdict, targets=targets, actions=actions, over=over)


def _in_progress(
    log: SweepView, observation: SweepObservation, config: SweepConfig, name: str
) -> SweepPlan:
    runs, targets = observation.runs, _targets_of(log, observation.runs, config)
    deleted = deletions(log, runs, config)
    if ends := endings(log, config):
        end = ends[0]
        verdict = SweepVerdict(phase="Running", reason="Ending", message=end.message)
        # The end depends on the ended trials, so these are recorded first.
        targets = replace(targets, end=None if targets.ended else end)
        return SweepPlan(verdict=verdict, targets=targets, actions=deleted)
    mine = _of_open_trials(log, runs)
    if config.suspend:
        live = any(run.live for run in runs)
        verdict = SweepVerdict(
            phase="Running" if live else "Suspended",
            reason="Suspended",
            message="spec.suspend is true" + ("; trials are being saved" if live else ""),
        )
        return SweepPlan(verdict=verdict, targets=targets, actions=(*deleted, *_suspended(mine)))
    paused = tuple(run for run in mine if run.trial in config.paused)
    slots = fill(log, runs, config, name=name)
    left = time_left(log, config)
    return SweepPlan(
        verdict=_at_work(log, runs, config, slots),
        targets=replace(targets, asked=min(config.trials, log.asked + slots.left)),
        actions=(*deleted, *_suspended(paused), *slots.actions),
        wake_after=None if math.isinf(left) else max(left, 1.0),
    )


def _targets_of(log: SweepView, runs: tuple[TrialRun, ...], config: SweepConfig) -> Targets:
    """What the log should hold of the runs: their ends. The clerk finds their reports itself."""
    mine = _of_open_trials(log, runs)
    return replace(
        _session(config),
        ended=tuple(_end_of(run) for run in mine if run.ended),
        stopped=tuple(number for number in sorted(config.stopped) if number in log.trials),
        cleared=cleared(log, runs, config),
        asked=log.asked,
    )


def _end_of(run: TrialRun) -> EndedRun:
    return EndedRun(
        trial=run.trial,
        opening=run.opening,
        succeeded=run.phase == "Succeeded",
        reason=run.reason,
        message=in_sweep(run.message),
        restarts=run.restarts,
        attempt=run.attempt,
    )


def _of_open_trials(log: SweepView, runs: tuple[TrialRun, ...]) -> list[TrialRun]:
    """The runs of open openings, by number, so that the order of the input does not matter."""
    by_number = sorted(runs, key=lambda run: (run.trial, run.opening))
    return [run for run in by_number if _is_open(log, run)]


def _is_open(log: SweepView, run: TrialRun) -> bool:
    trial = log.trials.get(run.trial)
    return trial is not None and trial.open and trial.opening == run.opening


def _suspended(runs: tuple[TrialRun, ...] | list[TrialRun]) -> tuple[SuspendTrial, ...]:
    return tuple(
        SuspendTrial(name=run.name, uid=run.uid, suspend=True)
        for run in sorted(runs, key=lambda run: run.name)
        if not run.suspend and not run.ended
    )


# --------------------------------------------------------------------------------- for people


def _at_work(
    log: SweepView, runs: tuple[TrialRun, ...], config: SweepConfig, slots: Slots
) -> SweepVerdict:
    live = sum(run.live for run in runs)
    left = {trial.number for trial in log.trials.values() if trial.open}
    if left and left <= config.paused and not live and log.asked >= config.trials:
        named = ", ".join(map(str, sorted(left)))
        message = f"all remaining trials are paused: spec.pausedTrials names {named}"
        return SweepVerdict(phase="Running", reason="AllPaused", message=message)
    message = f"{live} trials at work, {log.asked} of {config.trials} have parameters"
    if slots.held_back:
        return SweepVerdict(
            phase="Running",
            reason="WaitingForRoom",
            message=f"{message}; the next ones wait until {slots.held_back} have found room",
        )
    return SweepVerdict(phase="Running", reason="TrialsAtWork", message=message)


def _wait(phase: SweepPhase, reason: str, message: str) -> SweepPlan:
    verdict = SweepVerdict(phase=phase, reason=reason, message=message)
    return SweepPlan(verdict=verdict, wake_after=LOOK_AGAIN)
