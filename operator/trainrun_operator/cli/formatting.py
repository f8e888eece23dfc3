"""Numbers and states in words, the same in plain lines, live view and summary.

Layer: cli; pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Literal

from trainrun._common.text import without_escapes
from trainrun.contract.agent_state import AgentState
from trainrun.contract.metrics import OF_TASKS
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.causes import BUDGETS
from trainrun_operator.core.run.incidents.attempt_progress import TRAINED, has_steps

NO_STEP = "-"
"""Shown in place of a step before the first one."""

STAGES = {"firstStep": "first step"}
"""Words for stages of a recovery whose names are not words."""

RankState = Literal["absent", "waiting", "starting", "training", "leaving", "done", "dead"]


def rank_states(worker: WorkerFact, *, status: TrainRunStatus, per_worker: int) -> list[RankState]:
    """The state of each process of the worker, by local rank."""
    agent = worker.agent
    if worker.loss is not None or worker.phase == "Ended":
        left_in_order = worker.loss is None and worker.exit_code == 0
        return ["done" if left_in_order else "dead"] * per_worker
    if agent is None:
        return ["absent"] * per_worker
    return [
        _process_state(worker, agent, status=status, local_rank=local_rank, per_worker=per_worker)
        for local_rank in range(per_worker)
    ]


def _process_state(
    worker: WorkerFact,
    agent: AgentState,
    *,
    status: TrainRunStatus,
    local_rank: int,
    per_worker: int,
) -> RankState:
    rank = worker.slot * per_worker + local_rank
    end = next((end for end in agent.exits if end.rank == rank), None)
    if end is not None:
        if end.ordered:
            return "waiting"
        return "done" if end.code == 0 else "dead"
    if agent.phase != "Running" or agent.attempt != status.attempt:
        return "waiting"
    if worker.notice is not None or agent.notice is not None:
        return "leaving"
    stepped = local_rank < len(agent.steps) and agent.steps[local_rank] is not None
    # A process that reports nothing counts as training once output or posts show one, or its task
    # driver has reported (rank 0 does both for all ranks), or after TRAINED, as for the backoff.
    up = timedelta(seconds=agent.spawned or 0.0) >= TRAINED and not has_steps(status)
    others = status.posted is not None or status.output is not None or status.runs_tasks
    return "training" if stepped or up or others else "starting"


def seconds(value: float | None) -> str:
    """`21 ms`, `3.4 s`, `75 s`, `12 min`; a dash where nothing is known."""
    if value is None:
        return "-"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def stages(took: Mapping[str, float]) -> str:
    """`detect 21 ms, pods 3.4 s, first step 12 s`: the parts of a recovery."""
    return ", ".join(f"{STAGES.get(name, name)} {seconds(part)}" for name, part in took.items())


def size(count: int) -> str:
    """`512 B`, `1.5 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return (
                f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
            )
        amount /= 1000
    return f"{amount:.1f} TB"


def clock(moment: datetime, *, day: bool = False) -> str:
    """`10:05:43`, or `2026-11-03 10:05:43 UTC`."""
    return f"{moment.astimezone(UTC):{'%Y-%m-%d %H:%M:%S UTC' if day else '%H:%M:%S'}}"


def stamp(modified: float) -> str:
    """`2026-11-03 10:05:43 UTC` by the clock of a store; a dash if it gives no time."""
    return clock(datetime.fromtimestamp(modified, UTC), day=True) if modified else "-"


def counted(count: int, noun: str) -> str:
    """`1 trial`, `1,000 trials`, `2 processes`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def counts(values: Mapping[str, int]) -> str:
    """`7 succeeded, 1 open`, without zeros."""
    return ", ".join(f"{count:,} {word}" for word, count in values.items() if count) or "none yet"


def some(names: Collection[object], most: int) -> str:
    """`a, b and 5 more`: at most `most` names, the first ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(map(str, [*names][:most]))}{more}"


def named(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 0, 1, 2 and 5 more`."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {some(sorted(ranks), 8)}"


def joined(words: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def metrics(values: Mapping[str, Any], *, limit: int = 4) -> str:
    """`loss=0.312 accuracy=0.95`, the first few; for a program of tasks its counts."""
    if OF_TASKS in values:
        return _tasks(values)
    return " ".join(f"{name}={_number(value)}" for name, value in list(values.items())[:limit])


def _tasks(values: Mapping[str, Any]) -> str:
    """`tasks: 120 of 300 done, 8 running, 2 failed, 5 retries`."""
    words = {"running": "running", "failed": "failed", "retried": "retries", "rebuilt": "rebuilt"}
    counts = ((values.get(f"tasks_{name}", 0), word) for name, word in words.items())
    parts = [f"tasks: {values.get('tasks_done', 0)} of {values.get('tasks_total', 0)} done"]
    return ", ".join([*parts, *(f"{count} {word}" for count, word in counts if count)])


def _number(value: object) -> str:
    if isinstance(value, dict):  # {"float": "NaN"}: a number that JSON does not have
        return str(value.get("float", value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return shortened(str(value), 20)


def shortened(text: str, most: int) -> str:
    """The text, cut to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def step_of(status: TrainRunStatus) -> str:
    """The step; `1200/5000 posted` or `... from output` if only those show it; else a dash."""
    if status.output is not None and status.output.text:
        return f"{status.output.text} from output"
    if status.posted is not None and status.posted.text:
        return f"{status.posted.text} posted"
    return NO_STEP if status.progress.step is None else str(status.progress.step)


def metrics_of(status: TrainRunStatus) -> str:
    """`loss=0.312, 21 min left`: metrics that were reported, printed or posted."""
    if status.output is not None:
        return metrics(status.output.metrics)
    posted = status.posted
    if posted is None:
        ended = {"tasks_running": 0} if status.finished and status.runs_tasks else {}
        return metrics({**status.progress.metrics, **ended})
    left = 0 if status.finished else posted.remaining_seconds
    parts = (metrics(posted.metrics), f"{long(left)} left" if left else "")
    return ", ".join(filter(None, parts))


def long(value: float) -> str:
    """As `seconds`, and `31.5 h` from two hours on."""
    return seconds(value) if value < 7200 else f"{value / 3600:.1f} h"


def checkpoint_of(status: TrainRunStatus) -> str:
    """`step 40 (attempt 1, 1.2 MB); step 58 is on the workers' disks`."""
    saved, staged = _committed(status), status.progress.staged
    return saved if staged is None else f"{saved}; step {staged} is on the workers' disks"


def _committed(status: TrainRunStatus) -> str:
    saved, record = status.checkpoint, status.start_record
    if saved is not None:
        return f"step {saved.step} (attempt {saved.attempt}, {size(saved.size_bytes)})"
    if record is not None and record.resume_point is not None:
        return f"step {record.resume_point.step} (attempt {record.resume_point.attempt})"
    return "none needed: done tasks are kept" if status.runs_tasks else "none yet"


def has_checkpoint(status: TrainRunStatus) -> bool:
    """Whether the run is known to have a committed checkpoint."""
    record = status.start_record
    resumed = record is not None and record.resume_point is not None
    return status.checkpoint is not None or resumed


def budget_of(status: TrainRunStatus) -> str:
    """`failures 1/3, preemptions 2`."""
    text = f"failures {status.failures.text or '0'}"
    for name, budget in BUDGETS.items():
        if name != "failures" and budget.used(status.failures):
            text += f", {budget.one}s {budget.used(status.failures)}"
    return text


def charged(incident: Incident) -> str:
    """Which budget an incident is charged to, in words."""
    budget = BUDGETS.get(incident.budget)
    return "not counted" if budget is None else f"counted as {budget.one}"


def culprit(incident: Incident) -> str:
    """`rank 2` or the worker's name."""
    return incident.worker if incident.rank is None else f"rank {incident.rank}"


def restarting(status: TrainRunStatus, *, now: datetime) -> str:
    """`restarting in 12 s` while a backoff lasts, else nothing."""
    ending = status.ending
    until = ending.not_before if ending is not None else None
    if status.finished or until is None or until <= now:
        return ""
    left = ceil((until - now).total_seconds())
    return f"restarting in {left} s" if left < 600 else f"restarting in {seconds(left)}"


AGENT_CHATTER = "[agent] INFO "
"""Prefix of the agent's lines about its own work: shown with --verbose only."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(line: str) -> str:
    """The line without codes that move the cursor, clear or color the screen, so that a view drawn
    in place stays intact."""
    return _CONTROL.sub("", without_escapes(line)).expandtabs(4)
