"""What the core makes of causes and their budgets: one row says everything about each.

Layer: core. Nothing else in the core treats one cause differently from another: what a module has
to know of a cause it reads from its row. CONTRIBUTING says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Literal, get_args

from trainrun_operator.api.run.rules import RuleAction, SignalName
from trainrun_operator.api.run.spec import FailurePolicy
from trainrun_operator.api.run.status_parts import BudgetName, Cause, Failures, Incident


class Explains(IntEnum):
    """How well a loss explains the other losses of its attempt: lower is better.

    Down to MEMORY the world announced or knows it, whatever the processes say; SAID was said by the
    script itself, which knows better than a process that merely died.
    """

    TAKEOVER = auto()
    NOTICE = auto()
    EVICTION = auto()
    NODE = auto()
    MEMORY = auto()
    SCRIPT = auto()
    SIGTERM = auto()
    """The worker was told to end; by whom, the end of its pod tells."""
    SIGNAL = auto()
    EXCEPTION = auto()
    LITTLE = auto()
    """A worker is gone, silent, or behind in a gang that stands still: its node may explain it."""
    RENDEZVOUS = auto()
    """Ranks did not find each other: perhaps since another worker was lost first."""
    CONSEQUENCE = auto()
    """Most likely another worker was lost first."""


AgainstNode = Literal["Never", "Repeated", "AtOnce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """How a cause is treated."""

    advice: str
    """What a user can do about it."""
    charge: BudgetName
    """The budget that its incidents are charged to; none: they are free for ever."""
    free_tries: int = 0
    """So many fruitless attempts in a row may end for it, or for another free cause, without being
    charged: trying again cures it, but not for ever."""
    explains: Explains = Explains.EXCEPTION
    """A process's end may say more: a signal, or that it is the consequence of another loss."""
    against_node: AgainstNode = "Never"
    """Whether new workers are kept away from its node: at once, or where it is repeated there. Also
    for a script's own error: a broken GPU or disk shows as nothing else."""
    fault_of_start: bool = False
    """The template of a worker that ended for it before it took part may be to blame."""
    slows_down: bool = True
    """The attempt counts as fruitless, and the backoff grows with it."""
    stands_still: bool = False
    """Again and again without progress it looks like an error of the script: it ends the run by
    failurePolicy.noProgressLimit."""
    action: RuleAction = "Restart"
    """What becomes of the run where no rule of its spec decides."""


_LOOK = "look at the worker's output and its node"

CAUSES: dict[Cause, CauseRow] = {
    Cause.PREEMPTED: CauseRow(
        advice="set failurePolicy.maxPreemptions: -1 to survive any number of preemptions",
        charge="preemptions",
        explains=Explains.NOTICE,
    ),
    Cause.EVICTED: CauseRow(
        advice="request the memory and ephemeral storage that a worker uses, so that its node does "
        "not run short; failurePolicy.maxPreemptions gives evictions their own budget",
        charge="preemptions",
        explains=Explains.EVICTION,
        against_node="Repeated",
    ),
    Cause.NODE_LOST: CauseRow(
        advice="look at the node; failurePolicy.maxPreemptions gives lost nodes their own budget",
        charge="preemptions",
        explains=Explains.NODE,
        against_node="AtOnce",
    ),
    Cause.TERMINATED: CauseRow(
        advice="mend the probe, or raise the limit of the pod that the message names; kubectl "
        "describe pod shows what the kubelet says",
        charge="failures",
        explains=Explains.SIGTERM,
        fault_of_start=True,
        stands_still=True,
    ),
    Cause.OUT_OF_MEMORY: CauseRow(
        advice="raise the memory limit or use less memory per process",
        charge="failures",
        explains=Explains.MEMORY,
        against_node="Repeated",
        fault_of_start=True,
        stands_still=True,
    ),
    Cause.FATAL_ERROR: CauseRow(
        advice="do what the message asks for; the script says that no restart makes sense",
        charge="failures",
        explains=Explains.SCRIPT,
        action="FailRun",
    ),
    Cause.RETRY_ERROR: CauseRow(
        advice="read the message: the script asks for a restart again and again, without a new "
        "step",
        charge="failures",
        explains=Explains.SCRIPT,
        action="RestartUncounted",
    ),
    Cause.APP_ERROR: CauseRow(
        advice="read the last lines of the rank named",
        charge="failures",
        against_node="Repeated",
        fault_of_start=True,
        stands_still=True,
    ),
    Cause.ENDED_EARLY: CauseRow(
        advice="read its last lines; if all is done by then, call trainrun.finish() or report a "
        "checkpoint of the last step",
        charge="failures",
        stands_still=True,
    ),
    Cause.START_FAILED: CauseRow(
        advice="do what the message says, or check command, image and mounts in workers.template",
        charge="startFailures",
        against_node="Repeated",
        fault_of_start=True,
    ),
    Cause.RENDEZVOUS_FAILED: CauseRow(
        advice="see what else listens on slot 0's node, and whether the other workers reach it (a "
        "NetworkPolicy must let workers reach each other on all ports); each attempt uses another "
        "port",
        charge="failures",
        free_tries=3,
        explains=Explains.RENDEZVOUS,
    ),
    Cause.STORAGE_ERROR: CauseRow(
        advice="check that the store is reachable and has room", charge="failures"
    ),
    Cause.STORAGE_REFUSED: CauseRow(
        advice="correct the credentials that the message names; the next attempt starts once each "
        "worker can read the checkpoint",
        charge="failures",
        free_tries=3,
    ),
    Cause.CHECKPOINT_DAMAGED: CauseRow(
        advice="look at bad/ in the store, and check the storage; each attempt uses the checkpoint "
        "before the damaged one",
        charge="failures",
        free_tries=3,
    ),
    Cause.MISREAD: CauseRow(
        advice="have memory and network of the node checked; a worker on another node takes the "
        "place of this one",
        charge="failures",
        free_tries=3,
        against_node="AtOnce",
    ),
    Cause.INTERRUPTED: CauseRow(
        advice="nothing: the run continues",
        charge="none",
        explains=Explains.TAKEOVER,
        slows_down=False,
    ),
    Cause.SILENT: CauseRow(
        advice=_LOOK,
        charge="failures",
        explains=Explains.LITTLE,
        against_node="Repeated",
        fault_of_start=True,
    ),
    Cause.HUNG: CauseRow(
        advice="look at what the rank that is behind does; wrap what takes long without a step in "
        "trainrun.long_section(), or raise the timeout that the message names",
        charge="failures",
        explains=Explains.LITTLE,
        against_node="Repeated",
        stands_still=True,
    ),
    Cause.UNKNOWN: CauseRow(
        advice=_LOOK,
        charge="failures",
        explains=Explains.LITTLE,
        against_node="Repeated",
        fault_of_start=True,
    ),
}


_BY_NAME: dict[str, CauseRow] = {cause.value: row for cause, row in CAUSES.items()}


def row_of(cause: str) -> CauseRow:
    """The row of the cause that a status names; Unknown's for a word of another version."""
    return _BY_NAME.get(cause, CAUSES[Cause.UNKNOWN])


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many incidents of some causes a run survives."""

    field: str
    """Name of its limit in spec.failurePolicy; -1 there is no limit."""
    limit: Callable[[FailurePolicy], int | None]
    """Its limit in the spec."""
    falls_back_to: BudgetName = "failures"
    """What is charged instead where the spec has no such limit."""
    one: str
    """One of what it counts, in words."""
    used: Callable[[Failures], int]
    """Settled incidents charged to it."""
    charged: Callable[[Failures], Failures]
    """With one more of them."""


BUDGETS: dict[BudgetName, Budget] = {
    "failures": Budget(
        field="maxFailures",
        limit=lambda policy: policy.max_failures,
        one="failure",
        used=lambda failures: failures.counted,
        charged=lambda failures: replace(failures, counted=failures.counted + 1),
    ),
    "preemptions": Budget(
        field="maxPreemptions",
        limit=lambda policy: policy.max_preemptions,
        one="preemption",
        used=lambda failures: failures.preemptions,
        charged=lambda failures: replace(failures, preemptions=failures.preemptions + 1),
    ),
    "startFailures": Budget(
        field="maxStartFailures",
        limit=lambda policy: policy.max_start_failures,
        one="start failure",
        used=lambda failures: failures.start_failures,
        charged=lambda failures: replace(failures, start_failures=failures.start_failures + 1),
    ),
}
"""Every budget but `none`, which counts nothing."""

Limits = Mapping[BudgetName, int]
"""The limits that a spec has; `failures` is always there."""


def limits_of(policy: FailurePolicy) -> Limits:
    """The limits that this policy has."""
    found = {name: budget.limit(policy) for name, budget in BUDGETS.items()}
    return {name: limit for name, limit in found.items() if limit is not None}


def budget_of(cause: str, limits: Limits, *, in_a_row: int) -> BudgetName:
    """The budget that an incident is charged to where so many fruitless attempts in a row ended for
    its cause, its own included."""
    row = row_of(cause)
    if row.charge == "none" or (row.free_tries and in_a_row <= row.free_tries):
        return "none"
    return row.charge if row.charge in limits else BUDGETS[row.charge].falls_back_to


SIGNAL_NAMES: dict[int, str] = dict(
    zip((*range(1, 16), 24, 25, 31), get_args(SignalName), strict=True)
)
"""By their numbers on Linux."""

SENT = frozenset({"SIGHUP", "SIGINT", "SIGKILL", "SIGTERM", "SIGUSR1", "SIGUSR2"})
"""Signals that mostly come from elsewhere: what the process itself has printed tells nothing."""

HIGHEST_SIGNAL = 64
"""Linux has signals 1 to 64; an exit code of 128 + one of them tells that it ended the process."""


def signal_of(incident: Incident) -> int | None:
    """The signal that ended the culprit, as far as its exit code tells."""
    return _signal(incident.rank, incident.exit_code)


def advice_on(cause: str, *, rank: object, exit_code: object) -> str:
    """What a user can do about an incident: its cause's advice, or what fits the signal that ended
    this rank; both are as an incident has them, or None."""
    name = SIGNAL_NAMES.get(_signal(rank, exit_code) or 0, "")
    if cause == Cause.APP_ERROR and name in SENT:
        return (
            f"its own output cannot tell who sent {name}: look for the OOM killer in the kernel's "
            "log of its machine (dmesg), and for whoever ends processes there"
        )
    return row_of(cause).advice


def _signal(rank: object, code: object) -> int | None:
    if rank is None or not isinstance(code, int) or not 128 < code <= 128 + HIGHEST_SIGNAL:
        return None
    return code - 128
