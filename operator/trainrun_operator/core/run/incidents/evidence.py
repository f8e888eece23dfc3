"""Collect the stacks of all ranks before a gang that hangs is restarted or reported.

Layer: core. For every loss of a hang, explicit or learned: `stage_of` says what comes next, and
`explained` adds to the loss what was found. Status first: the request is written into the status,
agents receive it in their answers, and reply in their states. No agent is waited for longer than
`evidence.SECONDS`: one that cannot answer only leaves a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from trainrun.contract import evidence as contract
from trainrun.contract import layout
from trainrun.contract.agent_state import AgentState
from trainrun.contract.evidence import Evidence, EvidenceRequest, RankEvidence
from trainrun_operator.api.run.status_parts import EvidenceAsked
from trainrun_operator.core.run.incidents.hang_diagnosis import At, diagnosis, hang_state
from trainrun_operator.core.run.incidents.hangs import named
from trainrun_operator.core.run.incidents.losses import Loss, blamed
from trainrun_operator.core.run.incidents.output import by_output
from trainrun_operator.core.run.view import View, done

PATIENCE = timedelta(seconds=contract.EVIDENCE_SECONDS)
"""Longest wait for evidence."""

NEVER = timedelta.max

CLASSES = {
    "OneRankAway": "one rank away",
    "SameCollective": "all in the same collective",
    "WaitingForInput": "waiting for input or storage",
    "Unknown": "cause unknown",
}
"""The classes of a hang, in words."""

KNOWN_BY = "the time since each agent saw its last step, and where its ranks were then"

Stage = Literal[
    "Ask",  # agents were not asked yet: `transitions.ask_for_evidence`
    "Wait",  # agents were asked, and have time left to answer
    "Act",  # no more evidence will come: `explained`
]


def stage_of(view: View, hang: Loss) -> Stage:
    """What to do next about a gang that hangs."""
    asked = _last_request(view)
    if asked is None or _is_of_another_hang(view, asked, hang) or _is_ahead(view, asked):
        return "Ask"
    answered = all(_answer_of(view, agent) is not None for agent in _living(view))
    late = view.observation.now - asked.time >= PATIENCE
    return "Act" if answered or late else "Wait"


def next_request(view: View) -> EvidenceAsked:
    """The request that `transitions.ask_for_evidence` writes."""
    asked = _last_request(view)
    return EvidenceAsked(
        attempt=view.status.attempt,
        number=asked.number + 1 if asked is not None else 1,
        time=view.observation.now,
    )


def request(view: View) -> EvidenceRequest | None:
    """The request that agents get now; None: none."""
    asked = _last_request(view)
    if asked is None:
        return None
    return EvidenceRequest(attempt=asked.attempt, number=asked.number)


def time_left(view: View) -> timedelta:
    """Time until the wait for agents ends and a pass is due; NEVER where there is no wait."""
    asked = _last_request(view)
    left = asked.time + PATIENCE - view.observation.now if asked is not None else NEVER
    return left if left > timedelta(0) else NEVER


def is_over(view: View) -> bool:
    """Whether a gang that was asked trains again.

    One report since then is enough: often only rank 0 ever reports."""
    asked = _last_request(view)
    if asked is None:
        return False
    since = (view.observation.now - asked.time).total_seconds()
    stepped = any(
        agent.stepped is not None and agent.stepped < since
        for agent in by_output(view, _living(view))
    )
    return since > contract.EVIDENCE_SECONDS and stepped


def explained(view: View, hang: Loss) -> Loss:
    """The loss with what was found; where the evidence is conclusive, it also names the culprit."""
    found = {rank.rank: (rank, slot) for slot, rank in _ranks(view)}
    if not found:
        return hang
    silent = (agent for agent in _living(view) if _answer_of(view, agent) is None)
    missing = sum(len(agent.steps) for agent in silent)
    verdict = diagnosis([hang_state(rank, slot) for rank, slot in found.values()], missing=missing)
    message = f"{hang.message}; {CLASSES[verdict.kind]}: {verdict.message}"
    loss = replace(hang, message=message[:1000], known_by=KNOWN_BY, hang=verdict.kind)
    loss = replace(loss, evidence=_folder(view))
    if verdict.kind == "SameCollective":
        loss = replace(loss, slot=0, rank=None, worker="", node="", attributed=False)
    rank = loss.rank
    if (culprit := verdict.culprit) is not None:
        loss = blamed(view, loss, culprit.slot, culprit.rank if verdict.alone else None)
        rank = culprit.rank
    lines = found[rank][0].last_lines if rank in found else ()
    return replace(loss, last_lines=lines)


def with_late_rank(view: View, loss: Loss) -> Loss:
    """The loss, with the rank that its own rank waited for, and where that rank was."""
    found = (hang_state(rank, slot) for slot, rank in _ranks(view))
    behind = [state for state in found if state.at is not At.COLLECTIVE and state.place]
    if not behind:
        return loss
    ranks = [state.rank for state in behind]
    which = "which" if len(ranks) == 1 else f"of which rank {ranks[0]}"
    text = f"rank {loss.rank} waited for {named(ranks)}, {which} was in {behind[0].place}"
    return replace(loss, message=f"{loss.message}; {text}"[:1000], evidence=_folder(view))


def place_of(kind: str, message: str) -> str:
    """`rank 0 is in `load` (train.py:6)`, from an incident's class and message; or empty."""
    return message.partition(f"; {CLASSES.get(kind, kind)}: ")[2].partition(";")[0]


def _last_request(view: View) -> EvidenceAsked | None:
    asked = view.status.evidence_asked
    return asked if asked is not None and asked.attempt == view.status.attempt else None


def _is_of_another_hang(view: View, asked: EvidenceAsked, hang: Loss) -> bool:
    """Whether the gang has moved since then; less than half a heartbeat timeout is noise."""
    began = view.observation.now - hang.age
    return began > asked.time + view.config.heartbeat_timeout / 2


def _is_ahead(view: View, asked: EvidenceAsked) -> bool:
    """Whether a leader whose clock was ahead of ours wrote it: the wait would be too long."""
    return asked.time - view.observation.now > PATIENCE


def _living(view: View) -> Iterator[AgentState]:
    return (agent for agent in view.heard if not done(agent))


def _answer_of(view: View, agent: AgentState) -> Evidence | None:
    """The evidence that the agent sent about this hang; None: none yet."""
    asked, found = _last_request(view), agent.evidence
    if asked is None or found is None:
        return None
    same = (found.attempt, found.number) == (asked.attempt, asked.number)
    return found if same else None


def _ranks(view: View) -> Iterator[tuple[int, RankEvidence]]:
    for agent in _living(view):
        found = _answer_of(view, agent)
        if found is not None:
            yield from ((agent.slot, rank) for rank in found.ranks)


def _folder(view: View) -> str:
    asked = _last_request(view)
    return layout.hang_folder(asked.attempt, asked.number) if asked is not None else ""
