"""What to do next about a search.

Layer: cli; pure. Everything said can be done with the file of the sweep and one command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainrun_operator.cli.explaining.advice import look_at, on_node
from trainrun_operator.cli.report.model import Advice
from trainrun_operator.cli.wording import counted

if TYPE_CHECKING:
    from trainrun_operator.api.sweep.spec import TrainSweep
    from trainrun_operator.cli.explaining.sweeps.life import SearchLife
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion


def advice(life: SearchLife) -> tuple[Advice, ...]:
    """The most pressing first."""
    return (
        *_unfinished(life),
        *_errored(life),
        *_nodes(life),
        *_ended(life),
        *_by_chance(life),
    )


def _unfinished(life: SearchLife) -> Iterator[Advice]:
    if life.view.end is not None or life.leader is not None:
        return
    if life.sweep.version is not None:
        yield from _held(life, life.sweep.version)
        return
    is_open = life.view.count("Open")
    what = f": {counted(is_open, 'trial')} to go on from what was saved" if is_open else ""
    yield Advice(
        kind="Unfinished",
        text=f"if nobody leads it elsewhere, {_let_go_on(life)}{life.go_on}{what}",
        numbers={"open": is_open},
    )


def _held(life: SearchLife, version: SweepVersion) -> Iterator[Advice]:
    """Why a sweep of a cluster waits, where it does not go on by itself."""
    spec, numbers = version.sweep.spec, {"open": life.view.count("Open")}
    paused = _paused_open(life, version.sweep)
    command = f"trainrun sweep resume {version.where}"
    if not version.status.holder:
        text = "no operator leads it: see whether one is installed in this cluster"
    elif spec.suspend:
        text = f"spec.suspend is true; to go on: {command}"
    elif paused:
        text = f"spec.pausedTrials holds trials; to go on: {command} {' '.join(map(str, paused))}"
    else:
        return
    yield Advice(kind="Unfinished", text=text, numbers=numbers)


def _paused_open(life: SearchLife, sweep: TrainSweep) -> list[int]:
    known = life.view.trials
    return [it for it in sweep.spec.paused_trials if it in known and known[it].open]


def _let_go_on(life: SearchLife) -> str:
    """What in the file holds it back: the command alone would only find that again."""
    if life.sweep.described is None:
        return "go on with "
    spec = life.sweep.described.spec
    held = [
        *(["set spec.suspend: false"] if spec.suspend else []),
        *(["empty spec.pausedTrials"] if _paused_open(life, life.sweep.described) else []),
    ]
    return f"{' and '.join(held)}, then " if held else "go on with "


def _ended(life: SearchLife) -> Iterator[Advice]:
    """What lifts an end."""
    if life.view.end is None:
        return
    numbers: dict[str, float | str] = {"open": life.view.count("Open")}
    match life.view.end.record.reason:
        case "BudgetExhausted":
            text = "to go on, raise spec.budget.activeTime"
            numbers["activeSeconds"] = round(life.view.active, 3)
        case "TooManyFailedTrials":
            text = "to go on with the trials that are left, raise spec.maxFailedTrials"
            numbers["errored"] = life.view.count("Errored")
        case "TargetReached":
            text = "to search on, change spec.objective.target"
        case "AllTrialsEnded":
            text = "to try more trials, raise spec.budget.trials"
            numbers["asked"] = life.view.asked
        case _:
            return
    yield Advice(kind="Budget", text=f"{text}; then {life.go_on}", numbers=numbers)


def _errored(life: SearchLife) -> Iterator[Advice]:
    """How errored trials are taken up again."""
    errored = [it for it in life.view.trials.values() if it.state == "Errored"]
    if not errored:
        return
    token = max(session.token for session in life.view.sessions) + 1
    silent = sum(it.reason == "NoObjective" for it in errored)
    flag = "restartErrored" if silent == len(errored) else "resumeErrored"
    yield Advice(
        kind="Errored",
        text=f"{counted(len(errored), 'trial')} errored: mend what failed, set "
        f"spec.resume.{flag}: true and spec.resume.token: {token}, then "
        f"{'once it has ended ' if life.leader else ''}{life.go_on}; {_how(silent, len(errored))}",
        numbers={"errored": len(errored), "token": token},
    )


def _how(silent: int, errored: int) -> str:
    """What becomes of them; `silent` are those that never reported the objective."""
    if silent == errored:
        return "they begin again from nothing, since their checkpoints are beyond what is missing"
    why = ", which those with NoObjective need" if silent else ""
    return (
        "they go on from their newest good checkpoints with fresh failure budgets "
        f"(restartErrored: true instead: from nothing{why})"
    )


def _nodes(life: SearchLife) -> Iterator[Advice]:
    """A node that failed more than one trial, and caused most of what is known."""
    nodes = [
        (node, number)
        for number, of_trial in life.lives.items()
        for chapter in of_trial.incidents
        if (node := on_node(chapter.incident))
    ]
    incidents = [it.incident for of_trial in life.lives.values() for it in of_trial.incidents]
    for node, caused in Counter(node for node, _ in nodes).most_common(1):
        trials = len({number for it, number in nodes if it == node})
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
    fallen = sum(bool(it.fallback) for it in life.view.trials.values())
    if fallen:
        yield Advice(
            kind="Sampler",
            text=f"the sampler failed for {fallen} of {counted(life.view.asked, 'trial')}, which "
            "were drawn by chance: try another version of its library where the search is led",
            numbers={"byChance": fallen},
        )
