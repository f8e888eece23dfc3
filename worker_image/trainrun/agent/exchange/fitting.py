"""A state that is too large for the operator is told in part: a heartbeat that is refused would be
refused for ever, and its worker be lost for silence.

Layer: agent, pure. Numbers, codes and steps always go; texts and metrics are left out, those that
matter least first, and a problem says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainrun.contract.agent_state import AgentState, Problem, ProcessExit
from trainrun.contract.evidence import RankEvidence

FEW_LINES, SHORT_LINE = 5, 100
"""Last lines of an ended process, and characters of each, where there is no room for all."""
FEW_FRAMES = 4
"""Frames of a rank that stands still, the innermost ones, where there is no room for more."""
FEW_KINDS = 4
"""Classes of an exception, its own first, where there is no room for more."""
SHORT_TEXT = 200
"""Characters of an exception or a problem where there is no room for more."""


def fitted(state: AgentState, limit: int) -> str:
    """The state as JSON: of at most `limit` bytes, unless it has nothing left to leave out."""
    whole, left_out = state, []
    text = state.to_json()
    for cut, what in CUTS:
        if len(text) <= limit:
            break
        left_out.append(what)
        state = cut(state)
        told = _problem(whole, limit, left_out)
        text = replace(state, problems=(*state.problems, told)).to_json()
    return text


def _problem(state: AgentState, limit: int, left_out: list[str]) -> Problem:
    return Problem(
        type="HeartbeatTooLarge",
        reason="Shortened",
        message=f"what worker {state.worker} has to tell is larger than the {limit} bytes that the "
        f"operator takes; left out: {', '.join(left_out)}. The worker's output has all lines; "
        "report fewer or shorter metrics",
    )


def _without_metrics(state: AgentState) -> AgentState:
    posted = state.posted
    shown = replace(posted, metrics={}) if posted is not None else None
    return replace(state, metrics={}, posted=shown)


def _places_alone(state: AgentState) -> AgentState:
    def short(rank: RankEvidence) -> RankEvidence:
        return replace(rank, stack=rank.stack[:FEW_FRAMES], last_lines=())

    found = state.evidence
    if found is None:
        return state
    return replace(state, evidence=replace(found, ranks=tuple(map(short, found.ranks))))


def _few_lines(state: AgentState) -> AgentState:
    def short(end: ProcessExit) -> ProcessExit:
        lines = (line[:SHORT_LINE] for line in end.last_lines[-FEW_LINES:])
        return replace(end, last_lines=tuple(lines))

    return replace(state, exits=tuple(map(short, state.exits)))


def _short_texts(state: AgentState) -> AgentState:
    return replace(
        state,
        exits=tuple(
            replace(
                end,
                last_lines=(),
                exception=end.exception[:SHORT_TEXT],
                kinds=end.kinds[:FEW_KINDS],
            )
            for end in state.exits
        ),
        problems=tuple(replace(p, message=p.message[:SHORT_TEXT]) for p in state.problems),
    )


CUTS: tuple[tuple[Callable[[AgentState], AgentState], str], ...] = (
    (_without_metrics, "metrics"),
    (_places_alone, "most of the stacks of ranks that stand still"),
    (_few_lines, "most of the last lines of processes"),
    (_short_texts, "their last lines, and the ends of long texts"),
)
"""Least important first, with what is left out."""
