"""Whether the ranks of an attempt run the same code, by what their agents have seen of it.

Layer: core; pure. Only a warning: a gang that was healthy is not held up by it. It stays until all
workers of an attempt have shown the same files, whoever leads the run meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainrun_operator.core.run.gang import roster
from trainrun_operator.core.run.incidents.hangs import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainrun.contract.agent_state import AgentState
    from trainrun_operator.core.run.view import View

CODE_DIFFERS = "CodeDiffers"
"""Type of the condition."""

FEW = 4
"""Files, and workers, that are named."""

REMEDY = (
    "Give changed code another name in workers.template (of the ConfigMap, of the image), so that "
    "all workers are made anew"
)


def warning(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where all that is known is the same."""
    agents = _compared(view)
    telling = [agent for agent in agents if agent is not None and agent.code]
    codes = Counter(agent.code for agent in telling)
    if len(codes) > 1 and not view.status.finished:
        usual = codes.most_common(1)[0][0]
        alike = next(agent for agent in telling if agent.code == usual)
        return "FilesDiffer", _message(view, alike, [it for it in telling if it.code != usual])
    known = view.status.condition(CODE_DIFFERS)
    unknown = any(agent is None or agent.code is None for agent in agents)
    if known is None or not view.workers or not (unknown or view.status.finished):
        return "", ""
    return known.reason, known.message


def _compared(view: View) -> tuple[AgentState | None, ...]:
    """By slot: of the attempt that runs, else those that wait for the next one."""
    if view.running is not None:
        return view.agents
    chosen = roster.choose(view)
    return tuple(w.agent if w is not None and roster.is_ready(view, w) else None for w in chosen)


def _message(view: View, alike: AgentState, others: Sequence[AgentState]) -> str:
    usual = set(alike.code or ())
    differing = {file.path for it in others for file in usual ^ set(it.code or ())}
    has = "has" if len(others) == view.config.processes_per_worker == 1 else "have"
    return (
        f"{_who(view, others)} {has} another {_few(sorted(differing))} than "
        f"{_who(view, [alike])}: the ranks of one attempt run different code. {REMEDY}"
    )


def _who(view: View, agents: Sequence[AgentState]) -> str:
    per = view.config.processes_per_worker
    ranks = [rank for it in agents for rank in range(it.slot * per, (it.slot + 1) * per)]
    noun = "worker" if len(agents) == 1 else "workers"
    return f"{named(ranks)} ({noun} {_few([it.worker for it in agents])})"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + (", ..." if len(names) > FEW else "")
