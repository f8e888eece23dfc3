"""Causes of incidents and their budgets: one row defines how the core treats each.

Layer: core. Nothing else in the core distinguishes causes: modules read what they need from the
row. CONTRIBUTING says how to add a cause.
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

    Down to MEMORY the world announced or knows it, whatever the processes report; SCRIPT was
    declared by the script itself, which knows better than a process that merely died.
    """

    TAKEOVER = auto()
    NOTICE = auto()
    EVICTION = auto()
    NODE = auto()
    MEMORY = auto()
    SCRIPT = auto()
    SIGTERM = auto()
    """The worker got SIGTERM; the end of its pod shows who sent it."""
    SIGNAL = auto()
    EXCEPTION = auto()
    LITTLE = auto()
    """A worker is gone, silent, or behind in a gang that hangs: its node may explain it."""
    RENDEZVOUS = auto()
    """Ranks did not find each other, perhaps because another worker was lost first."""
    CONSEQUENCE = auto()
    """Most likely another worker was lost first."""


AgainstNode = Literal["Never", "Repeated", "AtOnce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """How the core treats a cause."""

    advice: str
    """What a user can do about it."""
    charge: BudgetName
    """The budget that its incidents are charged to; none: they are always free."""
    free_tries: int = 0
    """Fruitless attempts in a row that may end for it, or for another free cause, uncharged: a
    retry mostly cures it, but retries must not continue without limit."""
    explains: Explains = Explains.EXCEPTION
    """The end of a process may refine it: a signal, or the consequence of another loss."""
    against_node: AgainstNode = "Never"
    """Whether new workers avoid its node: at once, or when it repeats there. Errors of the script
    count, too: a broken GPU or disk shows only as such an error."""
    fault_of_start: bool = False
    """Whether the template may be to blame if a worker ended for it before it took part."""
    slows_down: bool = True
    """Whether the attempt counts as fruitless, so that the backoff grows."""
    stands_still: bool = False
    """Whether repeating it without progress looks like an error of the script, so that
    failurePolicy.noProgressLimit ends the run."""
    action: RuleAction = "Restart"
    """The action where no rule of the spec decides."""


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
        advice="fix the probe, or raise the limit of the pod that the message names; kubectl "
        "describe pod shows what the kubelet reports",
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
        advice="do what the message asks for; the script says that a restart does not help",
        charge="failures",
        explains=Explains.SCRIPT,
        action="FailRun",
    ),
    Cause.RETRY_ERROR: CauseRow(
        advice="read the message: the script repeatedly asks for a restart without a new step",
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
        advice="read its last lines; if the training is done, call trainrun.finish() or report a "
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
        advice="check what else listens on slot 0's node, and whether the other workers reach it "
        "(NetworkPolicies must allow all ports between workers); each attempt uses another port",
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
        advice="have memory and network of the node checked; a worker on another node replaces "
        "this one",
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
        advice="check what the rank that is behind does; wrap what takes long without a step in "
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
    """The row of the cause that a status names; that of Unknown for a cause of another version."""
    return _BY_NAME.get(cause, CAUSES[Cause.UNKNOWN])


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit of how many incidents of some causes a run survives."""

    field: str
    """Name of its limit in spec.failurePolicy, where -1 means no limit."""
    limit: Callable[[FailurePolicy], int | None]
    """Its limit in the spec."""
    falls_back_to: BudgetName = "failures"
    """The budget charged instead if the spec has no such limit."""
    one: str
    """One unit of what it counts, in words."""
    used: Callable[[Failures], int]
    """Settled incidents charged to it."""
    charged: Callable[[Failures], Failures]
    """The same with one more charged."""


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
"""All budgets except `none`, which counts nothing."""

Limits = Mapping[BudgetName, int]
"""The limits that a spec sets; `failures` is always present."""


def limits_of(policy: FailurePolicy) -> Limits:
    """The limits that this policy sets."""
    found = {name: budget.limit(policy) for name, budget in BUDGETS.items()}
    return {name: limit for name, limit in found.items() if limit is not None}


def budget_of(cause: str, limits: Limits, *, in_a_row: int) -> BudgetName:
    """The budget that an incident is charged to; `in_a_row`: fruitless attempts in a row that ended
    for its cause, its own included."""
    row = row_of(cause)
    if row.charge == "none" or (row.free_tries and in_a_row <= row.free_tries):
        return "none"
    return row.charge if row.charge in limits else BUDGETS[row.charge].falls_back_to


SIGNAL_NAMES: dict[int, str] = dict(
    zip((*range(1, 16), 24, 25, 31), get_args(SignalName), strict=True)
)
"""Names of signals by their numbers on Linux."""

SENT = frozenset({"SIGHUP", "SIGINT", "SIGKILL", "SIGTERM", "SIGUSR1", "SIGUSR2"})
"""Signals that mostly come from outside: the output of the process does not explain them."""

HIGHEST_SIGNAL = 64
"""Linux has signals 1 to 64; exit code 128 + N means that signal N ended the process."""


def signal_of(incident: Incident) -> int | None:
    """The signal that ended the culprit, by its exit code; None: none known."""
    return _signal(incident.rank, incident.exit_code)


def advice_on(cause: str, *, rank: object, exit_code: object) -> str:
    """What a user can do about an incident: the advice for its cause, or for the signal that ended
    the rank. `rank` and `exit_code` are those of the incident, or None."""
    name = SIGNAL_NAMES.get(_signal(rank, exit_code) or 0, "")
    if cause == Cause.APP_ERROR and name in SENT:
        return (
            f"its own output does not show who sent {name}: look for the OOM killer in the kernel "
            "log of its machine (dmesg), and for other programs that kill processes there"
        )
    return row_of(cause).advice


def _signal(rank: object, code: object) -> int | None:
    if rank is None or not isinstance(code, int) or not 128 < code <= 128 + HIGHEST_SIGNAL:
        return None
    return code - 128
