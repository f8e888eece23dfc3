"""Stop a running attempt on request (notice, suspension, template edit), after a checkpoint.

Layer: core. One of the checks of `running`. The request is written in the status before any agent
receives it, so every operator asks for the same save with the same writer. A script that never
calls should_save() gets SIGTERM and its grace instead (see `drain`), as checkpoint.onNotice says.

One call of `should_save()` returns True on every rank. Two phases, so that no rank enters the
collectives of a save alone: every worker *prepares* call n (its ranks wait there), then all get the
order to *commit*. A worker whose ranks have passed n refuses, all workers abort n, and a later call
is tried. Why it is safe with lost operators and with two at a time: preparing is binding until
commit or abort; a refusal is final (an agent never prepares a call that it has refused), as is the
whole vote of an agent whose processes have ended; n is committed only if all prepared it and
aborted only if one refused it, so no call can be both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from trainrun.contract.agent_state import SaveVote
from trainrun.contract.answer import SaveOrder
from trainrun_operator.api.resources import RESTART
from trainrun_operator.api.run.launching import TEMPLATE
from trainrun_operator.api.run.status import StartRecord
from trainrun_operator.api.run.status_parts import MAX_LEAVING, EndingKind, SaveAsked
from trainrun_operator.core.run import steps, transitions
from trainrun_operator.core.run.boundary import Plan
from trainrun_operator.core.run.drain import Noticed, noticed, notices, stop_grace, time_left
from trainrun_operator.core.run.gang.unusable import outdated
from trainrun_operator.core.run.incidents.losses import Loss, got_sigterm, taken_away
from trainrun_operator.core.run.view import View, done

SAVE_TIMEOUT = timedelta(minutes=10)
"""How long a script that uses should_save() may take until the requested checkpoint exists."""
MAX_LOOKAHEAD = 4096
"""Most calls to look ahead: 4 s at one call per millisecond, far above any heartbeat."""

RESTART_ASKED = f"the annotation {RESTART} asks for a restart"

UNASKED = "the script never called trainrun.should_save()"
OWN_FOLDER = "checkpoint.folder is set"
"""Instead of that, for a script that nobody changes."""


def decide(view: View, record: StartRecord) -> Plan | None:
    """Ask for a checkpoint before workers are taken away, and end the attempt once it exists."""
    wanted = _save_reason(view, record) or ("workers have started to save" if _begun(view) else "")
    asked = view.status.save_asked
    if wanted and view.config.on_notice in ("Signal", "Stop") and not _begun(view):
        return _end_unsaved(view, record, f"checkpoint.onNotice is {view.config.on_notice}")
    if asked is None:
        return _ask(view, record, wanted) if wanted else None
    if not wanted:
        return transitions.withdraw_save(view) if None not in view.agents else None
    if more := _more_leavers(view, asked):
        return transitions.more_leave(view, asked, more)
    step = steps.saved_step(view)
    if step is not None and any(agent.save.committed is not None for agent in view.heard):
        return end_attempt(view, record, f"saved step {step} or later")
    uses_save = any(agent.save.calls > 0 for agent in view.heard)
    if not uses_save and None not in view.agents:
        why = UNASKED if view.config.folder is None else OWN_FOLDER
        return _end_unsaved(view, record, why)
    if _expired(view, asked):
        return end_attempt(view, record, "no checkpoint came in time")
    return None


def _end_unsaved(view: View, record: StartRecord, why: str) -> Plan:
    """End the attempt without a save: with SIGTERM, if that is wanted and there is time for it.

    The script does not train until its worker leaves: another periodic checkpoint in that time is
    worth, on average, as much as the time spent waiting for it.
    """
    left = stop_grace(view)
    if view.config.on_notice not in ("Auto", "Signal") or not left:
        return end_attempt(view, record, why)
    how = f"{why}: its processes get SIGTERM and {left.total_seconds():.0f} s to end"
    return end_attempt(view, record, how, grace=left)


def _ask(view: View, record: StartRecord, reason: str) -> Plan:
    leaving = tuple(worker.slot for worker, _ in noticed(view))
    rank = _writer_rank(view, record)
    return transitions.ask_to_save(view, reason, writer_rank=rank, leaving=leaving)


def _more_leavers(view: View, asked: SaveAsked) -> tuple[int, ...]:
    """Slots under notice that the request does not name yet."""
    leaving = tuple(worker.slot for worker, _ in noticed(view))
    room = MAX_LEAVING - len(asked.leaving)
    return tuple(slot for slot in leaving if slot not in asked.leaving)[: max(room, 0)]


def _save_reason(view: View, record: StartRecord) -> str:
    if view.config.suspend:
        return "spec.suspend is true"
    if edited := _edited(view, record):
        return f"{edited} has changed"
    if _restart_asked(view):
        return RESTART_ASKED
    leaving = noticed(view)
    if not leaving:
        return ""
    worker, notice = leaving[0]
    if worker.notice is None:
        return f"worker of slot {worker.slot} got {notice.reason}"
    return f"worker of slot {worker.slot} will be taken away ({notice.reason})"


def _begun(view: View) -> bool:
    """Some rank waits, or may already be saving: the request must be completed."""
    votes = [agent.save for agent in view.heard]
    return any(vote.prepared is not None or vote.committed is not None for vote in votes)


def _writer_rank(view: View, record: StartRecord) -> int:
    """The lowest rank not under notice; 0 when all are."""
    leaving = {worker.slot for worker, _ in noticed(view)}
    free = (slot for slot in range(len(record.roster)) if slot not in leaving)
    return next(free, 0) * record.world_size // len(record.roster)


def _edited(view: View, record: StartRecord) -> str:
    """The part of the spec that has changed since the workers were made; "": none."""
    if view.template_problem:
        return ""  # nothing could be started from it; the condition TemplateValid says so
    if record.template_hash != view.config.template_hash:
        return TEMPLATE
    found = (outdated(worker, view.config) for worker in view.roster if worker is not None)
    return next(filter(None, found), "")


def _restart_asked(view: View) -> bool:
    """The annotation has a value that no attempt was started with."""
    return bool(view.config.restart) and view.config.restart != view.status.restart


def _expired(view: View, asked: SaveAsked) -> bool:
    """The requested checkpoint will no longer come in time."""
    waited = view.observation.now - asked.time
    if view.config.suspend or not noticed(view):
        return waited > SAVE_TIMEOUT
    return all(left <= timedelta(0) for left in time_left(view)) and waited > timedelta(0)


def end_attempt(
    view: View, record: StartRecord, how: str, *, grace: timedelta = timedelta(0)
) -> Plan:
    """End the attempt for the reason of the save; `how` says how the save went, `grace` how long
    its processes may take to end after SIGTERM."""
    end: tuple[EndingKind, str, str]
    if view.config.suspend:
        end = "Suspend", "Suspending", f"suspending: {how}"
    elif edited := _edited(view, record):
        message = f"{edited} has changed: {how}; all workers are recreated"
        end = "TemplateChange", "TemplateChanged", message
    elif _restart_asked(view):
        message = f"{RESTART_ASKED}: {how}; all processes are started again"
        end = "Restart", "RestartAsked", message
    elif leaving := noticed(view) or notices(view):
        loss = _taken_away(leaving, how)
        return transitions.open_incident(view, record, loss, grace=grace)
    else:
        message = f"{how}, and the reason to stop is gone: the run continues"
        end = "Yielded", "Yielded", message
    return transitions.end_uncounted(view, *end, grace=grace)


def _taken_away(leaving: Noticed, how: str) -> Loss:
    # A notice of the world explains more than a signal, whose sender is unknown.
    worker, notice = min(leaving, key=lambda pair: pair[0].notice is None)
    if worker.notice is None:
        loss = got_sigterm(worker, notice)
    else:
        goes = f"worker {worker.name} is being taken away ({notice.reason})"
        loss = replace(taken_away(worker, notice), message=goes, age=timedelta(seconds=notice.age))
    return replace(loss, message=f"{loss.message}; {how}"[:1000])


def save_order(view: View) -> SaveOrder | None:
    """The order with which all agents agree on one call of should_save(); None: no order."""
    asked = view.status.save_asked
    if asked is None:
        return None
    votes = [agent.save if agent is not None else None for agent in view.agents if not done(agent)]
    ended = [agent.save for agent in view.heard if done(agent)]
    order = coordinate(votes, ended=ended)
    if order is None:
        return None
    left = min(time_left(view), default=None)
    return replace(
        order,
        reason=asked.reason,
        deadline=max(left.total_seconds(), 0.0) if left is not None else None,
        writer_rank=asked.writer_rank,
    )


def coordinate(
    votes: Sequence[SaveVote | None], *, ended: Sequence[SaveVote] = ()
) -> SaveOrder | None:
    """The next order, without its reason, from the votes of all workers whose processes still run.

    A vote of None is a worker that has not answered: nothing new is decided without it. `ended` are
    the last votes of workers whose processes have ended well. No order waits for them, but a call
    that one of them has passed or refused may already be aborted and must never be committed, and
    one that they have committed must never be aborted. A call that some worker has prepared must be
    completed even if the save is no longer wanted: another operator may have ordered a worker to
    commit it, and a save that only some ranks enter is a deadlock.
    """
    known = [vote for vote in votes if vote is not None]
    if committed := [v.committed for v in (*known, *ended) if v.committed is not None]:
        return SaveOrder(stage="Commit", call=min(committed))
    if prepared := [vote.prepared for vote in known if vote.prepared is not None]:
        return _settle(min(prepared), known, ended, complete=len(known) == len(votes))
    if not known or len(known) < len(votes):
        return None
    ahead = min(2 ** min(max(vote.refusals for vote in known), 64), MAX_LOOKAHEAD)
    reached = max(vote.calls for vote in (*known, *ended)) + ahead
    refused = max(vote.refused for vote in (*known, *ended))  # asking for it again is no use
    return SaveOrder(stage="Prepare", call=max(reached, refused + 1))


def _settle(
    call: int, known: Sequence[SaveVote], ended: Sequence[SaveVote], *, complete: bool
) -> SaveOrder:
    refused = any(vote.refused >= call and vote.prepared != call for vote in (*known, *ended))
    # Running workers answer for themselves: until then they may still prepare it.
    if refused or any(vote.calls >= call for vote in ended):
        return SaveOrder(stage="Abort", call=call)
    if complete and all(vote.prepared == call for vote in known):
        return SaveOrder(stage="Commit", call=call)
    return SaveOrder(stage="Prepare", call=call)
