"""A sweep's life: its log, and the lives of the trials that had trouble; and advice on what to do
next.

Layer: cli. The log alone describes every trial. Folders of trials are read only where something
went wrong, at most MOST_READ of them, so a sweep of a thousand trials is explained as fast as one
of ten. All advice can be followed with the file of the sweep and one command.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from trainrun.checkpoint.run_store import READERS
from trainrun.contract import layout
from trainrun.errors import StoreError, TrainRunError
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.cli.explaining.advice import look_at, on_node
from trainrun_operator.cli.explaining.life import Life, life_of
from trainrun_operator.cli.formatting import counted
from trainrun_operator.cli.report.model import Advice
from trainrun_operator.cli.sources import Source, UnknownRun
from trainrun_operator.cli.sweeping.stored_sweep import ReadSweep
from trainrun_operator.core.sweep.config import (
    TRIALS,
    changed_fields,
    folder_name,
    immutable_part,
    run_name,
)
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.place import place_of

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion


MOST_READ = 20
"""Trials whose folders are read, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLife:
    """Everything that is known about a sweep."""

    sweep: ReadSweep
    lives: Mapping[int, Life]
    """Lives of the trials that had trouble, by number, as far as their folders were read."""
    resume_command: str
    """The command that continues it."""
    leader: int | None
    """Process of this machine that leads it; None: none does."""
    written: datetime | None
    """When the newest record was written, by the store's clock; None: not asked, or not known."""
    remarks: tuple[str, ...] = ()
    """What could not be read, or was left out."""

    @property
    def view(self) -> SweepView:
        """Contents of the log."""
        return self.sweep.view

    def folder_of(self, trial: TrialView) -> str:
        """URI of the folder of this trial."""
        return f"{self.sweep.uri}/{TRIALS}/{folder_name(trial)}"


def resume_command_of(sweep: ReadSweep) -> str:
    """How a sweep is continued whose file is not known."""
    if sweep.version is None:
        return "`trainrun run` of the sweep's file"
    metadata = sweep.version.sweep.metadata
    edit = f"kubectl edit trainsweep {metadata.name} -n {metadata.namespace}"
    return f"apply its file again (or change it with `{edit}`)"


def search_life_of(sweep: ReadSweep, *, resume_command: str) -> SearchLife:
    """Read what is needed in addition to the log. Raises StoreError."""
    troubled = troubled_trials(sweep.view)
    lives, trouble = _lives(sweep, troubled[:MOST_READ])
    place = place_of(sweep.folder.store.uri, sweep.folder.run_name, environ=os.environ)
    leader = leader_of(place.lock)
    return SearchLife(
        sweep=sweep,
        lives=lives,
        resume_command=resume_command,
        leader=None if leader is None else leader.pid,
        written=_written(sweep) if sweep.view.end is None else None,
        remarks=(*_of_operator(sweep), *_changed(sweep), *_left_out(len(troubled)), *trouble),
    )


def troubled_trials(view: SweepView) -> list[TrialView]:
    """Trials that errored, diverged or were restarted: open ones first, then the newest ends."""
    found = [trial for trial in view.trials.values() if _troubled(trial)]
    return sorted(found, key=lambda trial: (not trial.open, -trial.told_after, -trial.number))


def _troubled(trial: TrialView) -> bool:
    restarted = trial.restarts or (trial.open and newest_attempt(trial) > 1)
    return trial.state in ("Errored", "Diverged") or bool(restarted)


def newest_attempt(trial: TrialView) -> int:
    """The newest attempt in the log; 0: none."""
    return max((*trial.heard, *trial.resumed), default=0)


def _lives(sweep: ReadSweep, trials: list[TrialView]) -> tuple[dict[int, Life], tuple[str, ...]]:
    """The lives in the folders of these trials, read in parallel; and why one could not be read."""
    with ThreadPoolExecutor(READERS) as pool:
        found = [*zip(trials, pool.map(partial(_attempted, sweep), trials), strict=True)]
    lives = {trial.number: life for trial, life in found if isinstance(life, Life)}
    failed = [(trial.number, error) for trial, error in found if isinstance(error, TrainRunError)]
    if not failed:
        return lives, ()
    number, error = failed[0]
    others = f" (and {len(failed) - 1} more)" if failed[1:] else ""
    return lives, (f"the folder of trial {number}{others} could not be read: {error}",)


def _attempted(sweep: ReadSweep, trial: TrialView) -> Life | TrainRunError | None:
    try:
        return life_of(_source(sweep, trial))
    except UnknownRun:  # it failed before it had a folder
        return None
    except TrainRunError as error:
        return error


def _source(sweep: ReadSweep, trial: TrialView) -> Source:
    """The run of a trial: its folder, and the files that this machine keeps about it if it led
    it."""
    uri = f"{sweep.uri}/{TRIALS}"
    name = sweep.folder.run_name if sweep.described is None else sweep.described.metadata.name
    return Source(
        name=folder_name(trial),
        storage=uri,
        store=sweep.folder.store,
        within=f"{sweep.folder.folder_name}/{TRIALS}/",
        place=place_of(uri, run_name(name, trial), environ=os.environ),
    )


def _written(sweep: ReadSweep) -> datetime | None:
    try:
        times = [entry.modified for entry in sweep.folder.objects(layout.SWEEP_LOG)]
    except StoreError:
        return None
    newest = max(times, default=0.0)
    return datetime.fromtimestamp(newest, UTC) if newest else None


def _changed(sweep: ReadSweep) -> Iterator[str]:
    """Fields of the spec that have changed since the sweep began."""
    if sweep.described is None:
        return
    fields = changed_fields(sweep.view.sessions[0].spec, immutable_part(sweep.described.spec))
    if fields:
        names = ", ".join(f"spec.{field}" for field in fields)
        what = "file" if sweep.version is None else "TrainSweep"
        yield (
            f"the {what} describes another sweep than the log ({names}), so it will be refused "
            "as SpecChanged. Undo the change, or set another storage.sweepName"
        )


def _of_operator(sweep: ReadSweep) -> Iterator[str]:
    """What holds the sweep back in a cluster."""
    conditions = () if sweep.version is None else sweep.version.status.conditions
    for condition in conditions:
        if condition.type == "ClerkReady" and condition.status != "True":
            yield (
                f"{condition.type} is {condition.status} ({condition.reason}): {condition.message}"
            )


def _left_out(troubled: int) -> Iterator[str]:
    if troubled > MOST_READ:
        yield (
            f"{troubled} trials errored, diverged or were restarted; the folders of the newest "
            f"{MOST_READ} were read, the others are described from the log alone"
        )


def advice(life: SearchLife) -> tuple[Advice, ...]:
    """The most urgent first."""
    kinds = (_unfinished, _errored, _nodes, _ended, _by_chance)
    return tuple(found for kind in kinds for found in kind(life))


def _unfinished(life: SearchLife) -> Iterator[Advice]:
    if life.view.end is not None or life.leader is not None:
        return
    if life.sweep.version is not None:
        yield from _why_held(life, life.sweep.version)
        return
    is_open = life.view.count("Open")
    what = f"; {counted(is_open, 'trial')} will resume from saved checkpoints" if is_open else ""
    yield Advice(
        kind="Unfinished",
        text=f"if no other process leads it, {_unblock(life)}{life.resume_command}{what}",
        numbers={"open": is_open},
    )


def _why_held(life: SearchLife, version: SweepVersion) -> Iterator[Advice]:
    """Why a sweep in a cluster waits, if it does not continue by itself."""
    spec, numbers = version.sweep.spec, {"open": life.view.count("Open")}
    paused = _paused_open(life, version.sweep)
    command = f"trainrun sweep resume {version.where}"
    if not version.status.holder:
        text = "no operator leads it: check that one is installed in this cluster"
    elif spec.suspend:
        text = f"spec.suspend is true; to continue: {command}"
    elif paused:
        text = (
            f"spec.pausedTrials holds back trials; to continue: {command} "
            f"{' '.join(map(str, paused))}"
        )
    else:
        return
    yield Advice(kind="Unfinished", text=text, numbers=numbers)


def _paused_open(life: SearchLife, sweep: TrainSweep) -> list[int]:
    trials = life.view.trials
    return [
        number for number in sweep.spec.paused_trials if number in trials and trials[number].open
    ]


def _unblock(life: SearchLife) -> str:
    """What to change in the file first: without that, the command would stop again."""
    if life.sweep.described is None:
        return "continue with "
    spec = life.sweep.described.spec
    held = [
        *(["set spec.suspend: false"] if spec.suspend else []),
        *(["empty spec.pausedTrials"] if _paused_open(life, life.sweep.described) else []),
    ]
    return f"{' and '.join(held)}, then " if held else "continue with "


def _ended(life: SearchLife) -> Iterator[Advice]:
    """What lifts the end of a sweep."""
    if life.view.end is None:
        return
    numbers: dict[str, float | str] = {"open": life.view.count("Open")}
    match life.view.end.record.reason:
        case "BudgetExhausted":
            text = "to continue, raise spec.budget.activeTime"
            numbers["activeSeconds"] = round(life.view.active, 3)
        case "TooManyFailedTrials":
            text = "to continue with the remaining trials, raise spec.maxFailedTrials"
            numbers["errored"] = life.view.count("Errored")
        case "TargetReached":
            text = "to continue searching, change spec.objective.target"
        case "AllTrialsEnded":
            text = "to try more trials, raise spec.budget.trials"
            numbers["asked"] = life.view.asked
        case _:
            return
    yield Advice(kind="Budget", text=f"{text}; then {life.resume_command}", numbers=numbers)


def _errored(life: SearchLife) -> Iterator[Advice]:
    """How to resume or restart errored trials."""
    errored = [trial for trial in life.view.trials.values() if trial.state == "Errored"]
    if not errored:
        return
    token = max(session.token for session in life.view.sessions) + 1
    silent = sum(trial.reason == "NoObjective" for trial in errored)
    flag = "restartErrored" if silent == len(errored) else "resumeErrored"
    yield Advice(
        kind="Errored",
        text=f"{counted(len(errored), 'trial')} errored: fix what failed, set "
        f"spec.resume.{flag}: true and spec.resume.token: {token}, then "
        f"{'once it has ended ' if life.leader else ''}{life.resume_command}; "
        f"{_how_resumed(silent, len(errored))}",
        numbers={"errored": len(errored), "token": token},
    )


def _how_resumed(silent: int, errored: int) -> str:
    """What happens to them; `silent` are those that never reported the objective."""
    if silent == errored:
        return "they restart from scratch, since their checkpoints are past the missing objective"
    why = ", as those with NoObjective need" if silent else ""
    return (
        "they resume from what they saved, with new failure budgets (restartErrored: true "
        f"instead: from scratch{why})"
    )


def _nodes(life: SearchLife) -> Iterator[Advice]:
    """A node that failed several trials, and caused most of the known incidents."""
    nodes = [
        (node, number)
        for number, of_trial in life.lives.items()
        for chapter in of_trial.incidents
        if (node := on_node(chapter.incident))
    ]
    incidents = [
        chapter.incident for of_trial in life.lives.values() for chapter in of_trial.incidents
    ]
    for node, caused in Counter(node for node, _ in nodes).most_common(1):
        trials = len({number for where, number in nodes if where == node})
        if trials < 2 or 2 * caused <= len(nodes):
            return
        if found := look_at(node, incidents, keep="trials"):
            yield Advice(
                kind="Node",
                text=f"node {node} caused {caused} of {len(nodes)} incidents, in {trials} trials: "
                f"{found}",
                numbers={"node": node, "incidents": caused, "of": len(nodes), "trials": trials},
            )


def _by_chance(life: SearchLife) -> Iterator[Advice]:
    fallen = sum(bool(trial.fallback) for trial in life.view.trials.values())
    if fallen:
        yield Advice(
            kind="Sampler",
            text=f"the sampler failed for {fallen} of {counted(life.view.asked, 'trial')}, which "
            "were drawn at random: try another version of its library where the sweep is led",
            numbers={"byChance": fallen},
        )
